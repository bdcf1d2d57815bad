import { execFileSync } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { readFileSync, statSync } from 'node:fs';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { poll } from '../testing/fleet.ts';
import { type ChaosFleet, startChaosFleet } from './harness.ts';

/** Bytes of a file from which on no file of the database may grow: above a WAL segment, so that the server itself goes on. */
const FILE_MIN = 17 * 1024 * 1024;

/** What the database's process and all that it forked may write: a full disk, for them alone. */
function limitFiles(chaos: ChaosFleet, bytes: number | 'unlimited'): void {
  const server = chaos.postgres.pid();
  const children = readFileSync(`/proc/${server}/task/${server}/children`, 'utf8').trim().split(' ');
  // Only the server's own user may set its limits.
  const { uid, gid } = statSync(`/proc/${server}`);
  const limit = (pid: string) =>
    execFileSync('prlimit', ['--pid', pid, `--fsize=${bytes}:`], {
      uid,
      gid,
      cwd: '/',
      stdio: ['ignore', 'ignore', 'pipe'],
    });
  limit(String(server));
  for (const pid of children) {
    try {
      limit(pid);
    } catch (error) {
      // One that ended meanwhile.
      if (!/No such process/.test(String(error))) throw error;
    }
  }
}

/** Lets the history's file grow to its limit, in rows that leave no gap for an event, and sets the limit there: its next page does not fit. */
async function fillHistory(chaos: ChaosFleet): Promise<void> {
  const { owner } = chaos.fleet;
  let next = 1_000_000;
  const fill = async (rows: number): Promise<number> => {
    await owner`
      insert into cs.run_event (run_id, revision, to_state, trigger, actor, at, payload, payload_digest, hash)
      select (select run_id from cs.run limit 1), ${next}::int + n, 'queued', 'filler', 'test', now(), 'x', 'x', 'x' from generate_series(1, ${rows}::int) n`;
    next += rows;
    const [size] = await owner<{ bytes: number }[]>`select pg_relation_size('cs.run_event')::int as bytes`;
    return size?.bytes ?? 0;
  };
  let bytes = 0;
  while (bytes < FILE_MIN) bytes = await fill(20_000);
  limitFiles(chaos, bytes);
  // What is left of its pages.
  await expect(
    (async () => {
      for (let rows = 0; rows < 10_000; rows++) await fill(1);
    })(),
  ).rejects.toThrow(/could not extend file/);
}

describe('bad luck', () => {
  let chaos: ChaosFleet;
  beforeAll(async () => {
    chaos = await startChaosFleet({ backend: 'redis' });
  }, 120_000);
  afterAll(() => chaos?.stop(), 60_000);

  test('a full disk of Postgres: 503 and nothing half written, no send without its commit, and everything goes on afterwards', async () => {
    const { fleet } = chaos;
    const seeded = await fleet.seed();
    const waiting = await fleet.request(seeded);
    await fleet.until(waiting, ['awaiting_approval']);
    await fillHistory(chaos);
    try {
      const other = await fleet.seed();
      const refused = await fetch(`${fleet.apiUrl}/v1/runs`, {
        method: 'POST',
        headers: { authorization: `Bearer ${fleet.keys.requester}`, 'content-type': 'application/json' },
        body: JSON.stringify({
          request_id: other.request_id,
          input: {
            order_id: other.order_id,
            requested_amount_minor: 4200,
            currency: 'USD',
            reason: 'item arrived damaged',
          },
        }),
      });
      expect(refused.status).toBe(503);
      expect(await refused.json()).toMatchObject({ code: 'store_unavailable' });
      const left = await fleet.owner`select from cs.run where request_id = ${other.request_id}`;
      expect(left).toHaveLength(0);
      await expect(fleet.approve(waiting)).rejects.toThrow();
      expect((await fleet.requester.getRun(waiting)).state).toBe('awaiting_approval');
      expect(await fleet.ledger(seeded.payment_id)).toHaveLength(0);
    } finally {
      limitFiles(chaos, 'unlimited');
    }
    await fleet.approve(waiting);
    await fleet.until(waiting, ['completed'], 40_000);
    expect(await fleet.effects(seeded.payment_id)).toHaveLength(1);
    expect(await fleet.ledger(seeded.payment_id)).toHaveLength(1);
  }, 120_000);

  test.each([
    ['10 MB of HTML', { kind: 'huge_after_accept', bytes: 10 * 1024 * 1024 }],
    ['an answer that never ends', { kind: 'drip_after_accept', interval_ms: 300 }],
  ] as const)('a provider that answers %s: bounded, uncertain, looked up, completed once', async (_, fault) => {
    const { fleet } = chaos;
    const seeded = await fleet.seed();
    await fleet.fault(seeded.payment_id, fault);
    const run_id = await fleet.request(seeded);
    await fleet.approve(run_id);
    const run = await fleet.until(run_id, ['completed'], 40_000);
    expect(run.attempts).toMatchObject([{ status: 'uncertain', response: { class: 'uncertain' } }]);
    expect(await fleet.ledger(seeded.payment_id)).toHaveLength(1);
  });

  test('a Postgres that goes silent after the commit arrived: no send, and the run is right without a person once it answers', async () => {
    const { fleet, executorDb } = chaos;
    const seeded = await fleet.seed();
    const run_id = await fleet.request(seeded);
    await fleet.until(run_id, ['awaiting_approval']);
    executorDb.holdReplies();
    await fleet.approve(run_id);
    // A statement's silence ends after 12 s on the worker's side, whatever the network says.
    const silent = 'the database does not answer; the sweeper brings the run back';
    await poll(
      async () => chaos.living('executor').some((one) => chaos.log(one).some((line) => line.message === silent)),
      30_000,
      'no executor said that its database is silent',
    );
    expect(await fleet.ledger(seeded.payment_id)).toHaveLength(0);
    await executorDb.heal();
    await fleet.until(run_id, ['completed'], 60_000);
    expect(await fleet.effects(seeded.payment_id)).toHaveLength(1);
  }, 150_000);

  test('a client that hangs up in the middle of its request changes nothing', async () => {
    const { fleet } = chaos;
    const request_id = `case_${randomUUID()}`;
    const cut = new AbortController();
    const sending = fetch(`${fleet.apiUrl}/v1/runs`, {
      method: 'POST',
      headers: { authorization: `Bearer ${fleet.keys.requester}`, 'content-type': 'application/json' },
      body: new ReadableStream({
        start(controller) {
          controller.enqueue(new TextEncoder().encode(`{"request_id":"${request_id}","input":{`));
        },
      }),
      // Node's fetch sends a stream only so.
      duplex: 'half',
      signal: cut.signal,
    } as RequestInit);
    setTimeout(() => cut.abort(), 200);
    await expect(sending).rejects.toThrow();
    expect(await fleet.owner`select from cs.run where request_id = ${request_id}`).toHaveLength(0);
  });
});
