import { serve } from '@hono/node-server';

/** A client that sends its headers or its whole request slower than this is cut off, in milliseconds. */
const HEADERS_TIMEOUT_MS = 10_000;
const REQUEST_TIMEOUT_MS = 30_000;

/**
 * Serves an app. Resolves once it listens.
 * @throws {Error} when the port is taken.
 */
export function listen(
  fetch: (request: Request) => Response | Promise<Response>,
  address: { host: string; port: number },
): Promise<{ port: number; close(): Promise<void> }> {
  return new Promise((resolve, reject) => {
    const server = serve(
      {
        fetch,
        hostname: address.host,
        port: address.port,
        overrideGlobalObjects: false,
        serverOptions: { headersTimeout: HEADERS_TIMEOUT_MS, requestTimeout: REQUEST_TIMEOUT_MS },
      },
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
