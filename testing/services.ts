import { inject } from 'vitest';
import type { ServiceName, ServiceReply } from './service-broker.ts';
import { cloneTemplate, type TestDatabase } from './template-database.ts';

export type { TestDatabase } from './template-database.ts';

/** The newest and the oldest major version that we support. */
export type PostgresVersion = 18 | 15;

/** Milliseconds for the first request, which starts the service: initdb and recovery on a loaded machine, with a margin. */
const START_MS = 240_000;

/**
 * Owner's URL of this run's server, started on first use: 18 is the embedded one, or whatever `DATABASE_URL` names; 15 is Debian's.
 * It names a maintenance database: make tables in a `testDatabase` instead.
 * @throws {Error} with the apt line to run when the machine lacks PostgreSQL 15.
 */
export function postgresUrl(version: PostgresVersion): Promise<string> {
  return serviceUrl(`postgres-${version}`);
}

/**
 * URL of this run's Redis (`noeviction`, no persistence), started on first use, or of the one that `REDIS_URL` names. All test files
 * share it: use a key prefix of your own.
 * @throws {Error} with the apt line to run when the machine lacks redis-server.
 */
export function redisUrl(): Promise<string> {
  return serviceUrl('redis');
}

/**
 * A database of its own for one test file, cloned in about 50 ms from a template that `prepare` fills once per run and version.
 * The template is known by `name`: callers with one name must pass one `prepare`. Close what `prepare` opened; sessions left are ended.
 * Roles belong to the whole server, not to a database, and outlive it where `DATABASE_URL` is given: make them with a prefix of your
 * own, `if not exists`, and drop them if they must not stay. Drop the database in `afterAll`, or leave it to the end of the run.
 * @throws {Error} what `prepare` throws; as `postgresUrl`; after 120 s of waiting for another worker's `prepare`.
 */
export async function testDatabase(options: {
  version: PostgresVersion;
  name: string;
  prepare: (url: string) => Promise<void>;
}): Promise<TestDatabase> {
  return cloneTemplate(await postgresUrl(options.version), {
    runId: inject('testRunId'),
    template: options.name,
    prepare: options.prepare,
  });
}

async function serviceUrl(name: ServiceName): Promise<string> {
  const response = await fetch(`${inject('serviceBroker')}/${name}`, { signal: AbortSignal.timeout(START_MS) });
  const reply = (await response.json()) as ServiceReply; // Written by this version's own broker.
  if ('error' in reply) throw new Error(reply.error);
  return reply.url;
}
