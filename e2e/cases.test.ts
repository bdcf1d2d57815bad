import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import type { RunView } from '@counterstamp/api-contract';
import {
  canonicalJson,
  type JsonObject,
  type JsonValue,
  type RunId,
  type Service,
  sha256Text,
} from '@counterstamp/manifest-core';
import { openHintQueue } from '@counterstamp/stage-queue';
import { Redis } from 'ioredis';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { type OwnRedis, startOwnRedis } from '../packages/stage-queue/testing/own-redis.ts';
import { asCreateBody, caseValue } from '../testing/case-inputs/case-input.ts';
import { type Fleet, poll, type ServiceProcess } from '../testing/fleet.ts';
import { newRunId } from '../testing/store-fixture.ts';
import { FLEET_BACKENDS, testFleet } from '../testing/test-fleet.ts';

const DIGEST_04A = 'sha256:7118580a8fa9f807dc84e81e7553c98f379b7b322f824a8814c0f434d78f6513';
const DIGEST_04C = 'sha256:9da1619fd0fc88b96df698c9281b060cebaed820b29b2680bca0e1655e4a7223';

const parked = (run: RunView) => run.parked_reason !== null;

/** Runs the command line as its user does. */
async function cli(args: readonly string[], env: Record<string, string> = {}): Promise<{ code: number; text: string }> {
  const child = spawn(process.execPath, ['apps/cli/dist/main.js', ...args], {
    env: { PATH: process.env.PATH ?? '', ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let text = '';
  for (const stream of [child.stdout, child.stderr]) {
    stream.on('data', (data: Buffer) => {
      text += data.toString('utf8');
    });
  }
  const [code] = (await once(child, 'close')) as [number];
  return { code, text };
}

describe.each(FLEET_BACKENDS)('cases from the field, on the %s queue', (backend) => {
  let redis: OwnRedis | undefined;
  let fleet: Fleet;
  beforeAll(async () => {
    redis = backend === 'redis' ? await startOwnRedis() : undefined;
    fleet = await testFleet(backend, redis?.url);
  }, 90_000);
  afterAll(async () => {
    await fleet?.stop();
    await redis?.dispose();
  }, 30_000);

  function ownerUrl(): string {
    const { host, port, database, user, pass } = fleet.owner.options;
    const url = new URL(`postgres://${host[0]}:${port[0]}/${database}`);
    url.username = user;
    url.password = String(pass ?? '');
    return url.href;
  }

  async function admin(method: string, path: string, body: unknown): Promise<void> {
    const response = await fetch(`${fleet.sandbox.url}${path}`, {
      method,
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(body),
    });
    if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${await response.text()}`);
  }

  /** Sends a case's bytes as they are. */
  async function create(body: string): Promise<RunId> {
    return (await fleet.requester.createRun(new TextEncoder().encode(body))).run_id;
  }

  const input = (order_id: string, requested_amount_minor: number) => ({
    input: { order_id, requested_amount_minor, currency: 'USD', reason: 'arrived damaged' },
  });

  const alive = (service: Service) =>
    fleet.processes.filter(
      ({ service: of, child }) => of === service && child.exitCode === null && child.signalCode === null,
    );

  async function endAll(service: Service): Promise<void> {
    await Promise.all(alive(service).map((started) => fleet.end(started, 'SIGTERM')));
  }

  /** What happens while nobody executes; afterwards somebody does again. */
  async function withoutExecutor<T>(act: () => Promise<T>): Promise<T> {
    await endAll('executor');
    try {
      return await act();
    } finally {
      await fleet.start('executor');
    }
  }

  const sufficient = (run: RunView) => run.decisions_sufficient;

  /** Moves the database's clock forward, never back: nothing that was recorded may seem to lie ahead. */
  let aheadMs = 0;
  async function advanceClock(ms: number): Promise<void> {
    aheadMs += ms;
    await fleet.owner.unsafe(
      `create or replace function cs.clock() returns timestamptz language sql volatile as $$ select clock_timestamp() + make_interval(secs => ${aheadMs / 1_000}) $$`,
    );
  }

  describe('bytes and money', () => {
    /** The published digest of a file's action, made again from what a station of the path holds of it. */
    const published = (held: { amount_minor: JsonValue; currency: JsonValue; metadata: JsonValue }) =>
      sha256Text(
        canonicalJson({
          type: 'refund.create',
          payment_ref: 'pay_test_0001',
          amount_minor: held.amount_minor,
          currency: held.currency,
          reason: 'duplicate_charge',
          metadata: held.metadata,
        }),
      );
    type Held = Parameters<typeof published>[0];

    test.each(['04a', '04b'])(
      'O04 the digest of doc-%s is the same at the proposal, from the row, in the worker and in the exported manifest',
      async (name) => {
        const seeded = await fleet.seed();
        const run_id = await create(asCreateBody(name, seeded));
        await fleet.approve(run_id);
        const run = await fleet.until(run_id, ['completed']);
        const atProposal = run.proposals[0]?.body as Held;
        const [row] = await fleet.owner<{ action: string }[]>`
        select action::text as action from cs.action where run_id = ${run_id.slice(4)}`;
        const fromJsonb = JSON.parse(row?.action ?? '') as Held;
        const [call] = await fleet.ledger(seeded.payment_id);
        const sent = JSON.parse(call?.body ?? '') as {
          amount: number;
          currency: string;
          metadata: { request: JsonObject };
        };
        const inWorker = { amount_minor: sent.amount, currency: sent.currency, metadata: sent.metadata.request };
        const shown = await cli([
          'run',
          'show',
          run_id,
          '--json',
          '--url',
          fleet.apiUrl,
          '--key',
          fleet.keys.requester,
        ]);
        const exported = (JSON.parse(shown.text) as RunView).action?.fields as Held;
        for (const held of [atProposal, fromJsonb, inWorker, exported]) expect(published(held)).toBe(DIGEST_04A);
        const verified = await cli(['verify-history', run_id], { DATABASE_URL: ownerUrl() });
        expect(verified).toMatchObject({ code: 0, text: expect.stringContaining('every action digest holds') });
      },
    );

    test('O04 an approved action that was changed by SQL is refused before any call, and verify-history names the run', async () => {
      const seeded = await fleet.seed();
      const run_id = await create(asCreateBody('04a', seeded));
      await withoutExecutor(async () => {
        await fleet.approve(run_id);
        await fleet.until(run_id, sufficient);
        await fleet.owner.begin(async (sql) => {
          // Only the owner can, and only on purpose: the table is append-only, and its digest must be that of its bytes.
          await sql`alter table cs.action disable trigger user`;
          const [changed] = await sql<{ action: string }[]>`
            update cs.action set action_canonical = replace(action_canonical, '[3,1,2]', '[3,2,1]'),
              action = replace(action_canonical, '[3,1,2]', '[3,2,1]')::jsonb,
              action_digest = cs.tagged_digest('cs.action.v1', replace(action_canonical, '[3,1,2]', '[3,2,1]'))
            where run_id = ${run_id.slice(4)} returning action::text as action`;
          await sql`alter table cs.action enable trigger user`;
          expect(published(JSON.parse(changed?.action ?? '') as Held)).toBe(DIGEST_04C);
        });
      });
      const run = await fleet.until(run_id, ['failed']);
      expect(run.stop_reason?.code).toBe('digest_mismatch');
      expect(run.attempts).toEqual([]);
      expect(await fleet.ledger(seeded.payment_id)).toEqual([]);
      const verified = await cli(['verify-history'], { DATABASE_URL: ownerUrl() });
      expect(verified).toMatchObject({ code: 1, text: expect.stringContaining(`✗ ${run_id}: action changed`) });
    });

    test('O06 5800 yen are 5800 yen on the card, at the provider and when read back', async () => {
      const seeded = await fleet.seed({ amount_minor: 5_800, currency: 'JPY', payment_id: 'pay_test_jpy_5800' });
      const run_id = await create(asCreateBody('06a', seeded));
      const asked = await fleet.until(run_id, ['awaiting_approval']);
      expect(asked.approval?.display).toContainEqual(
        expect.objectContaining({ field: 'amount_minor', value: 'JPY 5,800' }),
      );
      await fleet.approve(run_id);
      const run = await fleet.until(run_id, ['completed']);
      const [call, ...more] = await fleet.ledger(seeded.payment_id);
      expect(more).toEqual([]);
      expect(JSON.parse(call?.body ?? '')).toMatchObject({ amount: 5_800, currency: 'JPY' });
      expect(run.outcome).toMatchObject({
        kind: 'matched',
        body: { effect: { amount_minor: 5_800, currency: 'JPY' } },
      });
    });

    test('O06 580000 yen of 5800 exceed what is refundable: stopped before anybody is asked', async () => {
      const seeded = await fleet.seed({ amount_minor: 5_800, currency: 'JPY', requested_amount_minor: 580_000 });
      const run = await fleet.until(await create(asCreateBody('06b', seeded)), ['failed']);
      expect(run.stop_reason?.message).toContain('exceeds_refundable');
      expect(run.approval).toBeNull();
      expect(await fleet.ledger(seeded.payment_id)).toEqual([]);
    });

    test('O02 O03 an emoji and a long order number reach the provider unchanged', async () => {
      for (const [name, kept] of [
        ['02d', 'thanks 😀'],
        ['03b', '"9007199254740993"'],
      ] as const) {
        const seeded = await fleet.seed();
        const run_id = await create(asCreateBody(name, seeded));
        const asked = await fleet.until(run_id, ['awaiting_approval']);
        expect(asked.approval?.display.find(({ field }) => field === 'metadata')?.value).toContain(kept);
        await fleet.approve(run_id);
        await fleet.until(run_id, ['completed']);
        expect((await fleet.ledger(seeded.payment_id))[0]?.body).toContain(kept);
      }
    });

    test('a provider’s word that no database can hold is kept with a visible escape, and is no success', async () => {
      const seeded = await fleet.seed();
      await fleet.fault(seeded.payment_id, { kind: 'other_status', status: 'succeeded\u0000\ud83d' });
      const run_id = await fleet.request(seeded);
      await fleet.approve(run_id);
      const run = await fleet.until(run_id, (seen) => seen.counters.verification_waits > 0);
      expect(run.attempts).toMatchObject([
        { status: 'succeeded', response: { effect: { status: 'succeeded⟦U+0000⟧⟦U+D83D⟧' } } },
      ]);
      expect(run.observations.at(-1)).toMatchObject({ body: { why: 'its status is succeeded⟦U+0000⟧⟦U+D83D⟧' } });
    });
  });

  describe('approvals and time', () => {
    test('O12 a queued job that was edited to say 2999 changes nothing: the worker takes only an id from it', async () => {
      const seeded = await fleet.seed();
      const run_id = await create(asCreateBody('12a', seeded));
      await withoutExecutor(async () => {
        await fleet.approve(run_id);
        await poll(async () => (await editJob(run_id)) === 1, 10_000, 'no job was queued');
      });
      await fleet.until(run_id, ['completed'], 40_000);
      const calls = await fleet.ledger(seeded.payment_id);
      expect(calls.map(({ body }) => (JSON.parse(body ?? '') as { amount: number }).amount)).toEqual([1999]);
    });

    /** Writes an amount into the waiting execute jobs of a run. @returns how many there were. */
    async function editJob(run_id: RunId): Promise<number> {
      if (redis === undefined) {
        const rows = await fleet.owner`
          update bullmq.job set data = data || '{"amount_minor": 2999}' where queue = 'execute' and data ->> 'run_id' = ${run_id} returning id`;
        return rows.length;
      }
      const client = new Redis(redis.url);
      try {
        const keys = await client.keys(`*:execute:execute-${run_id}-*`);
        for (const key of keys) {
          const data = JSON.parse((await client.hget(key, 'data')) ?? '{}') as object;
          await client.hset(key, 'data', JSON.stringify({ ...data, amount_minor: 2999 }));
        }
        return keys.length;
      } finally {
        client.disconnect();
      }
    }

    test('O09 b an approval that ran out while its job waited is checked again right before the call: expired, no call', async () => {
      const seeded = await fleet.seed();
      const run_id = await fleet.request(seeded);
      await fleet.until(run_id, ['awaiting_approval']);
      // The sweeper is off too, or it would do the worker's part.
      await endAll('reconciler');
      await withoutExecutor(async () => {
        await advanceClock(55_000);
        await fleet.approve(run_id);
        await fleet.until(run_id, sufficient);
        await advanceClock(15_000);
      });
      const run = await fleet.until(run_id, ['expired']);
      await fleet.start('reconciler');
      const { events } = await fleet.requester.runEvents(run_id);
      expect(events.at(-1)).toMatchObject({ trigger: 'approval_expired', actor: expect.stringContaining('executor') });
      expect([run.stop_reason?.code, run.attempts]).toEqual(['approval_expired', []]);
      expect(await fleet.ledger(seeded.payment_id)).toEqual([]);
    });

    test('O09 d a call that ended uncertain is read again long after the approval expired, and never made again', async () => {
      const seeded = await fleet.seed();
      const run_id = await uncertain(seeded, { kind: 'cut_after_accept' });
      await fleet.until(run_id, (run) => run.counters.look_ups > 0);
      await advanceClock(250_000);
      await fleet.fault(seeded.payment_id, []);
      const run = await fleet.until(run_id, ['completed'], 40_000);
      expect(Date.parse(run.approval?.expires_at ?? '')).toBeLessThan(Date.parse(run.state_since));
      expect(await fleet.ledger(seeded.payment_id)).toHaveLength(1);
      expect(await fleet.effects(seeded.payment_id)).toHaveLength(1);
    });
  });

  /** A run whose call met the fault, and whose effect nobody can look up for the time being. */
  async function uncertain(seeded: Awaited<ReturnType<Fleet['seed']>>, fault: object): Promise<RunId> {
    const unreadable = { kind: 'read_error', status: 503, endpoint: 'refund_list', times: 'always' };
    await fleet.fault(seeded.payment_id, [fault, unreadable]);
    const run_id = await fleet.request(seeded);
    await fleet.approve(run_id);
    await fleet.until(run_id, ['needs_reconciliation']);
    return run_id;
  }

  describe('an answer that is lost', () => {
    test.each([
      ['O17 a', 'the connection is reset after the provider acted', { kind: 'cut_after_accept', reset: true }],
      ['O17 b', 'the answer comes after the deadline', { kind: 'hang_after_accept', hold_ms: 4_000 }],
    ])('%s %s: outcome unknown, never called failed, looked up and found', async (_, __, fault) => {
      const seeded = await fleet.seed();
      const run_id = await uncertain(seeded, fault);
      const shown = await cli(['run', 'show', run_id, '--url', fleet.apiUrl, '--key', fleet.keys.requester]);
      expect(shown.text).toContain('It is being looked up');
      expect(shown.text).not.toMatch(/\bfailed\b/i);
      await fleet.fault(seeded.payment_id, []);
      await fleet.until(run_id, ['completed']);
      const calls = await fleet.ledger(seeded.payment_id);
      expect(new Set(calls.map((call) => call.idempotency_key)).size).toBe(1);
      expect(await fleet.effects(seeded.payment_id)).toHaveLength(1);
    });

    test('O17 c a refused connection is no attempt: tried again while the approval lives, and then expired with nothing sent', async () => {
      const [kept, given] = [await fleet.seed(), await fleet.seed()];
      const lives = await fleet.request(kept);
      const dies = await fleet.request(given, { approval_life_ms: 6_000 });
      await fleet.until(lives, ['awaiting_approval']);
      await fleet.until(dies, ['awaiting_approval']);
      let refused: ServiceProcess | undefined;
      await withoutExecutor(async () => {
        refused = await fleet.start('executor', { COUNTERSTAMP_PAYMENTS_URL: 'http://127.0.0.1:1' });
        for (const run_id of [dies, lives]) await fleet.approve(run_id);
        const log = refused.log;
        await poll(async () => (await readFile(log, 'utf8')).includes(lives), 20_000, 'the run was not tried');
        expect((await fleet.until(dies, ['expired'])).attempts).toEqual([]);
        expect((await fleet.requester.getRun(lives)).attempts).toEqual([]);
        await fleet.end(refused, 'SIGTERM');
      });
      const run = await fleet.until(lives, ['completed'], 40_000);
      expect(run.attempts).toHaveLength(1);
      expect(await fleet.ledger(kept.payment_id)).toHaveLength(1);
      expect([await fleet.ledger(given.payment_id), await fleet.effects(given.payment_id)]).toEqual([[], []]);
    });

    test.each([
      ['O18 a', 'before the call', 'dispatch.acked.before-check', 2],
      ['O18 b', 'between the provider’s answer and our write', 'dispatch.response.before-outcome', 1],
    ] as const)(
      '%s a worker killed %s: one key, committed before the call, the same in every retry; one effect',
      async (_, __, failpoint, attempts) => {
        const seeded = await fleet.seed();
        const run_id = await fleet.request(seeded);
        await fleet.until(run_id, ['awaiting_approval']);
        await withoutExecutor(async () => {
          const victim = await fleet.start('executor', { COUNTERSTAMP_FAILPOINTS: `${failpoint}=kill` });
          await fleet.approve(run_id);
          expect(await victim.ended).toBe('SIGKILL');
        });
        const run = await fleet.until(run_id, ['completed'], 40_000);
        // The key is in the row although in the first case no call of the first attempt ever was made: it was committed before.
        const keys = run.attempts.map((attempt) => attempt.idempotency_key);
        expect(keys).toHaveLength(attempts);
        expect(new Set(keys).size).toBe(1);
        expect(keys[0]).toMatch(/^cs-[0-9a-f]{64}$/);
        const calls = await fleet.ledger(seeded.payment_id);
        expect(calls.map((call) => call.idempotency_key)).toEqual(keys.slice(0, 1));
        expect(await fleet.effects(seeded.payment_id)).toHaveLength(1);
      },
    );

    test('O19 c succeeded, and failed later: the completed run is reopened and parked, nothing is sent again', async () => {
      const seeded = await fleet.seed();
      await fleet.fault(seeded.payment_id, { kind: 'succeeded_then_failed', after_ms: 2_500 });
      const run_id = await fleet.request(seeded);
      await fleet.approve(run_id);
      await fleet.until(run_id, ['completed']);
      const run = await fleet.until(run_id, parked, 40_000);
      expect([run.state, run.parked_reason]).toEqual(['needs_reconciliation', 'effect_reversed']);
      expect(await fleet.ledger(seeded.payment_id)).toHaveLength(1);
    });

    test('O21 a worker stopped right after its call left: another settles the run by a read, and the late finish changes nothing', async () => {
      const seeded = await fleet.seed();
      const run_id = await fleet.request(seeded);
      await fleet.until(run_id, ['awaiting_approval']);
      const victim = await withoutExecutor(async () => {
        const stops = await fleet.start('executor', {
          COUNTERSTAMP_FAILPOINTS: 'dispatch.written.before-response=stop',
        });
        await fleet.approve(run_id);
        await fleet.until(run_id, ['executing', 'needs_reconciliation']);
        return stops;
      });
      try {
        const settled = await fleet.until(run_id, ['completed'], 40_000);
        victim.child.kill('SIGCONT');
        const kept = 'the answer is kept as evidence';
        await poll(
          async () => (await readFile(victim.log, 'utf8')).includes(kept),
          20_000,
          'the late answer was not kept',
        );
        const after = await fleet.requester.getRun(run_id);
        expect([after.state, after.revision]).toEqual(['completed', settled.revision]);
        expect(await fleet.ledger(seeded.payment_id)).toHaveLength(1);
        expect(await fleet.effects(seeded.payment_id)).toHaveLength(1);
      } finally {
        victim.child.kill('SIGCONT');
        await fleet.end(victim, 'SIGTERM');
      }
    });

    test('O18 a 500 after the effect is no reason for a second key, nor for a second send', async () => {
      const seeded = await fleet.seed();
      await fleet.fault(seeded.payment_id, { kind: 'error_after_accept', status: 500 });
      const run_id = await fleet.request(seeded);
      await fleet.approve(run_id);
      await fleet.until(run_id, ['completed']);
      expect(await fleet.ledger(seeded.payment_id)).toHaveLength(1);
      expect(await fleet.effects(seeded.payment_id)).toHaveLength(1);
    });
  });

  describe('somebody else was faster', () => {
    /** Approves 1999 of 5000 or whatever is asked, and acts while the call is on its way: after every check of ours, before the provider decides. */
    async function meanwhile(amount: number, act: (payment_id: string, run_id: RunId) => Promise<void>) {
      const seeded = await fleet.seed({ amount_minor: 5_000 });
      await fleet.fault(seeded.payment_id, { kind: 'accept_late', delay_ms: 1_200 });
      const run_id = await fleet.request(seeded, input(seeded.order_id, amount));
      await fleet.approve(run_id);
      await poll(async () => (await fleet.ledger(seeded.payment_id)).length === 1, 20_000, 'no call was made');
      await act(seeded.payment_id, run_id);
      const run = await fleet.until(
        run_id,
        (seen) => ['completed', 'failed'].includes(seen.state) || parked(seen),
        40_000,
      );
      const calls = await fleet.ledger(seeded.payment_id);
      expect(calls).toHaveLength(1);
      return { run, call: calls[0], effects: await fleet.effects(seeded.payment_id) };
    }

    test('O20 a the whole payment refunded by hand: not taken for ours, no retry, a person decides', async () => {
      const { run, call, effects } = await meanwhile(5_000, (payment_id) =>
        admin('POST', '/admin/refunds', { payment_id }),
      );
      expect(call?.code).toBe('charge_already_refunded');
      expect([run.state, run.parked_reason]).toEqual(['needs_reconciliation', 'effect_ambiguous']);
      expect(effects).toHaveLength(1);
    });

    test('O20 b most of it refunded by hand: refused by the provider, and the amount is not trimmed to fit', async () => {
      const { run, call, effects } = await meanwhile(1_999, (payment_id) =>
        admin('POST', '/admin/refunds', { payment_id, amount: 4_000 }),
      );
      expect(JSON.parse(call?.body ?? '')).toMatchObject({ amount: 1_999 });
      expect(run).toMatchObject({ state: 'failed', stop_reason: { code: 'effect_rejected' } });
      expect(run.stop_reason?.message).toContain('amount_exceeds_refundable');
      expect(effects.map((effect) => effect.amount)).toEqual([4_000]);
    });

    test('O20 c disputed meanwhile: failed, and the reason says so', async () => {
      const { run, effects } = await meanwhile(1_999, (payment_id) =>
        admin('PATCH', `/admin/payments/${payment_id}`, { disputed: true }),
      );
      expect(run).toMatchObject({ state: 'failed', stop_reason: { code: 'effect_rejected' } });
      expect(run.stop_reason?.message).toContain('charge_disputed');
      expect(effects).toEqual([]);
    });

    test('O20 d refunded elsewhere, yet under our run id: it is ours, and done', async () => {
      const { run, call, effects } = await meanwhile(5_000, (payment_id, run_id) =>
        admin('POST', '/admin/refunds', { payment_id, reason: 'damaged_item', metadata: { run_id } }),
      );
      expect(call?.code).toBe('charge_already_refunded');
      expect(run).toMatchObject({
        state: 'completed',
        outcome: { kind: 'matched', provider_ref: effects[0]?.refund_id },
      });
      expect(effects).toHaveLength(1);
    });
  });

  describe('queues', () => {
    test('O22 every external reference that is accepted executes once, whatever its colons and digits; the others are refused', async () => {
      const { external_refs } = caseValue('22a') as { external_refs: string[] };
      const outcomes = await Promise.all(
        external_refs.map(async (reference) => {
          const usable = reference === '' ? `order_${external_refs.length}` : reference;
          const seeded = await fleet.seed({ request_id: usable, order_id: usable });
          try {
            const run_id = await fleet.request({ ...seeded, request_id: reference });
            await fleet.approve(run_id);
            await fleet.until(run_id, ['completed'], 40_000);
            return (await fleet.ledger(seeded.payment_id)).length;
          } catch (error) {
            expect(await fleet.ledger(seeded.payment_id)).toEqual([]);
            return error instanceof Error && 'problem' in error
              ? (error.problem as { code: string }).code
              : String(error);
          }
        }),
      );
      const refused = 'identifier_charset';
      expect(Object.fromEntries(external_refs.map((reference, at) => [reference, outcomes[at]]))).toEqual({
        'order:7': 1,
        'order:2026:11:30:7': 1,
        'a:b:c': 1,
        '123456': 1,
        '00123': 1,
        '0': 1,
        'ref/with/slash': refused,
        'ref with space': refused,
        'über-7': refused,
        '': refused,
      });
    }, 60_000);

    test('O23 a approved while the queue is away: answered in bounded time, executed once when it is back', async () => {
      const seeded = await fleet.seed();
      const run_id = await fleet.request(seeded);
      await fleet.until(run_id, ['awaiting_approval']);
      if (redis === undefined) await fleet.owner`alter table bullmq.job rename to job_away`;
      else await redis.kill();
      const startedAt = performance.now();
      await fleet.approve(run_id);
      expect(performance.now() - startedAt).toBeLessThan(5_000);
      expect(await fleet.requester.getRun(run_id)).toMatchObject({
        state: 'awaiting_approval',
        decisions_sufficient: true,
      });
      if (redis === undefined) await fleet.owner`alter table bullmq.job_away rename to job`;
      else await redis.start();
      await fleet.until(run_id, ['completed'], 40_000);
      expect(await fleet.ledger(seeded.payment_id)).toHaveLength(1);
    }, 60_000);

    test('O23 b an api killed between the commit and the hint loses nothing: executed once', async () => {
      const seeded = await fleet.seed();
      const run_id = await fleet.request(seeded);
      await fleet.until(run_id, ['awaiting_approval']);
      const victim = await fleet.start('api', { COUNTERSTAMP_FAILPOINTS: 'decision.committed.before-hint=kill' });
      await fleet
        .through(victim)
        .approve(run_id)
        .catch(() => undefined);
      expect(await victim.ended).toBe('SIGKILL');
      await fleet.until(run_id, ['completed'], 40_000);
      expect(await fleet.ledger(seeded.payment_id)).toHaveLength(1);
    }, 60_000);

    test('O23 c a hint of a run that was never committed is dropped: no call, and the worker goes on', async () => {
      const before = fleet.sandbox.url;
      const ledger = async () =>
        ((await (await fetch(`${before}/admin/ledger`)).json()) as { entries: unknown[] }).entries.length;
      const calls = await ledger();
      const run_id = newRunId();
      const queue = openHintQueue(await queueSettings(), { onError: () => undefined });
      try {
        expect(await queue.hint('execute', { run_id, revision: 6 })).toBe('queued');
        await poll(async () => (await jobsOf(run_id)) === 0, 20_000, 'the job was not taken');
      } finally {
        await queue.close();
      }
      expect(await ledger()).toBe(calls);
      const seeded = await fleet.seed();
      const next = await fleet.request(seeded);
      await fleet.approve(next);
      await fleet.until(next, ['completed']);
    });

    async function queueSettings(): Promise<Parameters<typeof openHintQueue>[0]> {
      if (redis === undefined) return { backend: 'postgres', url: ownerUrl() };
      const client = new Redis(redis.url);
      try {
        const [key = ''] = await client.keys('*:execute:meta');
        return { backend: 'redis', url: redis.url, prefix: /^\{(.+):execute\}:execute:meta$/.exec(key)?.[1] ?? '' };
      } finally {
        client.disconnect();
      }
    }

    async function jobsOf(run_id: RunId): Promise<number> {
      if (redis === undefined) {
        return (await fleet.owner`select from bullmq.job where data ->> 'run_id' = ${run_id}`).length;
      }
      const client = new Redis(redis.url);
      try {
        return (await client.keys(`*-${run_id}-*`)).length;
      } finally {
        client.disconnect();
      }
    }

    test('O23 d a queue wiped under five approved runs: each is queued again from Postgres and executed once', async () => {
      const seeds = await Promise.all(Array.from({ length: 5 }, () => fleet.seed()));
      const runs = await Promise.all(seeds.map((seeded) => fleet.request(seeded)));
      await withoutExecutor(async () => {
        for (const run_id of runs) await fleet.approve(run_id);
        await Promise.all(runs.map((run_id) => fleet.until(run_id, sufficient)));
        if (redis === undefined) await fleet.owner`delete from bullmq.job`;
        else {
          const client = new Redis(redis.url);
          await client.flushall();
          client.disconnect();
        }
      });
      for (const run_id of runs) await fleet.until(run_id, ['completed'], 40_000);
      for (const { payment_id } of seeds) expect(await fleet.ledger(payment_id)).toHaveLength(1);
    }, 90_000);
  });
});
