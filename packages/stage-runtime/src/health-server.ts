import type { Metrics } from '@counterstamp/telemetry';
import { type ServerType, serve } from '@hono/node-server';
import { Hono } from 'hono';

/** Whether a process does its work, as seen from outside. */
export interface Readiness {
  ready: boolean;
  /** One sentence per part that is not ready. */
  why: string[];
}

export interface HealthServer {
  port: number;
  close(): Promise<void>;
}

/** Routes that every process has: `/healthz` (it runs), `/readyz` (it does its work), `/metrics`. */
export function healthRoutes(deps: { readiness: () => Promise<Readiness>; metrics: Metrics }): Hono {
  return new Hono()
    .get('/healthz', (c) => c.json({ status: 'ok' }))
    .get('/readyz', async (c) => {
      const readiness = await deps.readiness();
      return c.json(readiness, readiness.ready ? 200 : 503);
    })
    .get('/metrics', async (c) => c.text(await deps.metrics.text(), 200, { 'content-type': deps.metrics.contentType }));
}

/**
 * Serves an app on loopback or wherever the configuration says. Resolves once it listens.
 * @throws {Error} when the port is taken.
 */
export function listen(fetch: Hono['fetch'], address: { host: string; port: number }): Promise<HealthServer> {
  return new Promise((resolve, reject) => {
    const server: ServerType = serve(
      { fetch, hostname: address.host, port: address.port, overrideGlobalObjects: false, serverOptions: { headersTimeout: 10_000, requestTimeout: 30_000 } },
      (info) => {
        resolve({
          port: info.port,
          close: () =>
            new Promise((closed) => {
              server.close(() => closed());
              // Kept-alive connections without a request would hold the close open.
              if ('closeIdleConnections' in server) server.closeIdleConnections();
            }),
        });
      },
    );
    server.once('error', reject);
  });
}
