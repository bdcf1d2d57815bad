import { randomBytes } from 'node:crypto';
import { existsSync } from 'node:fs';
import { chmod, mkdtemp, rm, writeFile } from 'node:fs/promises';
import http from 'node:http';
import os from 'node:os';
import path from 'node:path';
import { type EmbeddedPostgres, startEmbeddedPostgres } from '@counterstamp/embedded-postgres';
import { type OrphanGuard, startOrphanGuard } from './orphan-guard.ts';
import { type RedisServer, startRedisServer } from './redis-server.ts';
import { dropTestDatabases } from './template-database.ts';

/** Debian's PostgreSQL 15: the oldest version that we support. */
const POSTGRES_15_BIN = '/usr/lib/postgresql/15/bin';

/** A service of the machine that tests need and that is not there. Tests fail with it; they never skip. */
const APT_LINE = 'apt-get update && apt-get install -y --no-install-recommends';

/** What a test run may ask for. */
export type ServiceName = 'postgres-18' | 'postgres-15' | 'redis';

/** The broker's reply. */
export type ServiceReply = { url: string } | { error: string };

export interface ServiceBroker {
  url: string;
  runId: string;
  stop: () => Promise<void>;
}

interface Running {
  url: string;
  stop: () => Promise<void>;
}

/**
 * Serves `GET <url>/<ServiceName>`: the first request starts the service, all others share it. Everything lives in one temporary
 * folder and on free ports, and ends with `stop()` or, should this process be killed, with the orphan guard.
 */
export async function startServiceBroker(): Promise<ServiceBroker> {
  const folder = await mkdtemp(path.join(os.tmpdir(), 'cs-testing-'));
  await chmod(folder, 0o711); // Postgres runs as another user when we are root, and must pass through.
  const guard = startOrphanGuard(folder);
  const runId = randomBytes(4).toString('hex');
  const starting = new Map<ServiceName, Promise<Running>>();
  const service = (name: ServiceName): Promise<Running> => {
    const begun = starting.get(name) ?? STARTERS[name](folder, guard, runId);
    starting.set(name, begun);
    return begun;
  };

  // The replies hold passwords: only who was given this path may ask.
  const secret = randomBytes(16).toString('hex');
  const server = http.createServer((request, response) => {
    const name = request.url?.split('/')[2];
    if (request.url?.split('/')[1] !== secret || !isServiceName(name)) {
      response.writeHead(404).end();
      return;
    }
    service(name)
      .then(
        ({ url }): ServiceReply => ({ url }),
        (error: unknown): ServiceReply => ({ error: error instanceof Error ? error.message : String(error) }),
      )
      .then((reply) => response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify(reply)))
      .catch((error: unknown) => response.destroy(error instanceof Error ? error : undefined));
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const address = server.address();
  if (address === null || typeof address === 'string') throw new Error('the service broker has no TCP address');

  return {
    url: `http://127.0.0.1:${address.port}/${secret}`,
    runId,
    stop: async () => {
      server.close();
      server.closeAllConnections();
      const stopped = await Promise.allSettled(
        [...starting.values()].map(async (begun) => {
          const running = await begun.catch(() => undefined); // Who asked for it was told why it did not start.
          await running?.stop();
        }),
      );
      await rm(folder, { recursive: true, force: true });
      guard.dismiss();
      for (const result of stopped) if (result.status === 'rejected') throw result.reason;
    },
  };
}

type Starter = (folder: string, guard: OrphanGuard, runId: string) => Promise<Running>;

const STARTERS: Readonly<Record<ServiceName, Starter>> = {
  'postgres-18': async (folder, guard, runId) => {
    const given = process.env.DATABASE_URL;
    if (given !== undefined && given !== '') return { url: given, stop: () => dropTestDatabases(given, runId) };
    return watched(folder, guard, 'postgres-18', await startPostgres(folder, 'postgres-18'));
  },
  'postgres-15': async (folder, guard) => {
    if (!existsSync(path.join(POSTGRES_15_BIN, 'initdb')))
      throw new Error(`this test needs PostgreSQL 15 in ${POSTGRES_15_BIN}: ${APT_LINE} postgresql-15`);
    return watched(folder, guard, 'postgres-15', await startPostgres(folder, 'postgres-15', POSTGRES_15_BIN));
  },
  redis: async (folder, guard) => {
    const given = process.env.REDIS_URL;
    if (given !== undefined && given !== '') return { url: given, stop: async () => {} };
    const redis = await startRedisServer(path.join(folder, 'redis'));
    if (redis === undefined) throw new Error(`this test needs redis-server: ${APT_LINE} redis-server`);
    return watched(folder, guard, 'redis', redis);
  },
};

function startPostgres(folder: string, name: ServiceName, binDir?: string): Promise<EmbeddedPostgres> {
  return startEmbeddedPostgres({ dir: path.join(folder, name), durable: false, binDir });
}

/** Tells the guard which process to end, should we be killed. */
async function watched(
  folder: string,
  guard: OrphanGuard,
  name: ServiceName,
  service: EmbeddedPostgres | RedisServer,
): Promise<Running> {
  await writeFile(path.join(folder, `${name}${guard.pidFileEnding}`), String(service.pid));
  return service;
}

function isServiceName(name: string | undefined): name is ServiceName {
  return name !== undefined && Object.hasOwn(STARTERS, name);
}
