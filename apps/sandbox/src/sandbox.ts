import { createServer, type Server } from 'node:http';
import { getRequestListener } from '@hono/node-server';
import { Hono } from 'hono';
import { adminRoutes } from './admin/admin-routes.ts';
import type { Clock } from './clock.ts';
import { creditRoutes } from './credits/credit-routes.ts';
import { jsonAnswer, problemAnswer } from './http/answer.ts';
import type { NodeBinding } from './http/binding.ts';
import { respond } from './http/delivery.ts';
import { providerRoutes } from './provider/provider-routes.ts';
import { shopRoutes } from './shop/shop-routes.ts';
import { World } from './world.ts';

/** Milliseconds that an idle connection stays open. 60 s: longer than clients keep theirs, so no request meets a closing one. */
const KEEP_ALIVE_MS = 60_000;

export interface SandboxOptions {
  /** 0, the default, takes a free one. */
  readonly port?: number;
  readonly host?: string;
  /** Source of every time in answers, of key retention and of later statuses; waits on the wire are real time. */
  readonly clock?: Clock;
}

export interface CloseOptions {
  /** Milliseconds in which requests may still finish; default 0. After that their connections are cut. */
  readonly drain_ms?: number;
}

export interface RunningSandbox {
  /** Without a slash at the end. */
  readonly url: string;
  readonly port: number;
  close(options?: CloseOptions): Promise<void>;
}

interface Lifecycle {
  draining: boolean;
}

function sandboxApp(world: World, lifecycle: Lifecycle): Hono<NodeBinding> {
  const app = new Hono<NodeBinding>();
  app.get('/healthz', (c) => respond(c, jsonAnswer(200, { status: 'ok' })));
  app.get('/readyz', (c) =>
    respond(
      c,
      lifecycle.draining
        ? problemAnswer(503, 'draining', 'The sandbox is going down.')
        : jsonAnswer(200, { status: 'ready' }),
    ),
  );
  app.route('/shop', shopRoutes(world));
  app.route('/payments', providerRoutes(world));
  app.route('/credits', creditRoutes(world));
  app.route('/admin', adminRoutes(world));
  app.notFound((c) => respond(c, problemAnswer(404, 'route_not_found', `Nothing at ${c.req.method} ${c.req.path}.`)));
  app.onError((error, c) => {
    process.stderr.write(`${JSON.stringify({ level: 'error', msg: 'bug in the sandbox', error: error.stack })}\n`);
    return respond(c, problemAnswer(500, 'internal_error', 'A bug in the sandbox; its log says more.'));
  });
  return app;
}

/** Starts a shop, a payment provider and the credits on one port. Any number of them run side by side; none keeps anything on disk. */
export async function startSandbox(options: SandboxOptions = {}): Promise<RunningSandbox> {
  const { port = 0, host = '127.0.0.1', clock = Date.now } = options;
  const world = new World(clock);
  const lifecycle: Lifecycle = { draining: false };
  // The host process keeps its own Request and Response: tests run the sandbox beside other servers.
  const listener = getRequestListener(sandboxApp(world, lifecycle).fetch, { overrideGlobalObjects: false });
  const server = createServer({ keepAliveTimeout: KEEP_ALIVE_MS }, (incoming, outgoing) => {
    // A kept connection would hold the drain open.
    if (lifecycle.draining) outgoing.setHeader('connection', 'close');
    outgoing.once('close', () => {
      if (lifecycle.draining) setImmediate(() => server.closeIdleConnections());
    });
    void listener(incoming, outgoing);
  });
  const bound = await listen(server, port, host);
  let closing: Promise<void> | null = null;
  return {
    url: `http://${host.includes(':') ? `[${host}]` : host}:${bound}`,
    port: bound,
    close: async ({ drain_ms = 0 } = {}) => {
      lifecycle.draining = true;
      closing ??= drain(server, world, drain_ms);
      return closing;
    },
  };
}

async function listen(server: Server, port: number, host: string): Promise<number> {
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject);
    server.listen(port, host, () => {
      server.off('error', reject);
      resolve();
    });
  });
  const address = server.address();
  if (address === null || typeof address === 'string') throw new Error('the sandbox listens on no TCP port');
  return address.port;
}

/** Delivers no webhook and takes no connection any more, lets running requests finish for `drainMs`, then cuts what is left. */
async function drain(server: Server, world: World, drainMs: number): Promise<void> {
  world.webhooks.stop();
  const closed = new Promise<void>((resolve) => {
    server.close(() => resolve());
  });
  const force = setTimeout(() => {
    world.pauses.cancelAll();
    server.closeAllConnections();
  }, drainMs);
  await closed;
  clearTimeout(force);
}
