import { randomUUID } from 'node:crypto';
import { Client } from 'pg';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { type TestDatabase, testDatabase } from '../../../testing/services.ts';
import { freePort } from '../testing/own-redis.ts';
import { checkPostgresQueue, migrateQueue } from './index.ts';

const PASSWORD = 'correct-horse';
const role = `cs_queue_check_${randomUUID().slice(0, 8)}`;
let database: TestDatabase;

beforeAll(async () => {
  database = await testDatabase({ version: 18, name: 'stage-queue-empty', prepare: async () => {} });
  await asOwner(`create role ${role} login password '${PASSWORD}'`);
});
afterAll(async () => {
  await asOwner(`drop owned by ${role}; drop role ${role}`);
  await database.drop();
});

async function asOwner(sql: string): Promise<void> {
  const client = new Client({ connectionString: database.url });
  await client.connect();
  try {
    await client.query(sql);
  } finally {
    await client.end();
  }
}

function urlOf(password = PASSWORD): string {
  const url = new URL(database.url);
  url.username = role;
  url.password = password;
  return url.href;
}

test('each step towards usable queues is told by the command that takes it', async () => {
  const check = await checkPostgresQueue(urlOf());
  expect(check).toMatchObject({ kind: 'refused', code: 'queue.not_migrated' });
  expect(check).toHaveProperty('message', expect.stringContaining('counterstamp migrate'));

  const { version } = await migrateQueue(database.url, { grantTo: [] });
  expect(await checkPostgresQueue(urlOf())).toMatchObject({ kind: 'refused', code: 'queue.not_granted' });

  await migrateQueue(database.url, { grantTo: [role] });
  expect(await checkPostgresQueue(urlOf())).toEqual({ kind: 'ok', version });
});

test('rights that are missing are named', async () => {
  await migrateQueue(database.url, { grantTo: [role] });
  await asOwner(`revoke delete on bullmq.job from ${role}`);
  expect(await checkPostgresQueue(urlOf())).toEqual({
    kind: 'refused',
    code: 'queue.not_granted',
    message:
      "The login may not use the queues' tables (delete on job). Run `counterstamp migrate` as the database's owner, without REDIS_URL.",
  });
});

test('a schema of another version is not taken for a usable one', async () => {
  await migrateQueue(database.url, { grantTo: [role] });
  await asOwner('delete from bullmq.migration where version > 1');
  expect(await checkPostgresQueue(urlOf())).toMatchObject({ kind: 'refused', code: 'queue.not_migrated' });
  await asOwner('drop schema bullmq cascade');
});

test('a server that is away is told quickly and without the password', async () => {
  const url = new URL(urlOf('battery-staple'));
  url.port = String(await freePort());
  const check = await checkPostgresQueue(url.href);
  expect(check).toMatchObject({ kind: 'refused', code: 'queue.postgres_unreachable' });
  expect(JSON.stringify(check)).not.toContain('battery-staple');
});
