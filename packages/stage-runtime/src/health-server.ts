import { createServer } from 'node:http';
import type { Metrics } from '@counterstamp/telemetry';

/** A client that sends its request slower than this is cut off, in milliseconds. */
const REQUEST_TIMEOUT_MS = 10_000;

/** Whether a process does its work, as seen from outside. */
export interface Readiness {
  ready: boolean;
  /** One sentence per part that is not ready. */
  why: string[];
}

export interface HealthServer {
  port: number;
  /** Resolves when no connection is left. */
  close(): Promise<void>;
}

/**
 * What every worker answers: `/healthz` (it runs), `/readyz` (it does its work), `/metrics`. Three fixed paths on node's own server: a web
 * framework would be a tenth of a worker's memory.
 * @throws {Error} when the port is taken.
 */
export function startHealthServer(
  deps: { readiness: () => Promise<Readiness>; metrics: Metrics },
  address: { host: string; port: number },
): Promise<HealthServer> {
  const answer = async (path: string): Promise<{ status: number; type: string; body: string }> => {
    switch (path) {
      case '/healthz':
        return { status: 200, type: 'application/json', body: '{"status":"ok"}' };
      case '/readyz': {
        const readiness = await deps.readiness();
        return { status: readiness.ready ? 200 : 503, type: 'application/json', body: JSON.stringify(readiness) };
      }
      case '/metrics':
        return { status: 200, type: deps.metrics.contentType, body: await deps.metrics.text() };
      default:
        return { status: 404, type: 'text/plain', body: 'healthz, readyz and metrics are here\n' };
    }
  };
  const server = createServer(
    { requestTimeout: REQUEST_TIMEOUT_MS, headersTimeout: REQUEST_TIMEOUT_MS },
    (request, response) => {
      const path = (request.url ?? '').split('?')[0] ?? '';
      const send = ({ status, type, body }: { status: number; type: string; body: string }) => {
        response.writeHead(status, { 'content-type': type }).end(request.method === 'HEAD' ? undefined : body);
      };
      answer(path).then(send, () => send({ status: 500, type: 'text/plain', body: 'the check itself failed\n' }));
    },
  );
  return new Promise((resolve, reject) => {
    server.once('error', reject);
    server.listen(address.port, address.host, () => {
      const bound = server.address();
      resolve({
        port: typeof bound === 'object' && bound !== null ? bound.port : address.port,
        close: () =>
          new Promise((closed) => {
            server.close(() => closed());
            server.closeIdleConnections();
          }),
      });
    });
  });
}
