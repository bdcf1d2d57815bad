import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { type StoreFixture, storeFixture } from '../../../testing/store-fixture.ts';
import { startTcpProxy, type TcpProxy } from '../../../testing/tcp-proxy.ts';
import { answered, connect, type Sql } from './connection.ts';
import { readAs } from './read-as.ts';
import { StoreUnavailable } from './store-unavailable.ts';

const NAME = 'connection-test';
/** Longest wait for what has to come; a connection is opened again after a second at most. */
const BOUND = { timeout: 10_000 };

let db: StoreFixture;
let proxy: TcpProxy;
/** One connection: what a lost one leaves behind, the next statement meets. */
let sql: Sql;
/** Has the lock that the statements under way wait for. */
let holder: Sql;
beforeAll(async () => {
  db = await storeFixture(18);
  const url = new URL(db.url);
  proxy = await startTcpProxy({ host: url.hostname, port: Number(url.port) });
  url.hostname = '127.0.0.1';
  url.port = String(proxy.port);
  sql = connect(url.href, { max: 1, applicationName: NAME });
  holder = connect(db.url, { max: 1, applicationName: 'connection-test-holder' });
  await holder`select pg_advisory_lock(1)`;
});
afterAll(async () => {
  await Promise.all([sql, holder].map((each) => each.end({ timeout: 1 })));
  await proxy.close();
  await db.close();
});

function failure(work: Promise<unknown>): Promise<unknown> {
  return work.then(
    () => expect.unreachable('it was answered'),
    (error: unknown) => error,
  );
}

let labels = 0;
/** Text that only one statement carries: a server goes on with what nobody waits for. */
function freshLabel(): string {
  labels += 1;
  return `work ${labels}`;
}

async function underWay(label: string): Promise<void> {
  await expect
    .poll(
      () => db.owner`select 1 from pg_stat_activity where application_name = ${NAME} and query like ${`%'${label}'%`}`,
      BOUND,
    )
    .toHaveLength(1);
}

/** Every statement is answered or refused: one that nothing comes back of would hold its caller for the longest wait, and its connection for good. */
async function expectAnswers(): Promise<void> {
  for (const n of [1, 2, 3]) {
    await expect.poll(() => told(answered(sql`select ${n}::int as n`)), BOUND).toEqual([{ n }]);
    await expect.poll(() => told(readAs(sql, 'acme', (tx) => tx`select ${n}::int as n`)), BOUND).toEqual([{ n }]);
  }
}

async function told(work: Promise<unknown>): Promise<unknown> {
  const result: unknown = await work.catch((error: unknown) => error);
  if (result instanceof StoreUnavailable) expect(result.cause, 'it was silent').toBeDefined();
  return result;
}

const LOSSES: [string, () => Promise<unknown>][] = [
  [
    'the server ends it',
    () => db.owner`select pg_terminate_backend(pid) from pg_stat_activity where application_name = ${NAME}`,
  ],
  ['it is closed', () => proxy.hangUp()],
  [
    'it is reset',
    async () => {
      await proxy.cut();
      await proxy.heal();
    },
  ],
];

describe.each(LOSSES)('a connection is lost: %s', (_, lose) => {
  test('under a statement: the caller hears it, and the next one is answered', async () => {
    await expectAnswers();
    const label = freshLabel();
    const lost = failure(answered(sql.unsafe(`select '${label}', pg_advisory_lock(1)`)));
    await underWay(label);
    await lose();
    expect(await lost).toBeInstanceOf(StoreUnavailable);
    await expectAnswers();
  });
  test('under a read for a tenant: the caller hears it, nothing is written to the dead connection, and the next one is answered', async () => {
    await expectAnswers();
    const label = freshLabel();
    const lost = failure(readAs(sql, 'acme', (tx) => tx.unsafe(`select '${label}', pg_advisory_lock(1)`)));
    await underWay(label);
    await lose();
    expect(await lost).toBeInstanceOf(StoreUnavailable);
    await expectAnswers();
  });
  test('under nothing: the next statement is answered', async () => {
    await expectAnswers();
    await lose();
    await db.owner`select 1`;
    await expectAnswers();
  });
});

test('a read that the database refuses is rolled back, and its connection serves the next', async () => {
  expect(await failure(readAs(sql, 'acme', (tx) => tx`select 1 / 0`))).toMatchObject({ code: '22012' });
  await expectAnswers();
});

/** With the driver's own delay the tenth try would come 20 s after the ninth, beyond the longest wait for an answer. */
const TRIES = 10;

test('however long the database has been away, the refused connection says so, and the first question after it is back is answered', async () => {
  await expectAnswers();
  await proxy.cut();
  expect(await failure(answered(sql`select 1`))).toBeInstanceOf(StoreUnavailable);
  for (let i = 1; i < TRIES; i++) {
    expect(await failure(answered(sql`select 1`))).toMatchObject({
      name: 'StoreUnavailable',
      cause: { code: 'ECONNREFUSED' },
    });
  }
  await proxy.heal();
  await expectAnswers();
}, 60_000);
