import { randomBytes } from 'node:crypto';
import net from 'node:net';
import type { CommitFacts } from '@counterstamp/manifest-core';
import { afterAll, beforeAll, expect, test } from 'vitest';
import {
  evidenceDraft,
  type StoreFixture,
  storeFixture,
  TEST_ROLE_PREFIX,
  TEST_SECRET,
  testIds,
} from '../../../testing/store-fixture.ts';
import { createApiStore } from './api-store.ts';
import { connect } from './connection.ts';
import { readAs } from './read-as.ts';
import { serviceUrl } from './roles.ts';
import { parseDataKeys } from './sealed/data-keys.ts';
import { createSealing } from './sealed/sealing.ts';
import { createWorkerStore } from './worker-store.ts';

let db: StoreFixture;
beforeAll(async () => {
  db = await storeFixture(18);
});
afterAll(() => db.close());

/** A proxy that counts how often the client speaks after the server has: one for each round trip. */
async function countingProxy(target: URL): Promise<{ port: number; count: () => number; close: () => void }> {
  let turns = 0;
  let serverSpoke = true;
  const sockets = new Set<net.Socket>();
  const server = net.createServer((client) => {
    const upstream = net.connect({ host: target.hostname, port: Number(target.port) });
    sockets.add(client).add(upstream);
    client.on('data', (data) => {
      if (serverSpoke) turns++;
      serverSpoke = false;
      upstream.write(data);
    });
    upstream.on('data', (data) => {
      serverSpoke = true;
      client.write(data);
    });
    for (const socket of [client, upstream]) socket.on('error', () => undefined);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const address = server.address();
  return {
    port: typeof address === 'object' && address !== null ? address.port : 0,
    count: () => turns,
    close() {
      for (const socket of sockets) socket.destroy();
      server.close();
    },
  };
}

test('a load is one round trip, and a commit is one round trip', async () => {
  const url = new URL(serviceUrl(db.url, 'preflight', TEST_SECRET, TEST_ROLE_PREFIX));
  const proxy = await countingProxy(new URL(url));
  url.host = `127.0.0.1:${proxy.port}`;
  const sql = connect(url.href, { max: 1, applicationName: 'test-round-trips' });
  const store = createWorkerStore(sql, { instance_id: 'ins_test', ids: testIds });
  try {
    let row = await db.move('preflight', await db.createRun(), 'request_loaded', 'preflight');
    const commit = async () => {
      const outcome = await store.commitStage({
        run_id: row.run_id,
        expected: row.revision,
        from: 'preflight',
        on: 'read_failed',
        to: 'preflight',
        facts: { read_failure: { operation: 'read_order', reason: 'test' } },
        wake_in_ms: 3_000,
      });
      if (outcome.kind !== 'committed') throw new Error('lost');
      row = outcome.row;
    };
    // The first of each prepares its statement, once per connection.
    await store.load(row.run_id);
    await commit();
    let before = proxy.count();
    for (let i = 0; i < 10; i++) await commit();
    expect(proxy.count() - before).toBe(10);
    before = proxy.count();
    for (let i = 0; i < 10; i++) await store.load(row.run_id);
    expect(proxy.count() - before).toBe(10);
  } finally {
    await sql.end({ timeout: 1 });
    proxy.close();
  }
});

test('where personal data is sealed, a commit that carries some is one round trip more, and every other is one still', async () => {
  const keys = parseDataKeys(randomBytes(32).toString('base64url'));
  if (!keys.ok) throw new Error(keys.fault);
  const sealing = createSealing(keys.keys);
  const sealed = await storeFixture(18, { sealing });
  const url = new URL(serviceUrl(sealed.url, 'preflight', TEST_SECRET, TEST_ROLE_PREFIX));
  const proxy = await countingProxy(new URL(url));
  url.host = `127.0.0.1:${proxy.port}`;
  const sql = connect(url.href, { max: 1, applicationName: 'test-round-trips' });
  const store = createWorkerStore(sql, { instance_id: 'ins_test', ids: testIds, sealing });
  try {
    let row = await sealed.move('preflight', await sealed.createRun(), 'request_loaded', 'preflight');
    row = await sealed.move('preflight', row, 'checks_passed', 'collecting');
    const commit = async (facts: CommitFacts) => {
      const { run_id, revision: expected } = row;
      const move = { from: 'collecting', to: 'collecting', wake_in_ms: 3_000 } as const;
      const on = facts.evidence === undefined ? 'read_failed' : 'evidence_recorded';
      const outcome = await store.commitStage({ run_id, expected, ...move, on, facts });
      if (outcome.kind !== 'committed') throw new Error('lost');
      row = outcome.row;
    };
    const withEvidence = () =>
      commit({ evidence: [evidenceDraft('order_record', { refundable: 4200 })], evidence_complete: true });
    const without = () => commit({ read_failure: { operation: 'read_order', reason: 'test' } });
    // The first of each prepares its statements, once per connection.
    await withEvidence();
    let before = proxy.count();
    for (let i = 0; i < 10; i++) await withEvidence();
    expect(proxy.count() - before).toBe(20);
    before = proxy.count();
    for (let i = 0; i < 10; i++) await without();
    expect(proxy.count() - before).toBe(10);
  } finally {
    await sql.end({ timeout: 1 });
    proxy.close();
    await sealed.close();
  }
});

test('a read behind the wall is three round trips, however many statements it has', async () => {
  const url = new URL(serviceUrl(db.url, 'api', TEST_SECRET, TEST_ROLE_PREFIX));
  const proxy = await countingProxy(new URL(url));
  url.host = `127.0.0.1:${proxy.port}`;
  const sql = connect(url.href, { max: 1, applicationName: 'test-round-trips' });
  const store = createApiStore(sql);
  try {
    const { run_id } = await db.createRun();
    const two = () =>
      readAs(sql, 'shop_north', (tx) =>
        Promise.all([tx`select run_id from cs.run`, tx`select name from cs.principal`]),
      );
    // The first of each prepares its statements, once per connection.
    await store.load('shop_north', run_id);
    await two();
    let before = proxy.count();
    for (let i = 0; i < 10; i++) await store.load('shop_north', run_id);
    expect(proxy.count() - before).toBe(30);
    before = proxy.count();
    for (let i = 0; i < 10; i++) await two();
    expect(proxy.count() - before).toBe(30);
  } finally {
    await sql.end({ timeout: 1 });
    proxy.close();
  }
});
