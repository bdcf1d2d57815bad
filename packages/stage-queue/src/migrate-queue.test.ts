import { randomUUID } from 'node:crypto';
import { Client } from 'pg';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { type TestDatabase, testDatabase } from '../../../testing/services.ts';
import { migrateQueue, openHintQueue } from './index.ts';

/** Of roles on the run's own server; the server may ask for one. */
const PASSWORD = 'queue-test';

describe.each([18, 15] as const)('migrateQueue on PostgreSQL %s', (version) => {
  let database: TestDatabase;
  const role = `cs_queue_test_${randomUUID().slice(0, 8)}`;

  beforeAll(async () => {
    database = await testDatabase({ version, name: 'stage-queue-empty', prepare: async () => {} });
    await asOwner(`create role ${role} login password '${PASSWORD}'`);
  });
  afterAll(async () => {
    await asOwner(`drop owned by ${role}; drop role ${role}`);
    await database.drop();
  });

  async function asOwner(sql: string): Promise<Record<string, unknown>[]> {
    const client = new Client({ connectionString: database.url });
    await client.connect();
    try {
      const result = await client.query(sql);
      return Array.isArray(result) ? [] : result.rows;
    } finally {
      await client.end();
    }
  }
  function roleUrl(): string {
    const url = new URL(database.url);
    url.username = role;
    url.password = PASSWORD;
    return url.href;
  }

  test('eight processes that migrate at once all succeed', async () => {
    const calls = Array.from({ length: 8 }, () => migrateQueue(database.url, { grantTo: [role] }));
    const versions = await Promise.all(calls);
    expect(new Set(versions.map((result) => result.version)).size).toBe(1);
    expect(await asOwner('select count(*)::int as n, max(version)::int as version from bullmq.migration')).toEqual([
      { n: versions[0]?.version, version: versions[0]?.version },
    ]);
  });

  test('a role that does not exist is named, and a later call is not hindered', async () => {
    await expect(migrateQueue(database.url, { grantTo: ['cs_nobody; drop table x'] })).rejects.toThrow(
      'role "cs_nobody; drop table x" does not exist',
    );
  });

  test('a plain role sends, consumes, drops a stalled job and asks for health, with the grants alone', async () => {
    await migrateQueue(database.url, { grantTo: [role] });
    const errors: string[] = [];
    const open = () =>
      openHintQueue(
        { backend: 'postgres', url: roleUrl() },
        { onError: (error, where) => errors.push(`${where}: ${error.message}`) },
      );
    const queue = open();
    const hint = { run_id: `run_${randomUUID()}`, revision: 1 };
    let hung = 0;
    const dying = queue.consume(
      'execute',
      () =>
        new Promise(() => {
          hung += 1;
        }),
      { concurrency: 1, lockMs: 400 },
    );
    expect(await queue.hint('execute', hint)).toBe('queued');
    await expect.poll(() => hung, { timeout: 5_000 }).toBe(1);
    expect(await dying.health()).toEqual({ consuming: true });
    expect(await dying.drain(0)).toEqual({ drained: false });

    const heir = open();
    const taken: number[] = [];
    const consumer = heir.consume('execute', async ({ revision }) => void taken.push(revision), {
      concurrency: 1,
      lockMs: 400,
    });
    await expect.poll(() => asOwner('select id from bullmq.job'), { timeout: 10_000 }).toEqual([]);
    expect(await heir.hint('execute', { ...hint, revision: 2 })).toBe('queued');
    await expect.poll(() => taken, { timeout: 5_000 }).toEqual([2]);
    expect(await consumer.health()).toEqual({ consuming: true });
    expect(await consumer.drain(1_000)).toEqual({ drained: true });
    await queue.close();
    await heir.close();
    expect(errors).toEqual([]);
  });

  test('a plain role may neither create, alter nor truncate in the schema', async () => {
    const client = new Client({ connectionString: roleUrl() });
    await client.connect();
    for (const sql of [
      'create table bullmq.mine ()',
      'truncate bullmq.job',
      'alter table bullmq.job disable trigger all',
      'drop function bullmq.pause',
    ]) {
      await expect(client.query(sql)).rejects.toThrow(/permission denied|must be owner/);
    }
    await client.end();
  });

  test('a role without grants gets no hint through and learns why', async () => {
    const stranger = `cs_queue_test_${randomUUID().slice(0, 8)}`;
    await asOwner(`create role ${stranger} login password '${PASSWORD}'`);
    const url = new URL(roleUrl());
    url.username = stranger;
    const errors: string[] = [];
    const queue = openHintQueue(
      { backend: 'postgres', url: url.href },
      { onError: (error) => errors.push(error.message) },
    );
    expect(await queue.hint('verify', { run_id: `run_${randomUUID()}`, revision: 1 })).toEqual({
      kind: 'unavailable',
      reason: 'refused',
    });
    expect(errors).toEqual(['permission denied for schema bullmq']);
    await queue.close();
    await asOwner(`drop role ${stranger}`);
  });

  test('consumption survives its sessions being ended by the server', async () => {
    const reports: string[] = [];
    const queue = openHintQueue(
      { backend: 'postgres', url: roleUrl() },
      { onError: (error, where) => reports.push(`${where}: ${error.message}`) },
    );
    const taken = new Set<string>();
    queue.consume('verify', async ({ run_id }) => void taken.add(run_id), { concurrency: 1 });
    for (let round = 0; round < 2; round++) {
      await expect
        .poll(
          async () => {
            const run_id = `run_${randomUUID()}`;
            await queue.hint('verify', { run_id, revision: 1 });
            await new Promise((resolve) => setTimeout(resolve, 50));
            return taken.has(run_id);
          },
          { timeout: 8_000 },
        )
        .toBe(true);
      await asOwner(`select pg_terminate_backend(pid) from pg_stat_activity where usename = '${role}'`);
    }
    await queue.close();
    expect(reports.length).toBeLessThan(10);
  });
});
