import { digestOf, type HotRow, type RetryGrounds, type RunId, type Store } from '@counterstamp/manifest-core';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import {
  type DispatchChange,
  newRun,
  type StoreFixture,
  settableClock,
  storeFixture,
  TEST_ROLE_PREFIX,
  TEST_SECRET,
  testIds,
} from '../../../testing/store-fixture.ts';
import type { SupportCommit, VerdictCommit } from './api-store.ts';
import { connectForLease, type Sql } from './connection.ts';
import { endInstance, listInstances, takeLease } from './instances.ts';
import type { Principal } from './principal.ts';
import { serviceUrl } from './roles.ts';
import { createWorkerStore } from './worker-store.ts';

/** Dispatch and recovery as the database itself judges them (protocol.md), whatever a worker believes. */
const SETTLE_MS = 2_000;
const PAUSE_MS = 500;
const GROUNDS: Omit<RetryGrounds, 'observed_at'> = {
  settle_ms: SETTLE_MS,
  retention_ms: 23 * 3_600_000,
  reserve_ms: 3_700,
  expiry_margin_ms: 1_200,
  not_sent_retries_max: 5,
};
const RETRY = { retention_ms: GROUNDS.retention_ms, reserve_ms: GROUNDS.reserve_ms };
const DOUBT = { stop_reason: { code: 'external_result_uncertain' as const, message: 'm' } };
/** How long a test waits for a signal, on a machine that others use as well. */
const SOON = { timeout: 10_000, interval: 20 };
const ABSENT = { kind: 'absent' as const, provider_ref: null, body: {} };

let db: StoreFixture;
let clock: Awaited<ReturnType<typeof settableClock>>;
let ada: Principal;
let bea: Principal;
const leases: Sql[] = [];

beforeAll(async () => {
  db = await storeFixture(18);
  clock = await settableClock(db);
  ada = await db.principal('operator', 'ada');
  bea = await db.principal('operator', 'bea');
});
// Every test begins at the true time, standing still at a whole millisecond.
beforeEach(async () => {
  await db.owner`delete from public.test_clock`;
  await clock.advanceMs(0);
});
afterAll(async () => {
  await Promise.all(leases.map((sql) => sql.end({ timeout: 1 })));
  await db.close();
});

const uuid = (run_id: RunId) => run_id.slice(4);
const nowOf = async () => (await db.owner<{ now: string }[]>`select cs.iso(cs.clock()) as now`)[0]?.now ?? '';
const plusMs = (instant: string, ms: number) => new Date(Date.parse(instant) + ms);
const manifestOf = async (run_id: RunId) => {
  const loaded = await db.stores.preflight.load(run_id);
  if (loaded === undefined) throw new Error('no run');
  return loaded.manifest;
};
const deadlineOf = async (run_id: RunId) => (await manifestOf(run_id)).attempts.at(-1)?.call_deadline ?? '';
const storeOf = (instance_id: string): Store =>
  createWorkerStore(db.serviceSql.executor, { instance_id, ids: testIds, process: { host: 'here', pid: 1 } });

type Closed = 'succeeded' | 'not_sent' | 'uncertain';
interface Doubted {
  row: HotRow;
  attempt_id: string;
}
interface Wanted extends DispatchChange {
  status?: Closed;
  response?: { class: string; reason: string; afterMs?: number };
  lifeMs?: number;
  resource?: string;
  approvals?: number;
}

/** Dispatches the row and closes the attempt: the run is in doubt, or the verifier's. */
async function sent(row: HotRow, { status = 'uncertain', response, ...change }: Wanted = {}): Promise<Doubted> {
  const dispatched = await db.dispatch(row, change);
  if (dispatched.kind !== 'committed') throw new Error(`not dispatched: ${JSON.stringify(dispatched)}`);
  const attempt_id = (await manifestOf(row.run_id)).attempts.at(-1)?.attempt_id ?? '';
  const attempt_outcome = { attempt_id, status, provider_ref: null, response: response ?? null };
  const move = (
    on: 'effect_accepted' | 'nothing_sent' | 'outcome_uncertain',
    to: 'verifying' | 'needs_reconciliation',
  ) => db.move('executor', dispatched.row, on, to, { attempt_outcome, ...(to === 'verifying' ? {} : DOUBT) });
  if (status === 'succeeded') return { row: await move('effect_accepted', 'verifying'), attempt_id };
  return {
    row: await move(status === 'not_sent' ? 'nothing_sent' : 'outcome_uncertain', 'needs_reconciliation'),
    attempt_id,
  };
}
async function doubted(wanted: Wanted = {}): Promise<Doubted> {
  const { lifeMs = 60_000, resource, approvals = 1 } = wanted;
  let row = await db.toAwaitingApproval({}, { lifeMs, approvals, ...(resource === undefined ? {} : { resource }) });
  for (const name of ['one', 'two'].slice(0, approvals))
    row = await db.approve(row, await db.principal('approver', name));
  return await sent(row, wanted);
}
/** To the moment at which an absence observed counts for the last attempt, and `ms` beyond. */
async function settle(run_id: RunId, ms = 0): Promise<void> {
  await clock.set(plusMs(await deadlineOf(run_id), SETTLE_MS + ms));
}
async function record(row: HotRow, change: Partial<RetryGrounds> = {}) {
  const retry_grounds = { ...GROUNDS, observed_at: await nowOf(), ...change };
  return await db.stores.reconciler.commitStage({
    run_id: row.run_id,
    expected: row.revision,
    from: row.state,
    on: 'retry_recorded',
    to: 'needs_reconciliation',
    facts: { observation: ABSENT, retry_grounds },
    wake_in_ms: 3_000,
  });
}
const resend = (row: HotRow, change: Partial<RetryGrounds> = {}) =>
  db.move('reconciler', row, 'resend_recorded', 'needs_reconciliation', {
    retry_grounds: { ...GROUNDS, observed_at: null, ...change },
  });
/** A run in doubt whose retry the reconciler recorded at settle. */
async function retryable(wanted: Wanted = {}): Promise<Doubted> {
  const { row, attempt_id } = await doubted(wanted);
  await settle(row.run_id);
  const recorded = await record(row);
  if (recorded.kind !== 'committed') throw new Error('the retry was not recorded');
  return { row: recorded.row, attempt_id };
}
const applied = ({ row, attempt_id }: Doubted, provider_ref: string | null = 're_1') =>
  db.stores.executor.appendEvidence({ run_id: row.run_id, attempt_id, applied: true, provider_ref, body: {} });
const retry = (row: HotRow, change: DispatchChange = {}) => db.dispatch(row, { retry: RETRY, ...change });

/** Sessions of this database that wait for a lock in a call of this function. */
const waiting = async (name: string) =>
  (
    await db.owner`select 1 from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock' and query like ${`%cs.${name}(%`}`
  ).length;
/** Holds a lock in a transaction of its own until `release`. */
async function holding(
  lock: (tx: Awaited<ReturnType<Sql['reserve']>>) => PromiseLike<unknown>,
): Promise<{ release(): Promise<void> }> {
  const tx = await db.owner.reserve();
  await tx`begin`;
  await lock(tx);
  return {
    async release() {
      await tx`commit`;
      tx.release();
    },
  };
}
/** Takes an instance's session lease on a connection of its own. */
async function leaseOf(instance_id: string): Promise<{ end(): Promise<void> }> {
  const url = serviceUrl(db.url, 'executor', TEST_SECRET, TEST_ROLE_PREFIX);
  const sql = connectForLease(url, { applicationName: 'test-lease', onClose: () => undefined });
  leases.push(sql);
  expect(await takeLease(sql, instance_id, { host: 'here', pid: 1 })).toBe(true);
  return {
    async end() {
      await sql.end({ timeout: 1 });
      const free = async () => (await instanceOf(instance_id))?.lease;
      await expect.poll(free, SOON).toBe('free');
    },
  };
}
const instanceOf = async (instance_id: string) =>
  (await listInstances(db.owner, { limit: 1_000 })).find((instance) => instance.instance_id === instance_id);
const claim = (sweep_grace_ms = 500) =>
  db.stores.reconciler.claimDue({
    limit: 500,
    rehint_min_ms: 3_000,
    rehint_max_ms: 12_000,
    sweep_grace_ms,
    lease_loss_ms: 1_000,
  });
const claimed = async (run_id: RunId, graceMs?: number) =>
  (await claim(graceMs)).due.find((item) => item.row.run_id === run_id);

describe('a retry after an absence is recorded', () => {
  test('once nothing was seen at settle: allowed, counted, and the run stays in doubt', async () => {
    const { row } = await doubted();
    await settle(row.run_id);
    const recorded = await record(row);
    expect(recorded).toMatchObject({ kind: 'committed', row: { state: 'needs_reconciliation', retry_allowed: true } });
    expect((await manifestOf(row.run_id)).counters).toMatchObject({ look_ups: 1, attempts: 1 });
  });

  test.each<[string, number, number, 'committed' | 'CS004']>([
    ['observed at settle', 10, 0, 'committed'],
    ['observed a millisecond before settle: it proves nothing', 10, -1, 'CS004'],
    ['observed long before settle, whatever the time is now', 50_000, -3_000, 'CS004'],
    ['observed a millisecond in the future: nobody can have seen that', 0, 1, 'CS004'],
  ])('%s', async (_, nowMs, observedMs, expected) => {
    const { row } = await doubted();
    await settle(row.run_id, nowMs);
    const observed_at = plusMs(await deadlineOf(row.run_id), SETTLE_MS + observedMs).toISOString();
    if (expected === 'committed') expect(await record(row, { observed_at })).toMatchObject({ kind: expected });
    else await expect(record(row, { observed_at })).rejects.toMatchObject({ code: expected });
  });

  test('counted from the last call deadline of an attempt that may have left', async () => {
    const { row } = await doubted({ status: 'not_sent' });
    await clock.advanceMs(30_000);
    const second = await sent(await resend(row), { retry: RETRY });
    const observed_at = plusMs(await deadlineOf(row.run_id), SETTLE_MS).toISOString();
    await settle(row.run_id, 1_000);
    await expect(record(second.row, { observed_at: plusMs(observed_at, -1).toISOString() })).rejects.toMatchObject({
      code: 'CS004',
    });
    expect(await record(second.row, { observed_at })).toMatchObject({ kind: 'committed' });
  });

  test.each<[string, Partial<RetryGrounds>]>([
    ['without a look', { observed_at: null }],
    ['to a target without a key', { retention_ms: null }],
  ])('never %s', async (_, change) => {
    const { row } = await doubted();
    await settle(row.run_id);
    await expect(record(row, change)).rejects.toMatchObject({ code: 'CS004' });
  });

  test('only while the key is known until the retry has arrived, counted from the first start: later it is a lost swap', async () => {
    const { row } = await doubted();
    await settle(row.run_id);
    // The first attempt began 2 s before its deadline.
    const least = 2_000 + SETTLE_MS + GROUNDS.reserve_ms;
    expect(await record(row, { retention_ms: least })).toEqual({ kind: 'stale_revision' });
    expect(await record(row, { retention_ms: least + 1 })).toMatchObject({ kind: 'committed' });
  });

  test('only while the approval lives beyond its margin: later it is a lost swap', async () => {
    const { row } = await doubted({ lifeMs: 20_000 });
    const expires = (await manifestOf(row.run_id)).approval?.expires_at ?? '';
    await clock.set(plusMs(expires, -GROUNDS.expiry_margin_ms));
    expect(await record(row)).toEqual({ kind: 'stale_revision' });
    await clock.set(plusMs(expires, -GROUNDS.expiry_margin_ms - 1));
    expect(await record(row)).toMatchObject({ kind: 'committed' });
  });

  test('never against evidence of the effect: it is a lost swap, so that the worker sees it', async () => {
    const run = await doubted();
    expect(await applied(run)).toBe('appended');
    await settle(run.row.run_id);
    expect(await record(run.row)).toEqual({ kind: 'stale_revision' });
    const accepted = await doubted({ status: 'succeeded' });
    const lost = await db.move('verifier', accepted.row, 'verification_failed', 'needs_reconciliation', {
      observation: { kind: 'not_found', provider_ref: null, body: {} },
      stop_reason: { code: 'verification_not_found', message: 'm' },
    });
    await settle(lost.run_id);
    expect(await record(lost)).toEqual({ kind: 'stale_revision' });
  });

  test('never for a third send, and never after one was refused', async () => {
    const twice = await sent((await retryable()).row, { retry: RETRY });
    await settle(twice.row.run_id);
    await expect(record(twice.row)).rejects.toThrow('retries_used_up');
    const { row } = await retryable();
    const refused = await db.move('executor', row, 'retry_refused', 'needs_reconciliation', DOUBT);
    expect(refused.retry_allowed).toBe(false);
    expect((await manifestOf(row.run_id)).counters.retries_refused).toBe(1);
    await expect(record(refused)).rejects.toThrow('refused_before');
  });

  test('before settle only where the answer itself permitted it, and only after the time that it named', async () => {
    const permitted = await doubted({ response: { class: 'retry_safe', reason: 'rate_limited', afterMs: 500 } });
    await clock.advanceMs(499);
    await expect(record(permitted.row)).rejects.toThrow('not_settled');
    await clock.advanceMs(1);
    expect(await record(permitted.row)).toMatchObject({ kind: 'committed' });
    const other = await doubted({ response: { class: 'uncertain', reason: 'timeout', afterMs: 0 } });
    await clock.advanceMs(500);
    await expect(record(other.row)).rejects.toThrow('not_settled');
  });
});

describe('a retry after attempts of which no byte left is recorded', () => {
  test('at once and without a key, counted by its own limit', async () => {
    let { row } = await doubted({ status: 'not_sent' });
    for (const retries of [1, 2]) {
      row = await resend(row, { retention_ms: null, not_sent_retries_max: 2 });
      expect(row.retry_allowed).toBe(true);
      expect((await manifestOf(row.run_id)).counters).toMatchObject({ not_sent_retries: retries, look_ups: 0 });
      ({ row } = await sent(row, { status: 'not_sent', retry: { retention_ms: null, reserve_ms: 0 } }));
    }
    await expect(resend(row, { not_sent_retries_max: 2 })).rejects.toThrow('retries_used_up');
    const closed = await db.move('reconciler', row, 'never_sent', 'failed', {
      stop_reason: { code: 'not_sent', message: 'm' },
    });
    expect(closed.state).toBe('failed');
    expect((await manifestOf(row.run_id)).attempts).toHaveLength(3);
  });

  test('as nothing else: neither kind of retry passes for the other', async () => {
    const unsent = await doubted({ status: 'not_sent' });
    await expect(record(unsent.row)).rejects.toThrow('of another kind');
    const doubt = await doubted();
    await settle(doubt.row.run_id);
    await expect(resend(doubt.row, { observed_at: await nowOf() })).rejects.toThrow('of another kind');
  });

  test('never against evidence of the effect', async () => {
    const run = await doubted({ status: 'not_sent' });
    await applied(run);
    await expect(resend(run.row)).rejects.toThrow('lost its swap');
  });
});

describe('a retry is dispatched', () => {
  test('as an attempt of its own with the first one’s key and bytes, and a clock of its own', async () => {
    const { row } = await retryable();
    expect(await retry(row)).toMatchObject({ kind: 'committed', attempt_n: 2, budget_ms: 2_000 });
    const { attempts, ...run } = await manifestOf(row.run_id);
    const [first, second] = attempts;
    expect(second).toMatchObject({
      n: 2,
      idempotency_key: first?.idempotency_key,
      request_digest: first?.request_digest,
      action_digest: first?.action_digest,
      status: 'started',
      started_at: await nowOf(),
    });
    expect(run).toMatchObject({
      state: 'executing',
      retry_allowed: false,
      stop_reason: null,
      in_flight_key: run.resource_key,
    });
  });

  test('only as what it is: a first dispatch and a retry meet runs of their own state', async () => {
    expect(await db.dispatch((await retryable()).row)).toEqual({ kind: 'stale_revision' });
    expect(await retry(await db.toApproved())).toEqual({ kind: 'stale_revision' });
  });

  test('never unless it was recorded', async () => {
    expect(await retry((await doubted()).row)).toMatchObject({ code: 'retry_invalid', detail: 'no retry is recorded' });
  });

  test('never with other bytes or another key than the first attempt’s', async () => {
    const { row } = await retryable();
    expect(await retry(row, { request: '{"amount_minor":9900}' })).toMatchObject({
      code: 'retry_invalid',
      detail: 'the bytes are not those of the first attempt',
    });
    await expect(retry(row, { forged: { idempotency_key: 'cs-minted-anew' } })).rejects.toMatchObject({
      code: 'CS003',
    });
    const digest = (await manifestOf(row.run_id)).attempts[0]?.request_digest ?? digestOf('cs.request-bytes.v1', '');
    await expect(retry(row, { request: '{}', forged: { request_digest: digest } })).rejects.toMatchObject({
      code: 'CS003',
    });
    expect((await manifestOf(row.run_id)).attempts).toHaveLength(1);
  });

  test('never against evidence that came after it was recorded', async () => {
    const run = await retryable();
    expect(await applied(run)).toBe('appended');
    expect(await retry(run.row)).toMatchObject({ code: 'retry_invalid', detail: 'evidence_stands' });
  });

  test('never to a target without a key, nor once the key may be forgotten, counted from the first start', async () => {
    const { row } = await retryable();
    expect(await retry(row, { retry: { ...RETRY, retention_ms: null } })).toMatchObject({ detail: 'no_key' });
    const least = 2_000 + SETTLE_MS + RETRY.reserve_ms;
    expect(await retry(row, { retry: { ...RETRY, retention_ms: least } })).toMatchObject({ detail: 'key_too_old' });
    expect(await retry(row, { retry: { ...RETRY, retention_ms: least + 1 } })).toMatchObject({ kind: 'committed' });
  });

  test('never a third time, and never after a refusal, even where somebody set the flag by hand', async () => {
    const flag = ({ run_id }: HotRow) =>
      db.owner`update cs.run set retry_allowed = true where run_id = ${uuid(run_id)}::uuid`;
    const twice = await sent((await retryable()).row, { retry: RETRY });
    await settle(twice.row.run_id);
    await flag(twice.row);
    expect(await retry(twice.row)).toMatchObject({ code: 'retry_invalid', detail: 'retries_used_up' });
    const refused = await db.move('executor', (await retryable()).row, 'retry_refused', 'needs_reconciliation', DOUBT);
    await flag(refused);
    expect(await retry(refused)).toMatchObject({ code: 'retry_invalid', detail: 'refused_before' });
  });

  test('under an approval that lives and suffices now', async () => {
    const { row } = await retryable({ lifeMs: 20_000 });
    const { approval } = await manifestOf(row.run_id);
    const expires = approval?.expires_at ?? '';
    await clock.set(plusMs(expires, -1_200));
    expect(await retry(row)).toMatchObject({ kind: 'refused', code: 'expires_too_soon' });
    await clock.set(plusMs(expires, 0));
    expect(await retry(row)).toMatchObject({ kind: 'refused', code: 'approval_expired' });
    await clock.set(plusMs(expires, -1_201));
    const approver = approval?.decisions[0]?.principal_id ?? '';
    const disable = (at: Date | null) =>
      db.owner`update cs.principal set disabled_at = ${at?.toISOString() ?? null} where principal_id = ${approver}`;
    await disable(plusMs(expires, -10_000));
    expect(await retry(row)).toMatchObject({ kind: 'refused', code: 'decisions_insufficient' });
    await disable(null);
    expect(await retry(row)).toMatchObject({ kind: 'committed' });
  });

  test('of the stored action that was approved, byte for byte', async () => {
    const { row } = await retryable();
    const forge = (from: string, to: string) =>
      db.owner.unsafe(`alter table cs.action disable trigger user; alter table cs.action drop constraint if exists action_digest_is_of_bytes;
        update cs.action set action_canonical = replace(action_canonical, '${from}', '${to}'), action = replace(action_canonical, '${from}', '${to}')::jsonb
         where run_id = '${uuid(row.run_id)}'; alter table cs.action enable trigger user`);
    await forge('4200', '9900');
    expect(await retry(row, { request: '{}' })).toMatchObject({ kind: 'refused' });
    const { action } = await manifestOf(row.run_id);
    expect(await retry(row, { request: action?.canonical.replace('9900', '4200') ?? '' })).toMatchObject({
      kind: 'refused',
      code: 'digest_mismatch',
    });
  });

  test('not while a hold is on or the resource is busy; neither takes the retry back', async () => {
    // A run on the same resource that was closed without its effect, and is reopened by it while the retry waits.
    const resource = 'shop_north/sandbox-payments/pay_retry';
    const first = await db.dispatch(await db.toApproved({}, { resource }));
    if (first.kind !== 'committed') throw new Error('not dispatched');
    const attempt_id = (await manifestOf(first.row.run_id)).attempts[0]?.attempt_id ?? '';
    const rejected = await db.move('executor', first.row, 'effect_rejected', 'failed', {
      attempt_outcome: { attempt_id, status: 'rejected', provider_ref: null, response: {} },
      stop_reason: { code: 'effect_rejected', message: 'm' },
    });
    const { row } = await retryable({ resource });
    await db.api.setHold(ada, 'sandbox-payments', 'test');
    expect(await retry(row)).toMatchObject({ kind: 'refused', code: 'on_hold' });
    await db.api.setHold(ada, 'sandbox-payments', null);
    expect(await applied({ row: rejected, attempt_id })).toBe('reopened');
    expect(await retry(row)).toMatchObject({ kind: 'refused', code: 'resource_busy' });
    expect(await manifestOf(row.run_id)).toMatchObject({
      retry_allowed: true,
      revision: row.revision,
      attempts: [{ n: 1 }],
    });
    expect(await db.stores.executor.defer(row.run_id, row.revision, 1_000)).toBe(true);
  });

  test('once, however many workers were told: the others lost their swap', async () => {
    const { row } = await retryable();
    const outcomes = await Promise.all(Array.from({ length: 8 }, () => retry(row)));
    expect(outcomes.filter((outcome) => outcome.kind === 'committed')).toHaveLength(1);
    expect(outcomes.filter((outcome) => outcome.kind === 'stale_revision')).toHaveLength(7);
  });
});

describe('an attempt without an outcome', () => {
  const overdue = async (row: HotRow) => {
    const attempt_id = (await manifestOf(row.run_id)).attempts.at(-1)?.attempt_id ?? '';
    return await db.move('reconciler', row, 'attempt_overdue', 'needs_reconciliation', {
      attempt_outcome: { attempt_id, status: 'uncertain', provider_ref: null, response: null },
      ...DOUBT,
    });
  };
  const executingBy = async (instance_id: string) => {
    const outcome = await db.dispatch(await db.toApproved(), { by: storeOf(instance_id) });
    if (outcome.kind !== 'committed') throw new Error('not dispatched');
    return outcome.row;
  };

  test('is taken over from its call deadline on, and not a millisecond earlier', async () => {
    const row = await executingBy('ins_deadline');
    await clock.set(plusMs(await deadlineOf(row.run_id), -1));
    await expect(overdue(row)).rejects.toThrow('attempt_overdue lost its swap');
    await clock.advanceMs(1);
    expect(await overdue(row)).toMatchObject({ state: 'needs_reconciliation' });
  });

  test('is claimed from its call deadline + grace on', async () => {
    const row = await executingBy('ins_grace');
    await clock.set(plusMs(await deadlineOf(row.run_id), 499));
    expect(await claimed(row.run_id)).toBeUndefined();
    await clock.advanceMs(1);
    // A sweeper that grants more leaves the outcome to its worker for as long.
    expect(await claimed(row.run_id, 501)).toMatchObject({ overdue: null });
    await clock.advanceMs(3_001);
    expect(await claimed(row.run_id)).toMatchObject({ overdue: 'attempt' });
  });

  test('is taken over early once its instance has been without its session lease for a while', async () => {
    const lease = await leaseOf('ins_killed');
    const row = await executingBy('ins_killed');
    expect(await claimed(row.run_id)).toBeUndefined();
    await expect(overdue(row)).rejects.toThrow('attempt_overdue lost its swap');
    await lease.end();
    expect(await claimed(row.run_id)).toBeUndefined(); // the loss is noted
    await clock.advanceMs(999);
    expect(await claimed(row.run_id)).toBeUndefined();
    await clock.advanceMs(1);
    const due = await claimed(row.run_id);
    expect(due).toMatchObject({ overdue: 'attempt', attempt_id: expect.stringMatching(/^att_/) });
    expect(await overdue(row)).toMatchObject({ state: 'needs_reconciliation' });
    // Only presence is concluded early: absence still waits for the call deadline and settle.
    const doubt = { ...row, state: 'needs_reconciliation' as const, revision: row.revision + 1 };
    await expect(record(doubt)).rejects.toThrow('not_settled');
  });

  test('stays with its worker when that took its lease again', async () => {
    const first = await leaseOf('ins_back');
    const row = await executingBy('ins_back');
    await first.end();
    await claim();
    await leaseOf('ins_back');
    await clock.advanceMs(1_900);
    expect(await claimed(row.run_id)).toBeUndefined();
    await expect(overdue(row)).rejects.toThrow('attempt_overdue lost its swap');
  });

  test('stays with its worker when a sweeper finds the lease held that another had missed', async () => {
    const lease = await leaseOf('ins_seen');
    const row = await executingBy('ins_seen');
    await db.owner`update cs.executor_instance set lease_lost_at = cs.clock() where instance_id = 'ins_seen'`;
    await clock.advanceMs(1_500);
    expect(await claimed(row.run_id)).toBeUndefined();
    await expect(overdue(row)).rejects.toThrow('attempt_overdue lost its swap');
    await lease.end();
  });

  test('stays with its worker until its deadline where that never held a lease', async () => {
    await storeOf('ins_plain').beat();
    const row = await executingBy('ins_plain');
    await claim();
    await clock.advanceMs(1_900);
    expect(await claimed(row.run_id)).toBeUndefined();
  });

  test('is taken over at once when the end of its instance is on record', async () => {
    const lease = await leaseOf('ins_ended');
    const row = await executingBy('ins_ended');
    expect(await endInstance(db.owner, { instance_id: 'ins_ended', evidence: 'exit code 137' })).toBe('ended');
    expect(await claimed(row.run_id)).toMatchObject({ overdue: 'attempt' });
    expect(await overdue(row)).toMatchObject({ state: 'needs_reconciliation' });
    await lease.end();
  });
});

describe('a sweep', () => {
  test('counts a due run whose row somebody holds, leaves it, and claims it once it is free', async () => {
    const row = await db.createRun();
    await clock.advanceMs(10_000);
    const holder = await holding((tx) => tx`select 1 from cs.run where run_id = ${uuid(row.run_id)}::uuid for update`);
    const { due, skipped } = await claim();
    expect(skipped).toBe(1);
    expect(due.map((item) => item.row.run_id)).not.toContain(row.run_id);
    await holder.release();
    const next = await claim();
    expect(next.skipped).toBe(0);
    expect(next.due.map((item) => item.row.run_id)).toContain(row.run_id);
  });

  test('works with every hint lost: what is in doubt, held back or closed comes back by its time alone', async () => {
    const { row } = await doubted();
    await clock.advanceMs(3_001);
    expect(await claimed(row.run_id)).toMatchObject({ overdue: null, row: { state: 'needs_reconciliation' } });
    const recorded = await retryable();
    await clock.advanceMs(3_001);
    expect(await claimed(recorded.row.run_id)).toMatchObject({ row: { retry_allowed: true } });
  });

  test('nothing-stuck: a run in doubt is due or parked, or it is not stored', async () => {
    const { row } = await doubted();
    const again = { observation: { kind: 'inconclusive' as const, provider_ref: null, body: {} } };
    await expect(
      db.move('reconciler', row, 'look_inconclusive', 'needs_reconciliation', again, null),
    ).rejects.toMatchObject({ constraint_name: 'run_due_or_parked' });
    const parked = await db.move(
      'reconciler',
      row,
      'parked',
      'needs_reconciliation',
      { ...again, stop_reason: { code: 'effect_not_found', message: 'm' }, parked_reason: 'effect_not_found' },
      null,
    );
    await clock.advanceMs(599_000);
    expect(await claimed(parked.run_id)).toBeUndefined();
  });

  test('nobody puts an open run to sleep for good; a closed one may rest for days, or for good', async () => {
    const wakeOf = async (run_id: RunId) => (await manifestOf(run_id)).wake_at;
    const open = await db.createRun({ run_life_ms: 86_400_000 });
    for (const ms of [null, 7_200_000]) {
      expect(await db.stores.preflight.defer(open.run_id, open.revision, ms)).toBe(true);
      expect(Date.parse((await wakeOf(open.run_id)) ?? '')).toBe(plusMs(await nowOf(), 3_600_000).getTime());
    }
    const unsent = await doubted({ status: 'not_sent' });
    const closed = await db.move('reconciler', unsent.row, 'never_sent', 'failed', {
      stop_reason: { code: 'not_sent', message: 'm' },
    });
    expect(await db.stores.reconciler.defer(closed.run_id, closed.revision, 86_400_000)).toBe(true);
    expect(await wakeOf(closed.run_id)).toBe(
      plusMs(await nowOf(), 86_400_000)
        .toISOString()
        .replace('Z', '000Z'),
    );
    expect(await db.stores.reconciler.defer(closed.run_id, closed.revision, null)).toBe(true);
    expect(await wakeOf(closed.run_id)).toBeNull();
    // Nothing is left to look at: nobody wakes it again.
    expect(await db.stores.reconciler.defer(closed.run_id, closed.revision, 1_000)).toBe(false);
  });
});

describe('an outcome', () => {
  const outcomeOf = (attempt_id: string, status: 'succeeded' | 'rejected') => ({
    attempt_outcome: { attempt_id, status, provider_ref: 're_1', response: {} },
  });
  const rejection = { stop_reason: { code: 'effect_rejected' as const, message: 'm' } };

  test('that comes after the attempt was taken over is a lost swap, and kept as evidence that forbids a retry', async () => {
    const { row, attempt_id } = await db.toExecuting();
    await clock.set(plusMs(await deadlineOf(row.run_id), 500));
    const doubt = await db.move('reconciler', row, 'attempt_overdue', 'needs_reconciliation', {
      attempt_outcome: { attempt_id, status: 'uncertain', provider_ref: null, response: null },
      ...DOUBT,
    });
    const late = db.move('executor', row, 'effect_accepted', 'verifying', outcomeOf(attempt_id, 'succeeded'));
    await expect(late).rejects.toThrow('lost its swap');
    expect(await applied({ row: doubt, attempt_id })).toBe('appended');
    await settle(row.run_id);
    expect(await record(doubt)).toEqual({ kind: 'stale_revision' });
  });

  test('that clearly rejects closes the run only when every other attempt sent nothing', async () => {
    const second = await retry((await retryable()).row);
    if (second.kind !== 'committed') throw new Error('not dispatched');
    const attempt_id = (await manifestOf(second.row.run_id)).attempts[1]?.attempt_id ?? '';
    await expect(
      db.move('executor', second.row, 'effect_rejected', 'failed', {
        ...outcomeOf(attempt_id, 'rejected'),
        ...rejection,
      }),
    ).rejects.toMatchObject({ code: 'CS003' });
    const unsent = await retry(await resend((await doubted({ status: 'not_sent' })).row));
    if (unsent.kind !== 'committed') throw new Error('not dispatched');
    const only = (await manifestOf(unsent.row.run_id)).attempts[1]?.attempt_id ?? '';
    expect(
      await db.move('executor', unsent.row, 'effect_rejected', 'failed', {
        ...outcomeOf(only, 'rejected'),
        ...rejection,
      }),
    ).toMatchObject({ state: 'failed' });
  });

  test('closes no attempt of another run', async () => {
    const [one, other] = [await db.toExecuting(), await db.toExecuting()];
    await expect(
      db.move('executor', one.row, 'effect_accepted', 'verifying', outcomeOf(other.attempt_id, 'succeeded')),
    ).rejects.toMatchObject({ code: 'CS003' });
  });
});

describe('a closed run', () => {
  test('is reopened and parked by what a later look shows: a failed one by an effect, a completed one by its undoing', async () => {
    const seen = { observation: { kind: 'found' as const, provider_ref: 're_1', body: {} } };
    const parkedBy = (code: 'late_effect_found' | 'effect_reversed') => ({
      ...seen,
      stop_reason: { code, message: 'm' },
      parked_reason: code,
    });
    const unsent = await doubted({ status: 'not_sent' });
    const failed = await db.move('reconciler', unsent.row, 'never_sent', 'failed', {
      stop_reason: { code: 'not_sent', message: 'm' },
    });
    expect(await claimed(failed.run_id)).toBeUndefined();
    await clock.advanceMs(3_001);
    expect(await claimed(failed.run_id)).toMatchObject({ overdue: null, row: { state: 'failed' } });
    const to = 'needs_reconciliation';
    expect(
      await db.move('reconciler', failed, 'late_effect_found', to, parkedBy('late_effect_found'), null),
    ).toMatchObject({ state: to, parked_reason: 'late_effect_found' });
    const { row } = await doubted({ status: 'succeeded' });
    const completed = await db.move('verifier', row, 'effect_verified', 'completed', {
      observation: { kind: 'matched', provider_ref: 're_1', body: {} },
    });
    expect(
      await db.move('reconciler', completed, 'effect_reversed', to, parkedBy('effect_reversed'), null),
    ).toMatchObject({ state: to, parked_reason: 'effect_reversed' });
  });
});

describe('evidence that an effect exists', () => {
  const closedAs = async (
    code: 'settled_with_difference' | 'settlement_failed' | 'person_absent',
    provider_ref: string,
  ) => {
    const run = await doubted();
    if (code === 'settlement_failed') {
      const verifying = await db.move('reconciler', run.row, 'effect_found', 'verifying', {
        observation: { kind: 'found', provider_ref, body: {} },
      });
      const observation = { kind: 'settlement_failed' as const, provider_ref, body: {} };
      const row = await db.move('verifier', verifying, 'settlement_failed', 'failed', {
        observation,
        stop_reason: { code, message: 'm' },
      });
      return { ...run, row };
    }
    await settle(run.row.run_id);
    await endInstance(db.owner, { instance_id: 'ins_executor', evidence: 'x', credential_rotated: true });
    await clock.advanceMs(SETTLE_MS);
    const kind = code === 'person_absent' ? 'did_not_land' : 'landed_differently';
    const outcome = await verdict(run.row, kind, { provider_ref, stop_reason: { code, message: 'm' } });
    if (outcome.row === null || outcome.result !== 'recorded') throw new Error(`verdict: ${outcome.result}`);
    return { ...run, row: outcome.row };
  };
  beforeAll(async () => {
    await db.stores.executor.beat();
  });

  test.each([
    ['settled_with_difference', 're_1', 'appended'],
    ['settled_with_difference', 're_2', 'reopened'],
    ['settlement_failed', 're_1', 'appended'],
    ['settlement_failed', 're_2', 'reopened'],
    ['person_absent', 're_1', 'reopened'],
  ] as const)('of a run closed as %s over re_1 reopens it for %s: %s', async (code, ref, result) => {
    const run = await closedAs(code, 're_1');
    expect(await applied(run, ref)).toBe(result);
    expect(await manifestOf(run.row.run_id)).toMatchObject(
      result === 'appended'
        ? { state: 'failed', revision: run.row.revision }
        : {
            state: 'needs_reconciliation',
            parked_reason: 'late_effect_found',
            stop_reason: { code: 'late_effect_found' },
          },
    );
    // Kept once per attempt and kind, whatever it said.
    expect(await applied(run, 're_3')).toBe('known');
  });

  test('waits for whoever commits on the run: a veto is never written beside the commit that it forbids', async () => {
    const run = await retryable();
    const holder = await holding(
      (tx) => tx`select 1 from cs.run where run_id = ${uuid(run.row.run_id)}::uuid for no key update`,
    );
    const appending = applied(run);
    await expect.poll(() => waiting('append_evidence'), SOON).toBe(1);
    await holder.release();
    expect(await appending).toBe('appended');
  });

  test('needs the attempt that it speaks about', async () => {
    const [one, other] = [await doubted(), await doubted()];
    await expect(applied({ row: one.row, attempt_id: other.attempt_id })).rejects.toMatchObject({ code: 'CS003' });
  });
});

const EFFECT = { amount_minor: 4100 };
const EFFECT_DIGEST = digestOf('cs.observed-effect.v1', JSON.stringify(EFFECT));

async function verdict(
  row: HotRow,
  kind: VerdictCommit['verdict'],
  change: Partial<VerdictCommit> = {},
  who: Principal = ada,
) {
  const closes = kind === 'did_not_land' || kind === 'landed_differently';
  return await db.api.verdict(who, {
    run_id: row.run_id,
    expected: row.revision,
    verdict: kind,
    evidence: 'looked in the provider’s dashboard',
    observed_at: await nowOf(),
    provider_ref: null,
    effect: kind === 'landed_differently' ? EFFECT : null,
    effect_digest: kind === 'landed_differently' ? EFFECT_DIGEST : null,
    settle_ms: SETTLE_MS,
    pause_ms: PAUSE_MS,
    stop_reason: closes
      ? { code: kind === 'did_not_land' ? 'person_absent' : 'settled_with_difference', message: 'm' }
      : null,
    wake_in_ms: 3_000,
    ...change,
  });
}
const support = (row: HotRow, kind: SupportCommit['kind'], who: Principal = bea, change: Partial<SupportCommit> = {}) =>
  db.api.support(who, {
    run_id: row.run_id,
    expected: row.revision,
    kind,
    effect_digest: kind === 'confirm_difference' ? EFFECT_DIGEST : null,
    reason: 'I looked as well',
    ...change,
  });

describe('a person’s verdict', () => {
  /** A run in doubt by an instance of its own, at settle; `fenced` beyond any doubt unless changed. */
  let instances = 0;
  const byOwnInstance = async (
    fence: { ended?: boolean; beatOld?: boolean; leaseFree?: boolean; rotated?: boolean } = {},
    wanted: Wanted = {},
  ) => {
    const { ended = true, beatOld = true, leaseFree = true, rotated = false } = fence;
    const instance_id = `ins_own_${++instances}`;
    const lease = await leaseOf(instance_id);
    const run = await doubted({ ...wanted, by: storeOf(instance_id) });
    // A process ends right after its send, so that a look at settle covers its end too; one with a young heartbeat ends at settle.
    if (!beatOld) {
      await settle(run.row.run_id);
      await storeOf(instance_id).beat();
    }
    if (leaseFree) await lease.end();
    if (ended) await endInstance(db.owner, { instance_id, evidence: 'exit code 137' });
    if (rotated)
      await db.api.fence(ada, { instance_id, evidence: 'key rotated', credential_rotated: true, pause_ms: PAUSE_MS });
    await settle(run.row.run_id);
    return { ...run, instance_id };
  };

  test('“did not land” closes the run, with everything that it rests on on record', async () => {
    const { row } = await byOwnInstance();
    const outcome = await verdict(row, 'did_not_land');
    expect(outcome).toMatchObject({ result: 'recorded', row: { state: 'failed', revision: row.revision + 1 } });
    expect(await manifestOf(row.run_id)).toMatchObject({
      stop_reason: { code: 'person_absent' },
      in_flight_key: null,
      wake_at: expect.any(String),
      outcome: { kind: 'person', body: { verdict: 'did_not_land', evidence: 'looked in the provider’s dashboard' } },
    });
    expect((await db.api.events('shop_north', row.run_id))?.at(-1)?.actor).toBe(`principal/${ada.principal_id}`);
  });

  test('“landed” leads to the verifier with its waits anew, never to completed', async () => {
    const { row } = await doubted();
    await db.owner`update cs.run set verification_waits = 11 where run_id = ${uuid(row.run_id)}::uuid`;
    expect(await verdict(row, 'landed', { provider_ref: 're_1', observed_at: null })).toMatchObject({
      result: 'recorded',
      row: { state: 'verifying' },
    });
    expect((await manifestOf(row.run_id)).counters.verification_waits).toBe(0);
  });

  test('“still unknown” parks the run and takes a recorded retry back; “look again” hands it to the reconciler', async () => {
    const { row } = await retryable();
    const parked = await verdict(row, 'still_unknown');
    expect(parked.row).toMatchObject({
      parked_reason: 'external_result_uncertain',
      retry_allowed: false,
      wake_at: null,
    });
    const again = await verdict(parked.row ?? row, 'look_again');
    expect(again.row).toMatchObject({
      state: 'needs_reconciliation',
      parked_reason: null,
      wake_at: expect.any(String),
    });
  });

  describe('is refused, changes nothing and leaves an audit event:', () => {
    const late = async (row: HotRow, ms: number) => plusMs(await deadlineOf(row.run_id), SETTLE_MS + ms).toISOString();
    test.each<[string, string, () => Promise<[HotRow, VerdictCommit['verdict'], Partial<VerdictCommit>?, Principal?]>]>(
      [
        [
          'by somebody who is no operator',
          'role_missing',
          async () => [(await byOwnInstance()).row, 'landed', {}, await db.principal('approver')],
        ],
        ['on a run that is not in doubt', 'not_in_doubt', async () => [(await db.toExecuting()).row, 'landed']],
        [
          'on a revision that the person did not see',
          'stale_revision',
          async () => {
            const { row } = await byOwnInstance();
            return [{ ...row, revision: row.revision - 1 }, 'landed'];
          },
        ],
        [
          'observed in the future',
          'observed_in_future',
          async () => {
            const { row } = await byOwnInstance();
            return [row, 'did_not_land', { observed_at: await late(row, 1) }];
          },
        ],
        [
          '“did not land” observed a millisecond before settle',
          'not_settled',
          async () => {
            const { row } = await byOwnInstance();
            return [row, 'did_not_land', { observed_at: await late(row, -1) }];
          },
        ],
        [
          '“did not land” without the time of the look',
          'not_settled',
          async () => [(await byOwnInstance()).row, 'did_not_land', { observed_at: null }],
        ],
        [
          '“did not land” against evidence of the effect',
          'evidence_stands',
          async () => {
            const run = await byOwnInstance();
            await applied(run);
            return [run.row, 'did_not_land'];
          },
        ],
        [
          '“landed differently” by one person where two must approve',
          'second_person_needed',
          async () => [(await doubted({ approvals: 2 })).row, 'landed_differently'],
        ],
      ],
    )('%s: %s', async (_, result, arrange) => {
      const [row, kind, change, who] = await arrange();
      const before = await manifestOf(row.run_id);
      expect(await verdict(row, kind, change, who)).toMatchObject({ result });
      expect(await manifestOf(row.run_id)).toEqual(before);
      const audits =
        await db.owner`select code from cs.audit_event where run_id = ${uuid(row.run_id)}::uuid and what = 'verdict'`;
      expect(audits.map((audit) => audit.code)).toEqual([result]);
    });

    test('a run of another tenant does not exist', async () => {
      const { row } = await doubted();
      const stranger = await db.principal('operator', 'stranger', 'shop_south');
      expect(await verdict(row, 'landed', {}, stranger)).toEqual({ result: 'run_not_found', detail: null, row: null });
      expect(await support(row, 'waive_fencing', stranger)).toBe('run_not_found');
    });

    test('the person is told what is missing: when it settles, what the revision is, whose end is open, what to confirm', async () => {
      const { row, instance_id } = await byOwnInstance({ ended: false });
      const settles = await nowOf();
      const early = plusMs(settles, -1).toISOString();
      expect(await verdict(row, 'did_not_land', { observed_at: early })).toMatchObject({ detail: settles });
      expect(await verdict(row, 'did_not_land')).toMatchObject({ result: 'instance_not_fenced', detail: instance_id });
      expect(await verdict(row, 'landed', { expected: 1 })).toMatchObject({ detail: String(row.revision) });
      const two = await doubted({ approvals: 2 });
      expect(await verdict(two.row, 'landed_differently')).toMatchObject({ detail: EFFECT_DIGEST });
    });
  });

  describe('“did not land” while an instance may still send:', () => {
    test.each<[string, Parameters<typeof byOwnInstance>[0], 'recorded' | 'instance_not_fenced']>([
      ['its end is recorded, its heartbeat old, its lease free', {}, 'recorded'],
      ['nobody recorded its end', { ended: false }, 'instance_not_fenced'],
      ['its heartbeat is younger than Z', { beatOld: false }, 'instance_not_fenced'],
      ['it holds its session lease', { leaseFree: false }, 'instance_not_fenced'],
      [
        'the credential that it could send with was rotated',
        { ended: false, leaseFree: false, rotated: true },
        'recorded',
      ],
    ])('%s: %s', async (_, fence, result) => {
      const { row } = await byOwnInstance(fence);
      expect(await verdict(row, 'did_not_land')).toMatchObject({ result });
    });

    test('its heartbeat is exactly as old as Z: fenced', async () => {
      const { row, instance_id } = await byOwnInstance({ ended: false, beatOld: false });
      await endInstance(db.owner, { instance_id, evidence: 'x' });
      await clock.advanceMs(PAUSE_MS - 1);
      expect(await verdict(row, 'did_not_land')).toMatchObject({ result: 'instance_not_fenced' });
      await clock.advanceMs(1);
      // Now only the look is missing that comes long enough after the end.
      expect(await verdict(row, 'did_not_land')).toMatchObject({ result: 'not_settled' });
      await clock.advanceMs(SETTLE_MS - PAUSE_MS);
      expect(await verdict(row, 'did_not_land')).toMatchObject({ result: 'recorded' });
    });

    test.each([
      ['the end of an instance', false],
      ['the rotation of its credential', true],
    ])('a look right after %s is not settled; one at that time + settle is', async (_, credential_rotated) => {
      const { row, instance_id } = await byOwnInstance({ ended: false });
      const end = await nowOf();
      await endInstance(db.owner, { instance_id, evidence: 'x', credential_rotated });
      await clock.advanceMs(SETTLE_MS);
      const settles = await nowOf();
      const microsecondBefore = plusMs(settles, -1).toISOString().replace('Z', '999Z');
      for (const observed_at of [end, microsecondBefore])
        expect(await verdict(row, 'did_not_land', { observed_at })).toMatchObject({
          result: 'not_settled',
          detail: settles,
        });
      expect(await verdict(row, 'did_not_land', { observed_at: settles })).toMatchObject({ result: 'recorded' });
    });

    test('of two instances the later end counts, whichever sent last', async () => {
      const first = await byOwnInstance({ ended: false });
      const recorded = await record(first.row);
      if (recorded.kind !== 'committed') throw new Error('not recorded');
      const lease = await leaseOf('ins_sent_second');
      const second = await sent(recorded.row, { retry: RETRY, by: storeOf('ins_sent_second') });
      await lease.end();
      await endInstance(db.owner, { instance_id: 'ins_sent_second', evidence: 'exit code 137' });
      await settle(second.row.run_id);
      await endInstance(db.owner, { instance_id: first.instance_id, evidence: 'exit code 137' });
      const end = await nowOf();
      expect(await verdict(second.row, 'did_not_land')).toMatchObject({
        result: 'not_settled',
        detail: plusMs(end, SETTLE_MS).toISOString().replace('Z', '000Z'),
      });
      await clock.advanceMs(SETTLE_MS);
      expect(await verdict(second.row, 'did_not_land')).toMatchObject({ result: 'recorded' });
    });

    test('a waiver covers the time after an end as well', async () => {
      const { row, instance_id } = await byOwnInstance({ ended: false });
      await endInstance(db.owner, { instance_id, evidence: 'x' });
      expect(await verdict(row, 'did_not_land')).toMatchObject({ result: 'not_settled' });
      expect(await support(row, 'waive_fencing')).toBe('recorded');
      expect(await verdict(row, 'did_not_land')).toMatchObject({ result: 'recorded' });
    });

    test('nobody knows the instance: not fenced; and no byte ever left: nothing to fence', async () => {
      const unknown = await doubted({ by: storeOf('ins_never_seen') });
      await settle(unknown.row.run_id);
      expect(await verdict(unknown.row, 'did_not_land')).toMatchObject({
        result: 'instance_not_fenced',
        detail: 'ins_never_seen',
      });
      const unsent = await doubted({ by: storeOf('ins_never_seen'), status: 'not_sent' });
      expect(await verdict(unsent.row, 'did_not_land')).toMatchObject({ result: 'recorded' });
    });

    test('a second person may take that on themselves, the first may not do so alone', async () => {
      const { row } = await byOwnInstance({ ended: false });
      expect(await support(row, 'waive_fencing', ada)).toBe('recorded');
      expect(await verdict(row, 'did_not_land')).toMatchObject({ result: 'instance_not_fenced' });
      expect(await support(row, 'waive_fencing', bea)).toBe('recorded');
      expect(await support(row, 'waive_fencing', bea)).toBe('recorded'); // twice is once
      expect(await verdict(row, 'did_not_land')).toMatchObject({ result: 'recorded' });
    });

    test('a waiver does not do away with settle or evidence, and ends with the person’s account', async () => {
      const leaver = await db.principal('operator', 'leaver');
      const run = await byOwnInstance({ ended: false });
      expect(await support(run.row, 'waive_fencing', leaver)).toBe('recorded');
      const early = plusMs(await nowOf(), -1).toISOString();
      expect(await verdict(run.row, 'did_not_land', { observed_at: early })).toMatchObject({ result: 'not_settled' });
      await db.owner`update cs.principal set disabled_at = cs.clock() where principal_id = ${leaver.principal_id}`;
      expect(await verdict(run.row, 'did_not_land')).toMatchObject({ result: 'instance_not_fenced' });
      await support(run.row, 'waive_fencing', bea);
      await applied(run);
      expect(await verdict(run.row, 'did_not_land')).toMatchObject({ result: 'evidence_stands' });
    });

    test('another attempt voids a waiver: it was about the ones before', async () => {
      const first = await byOwnInstance({ ended: false });
      expect(await support(first.row, 'waive_fencing')).toBe('recorded');
      const recorded = await record(first.row);
      if (recorded.kind !== 'committed') throw new Error('not recorded');
      const second = await sent(recorded.row, { retry: RETRY, by: storeOf(first.instance_id) });
      await settle(second.row.run_id);
      expect(await verdict(second.row, 'did_not_land')).toMatchObject({ result: 'instance_not_fenced' });
      expect(await support(second.row, 'waive_fencing')).toBe('recorded');
      expect(await verdict(second.row, 'did_not_land')).toMatchObject({ result: 'recorded' });
    });
  });

  describe('“landed differently”', () => {
    test('is one person’s to say where one person approves, and records the effect', async () => {
      const { row } = await doubted();
      expect(await verdict(row, 'landed_differently', { provider_ref: 're_9' })).toMatchObject({
        result: 'recorded',
        row: { state: 'failed' },
      });
      expect((await manifestOf(row.run_id)).outcome).toMatchObject({ provider_ref: 're_9', body: { effect: EFFECT } });
    });

    test('needs a second person’s confirmation of this very effect where two approve', async () => {
      const { row } = await doubted({ approvals: 2 });
      const refused = { result: 'second_person_needed' };
      const another = digestOf('cs.body.v1', 'another effect');
      await support(row, 'confirm_difference', ada);
      expect(await verdict(row, 'landed_differently')).toMatchObject(refused);
      await support(row, 'confirm_difference', bea, { effect_digest: another });
      expect(await verdict(row, 'landed_differently')).toMatchObject(refused);
      await support(row, 'waive_fencing', bea, { effect_digest: EFFECT_DIGEST });
      expect(await verdict(row, 'landed_differently')).toMatchObject(refused);
      await support(row, 'confirm_difference', bea);
      expect(await verdict(row, 'landed_differently')).toMatchObject({ result: 'recorded' });
    });
  });

  test.each<[string, string, () => Promise<[HotRow, Principal?]>]>([
    ['by no operator', 'role_missing', async () => [(await doubted()).row, await db.principal('approver')]],
    ['on a run that is not in doubt', 'not_in_doubt', async () => [(await db.toExecuting()).row]],
    [
      'on a revision that was not seen',
      'stale_revision',
      async () => {
        const { row } = await doubted();
        return [{ ...row, revision: row.revision - 1 }];
      },
    ],
  ])('a second person’s support %s is refused and kept as an audit event: %s', async (_, result, arrange) => {
    const [row, who] = await arrange();
    expect(await support(row, 'waive_fencing', who)).toBe(result);
    const kept =
      await db.owner`select code from cs.audit_event where run_id = ${uuid(row.run_id)}::uuid and what = 'waive_fencing'`;
    expect(kept.map((audit) => audit.code)).toEqual([result]);
    expect(await db.owner`select 1 from cs.verdict_support where run_id = ${uuid(row.run_id)}::uuid`).toHaveLength(0);
  });

  test('a support is never taken back nor changed', async () => {
    const { row } = await doubted();
    await support(row, 'waive_fencing');
    await expect(db.owner`delete from cs.verdict_support`).rejects.toMatchObject({ code: 'CS006' });
    await expect(db.owner`update cs.verdict_support set principal_id = 'x'`).rejects.toMatchObject({ code: 'CS006' });
  });

  test('an operator who lost the role is none', async () => {
    const former = await db.principal('operator', 'former');
    await db.owner`update cs.principal set roles = '{}' where principal_id = ${former.principal_id}`;
    expect(await verdict((await doubted()).row, 'landed', {}, former)).toMatchObject({ result: 'role_missing' });
  });
});

describe('the end of an instance', () => {
  const fence = (instance_id: string, credential_rotated = false, who: Principal = ada) =>
    db.api.fence(who, { instance_id, evidence: 'host is off', credential_rotated, pause_ms: PAUSE_MS });

  test('is told by itself, and is final: it takes no lease and beats no more', async () => {
    const lease = await leaseOf('ins_self');
    await storeOf('ins_self').endInstance();
    await lease.end();
    const told = await instanceOf('ins_self');
    expect(told).toMatchObject({ ended_by: 'self', ended_at: await nowOf() });
    await clock.advanceMs(5_000);
    await storeOf('ins_self').beat();
    expect(await takeLease(db.serviceSql.executor, 'ins_self', { host: 'here', pid: 1 })).toBe(false);
    expect(await instanceOf('ins_self')).toEqual(told);
  });

  test('is not told by another service', async () => {
    await storeOf('ins_theirs').beat();
    await expect(endInstance(db.serviceSql.reconciler, { instance_id: 'ins_theirs', evidence: 'x' })).rejects.toThrow(
      'may not do this',
    );
    await expect(endInstance(db.serviceSql.api, { instance_id: 'ins_theirs', evidence: 'x' })).rejects.toThrow(
      'may not do this',
    );
  });

  test('is told by the supervisor that saw the process exit, whatever lease and heartbeat say', async () => {
    const lease = await leaseOf('ins_seen_exit');
    expect(await endInstance(db.owner, { instance_id: 'ins_seen_exit', evidence: 'exit code 137' })).toBe('ended');
    expect(await instanceOf('ins_seen_exit')).toMatchObject({ ended_by: 'supervisor', lease: 'held' });
    await lease.end();
  });

  test('is told by an operator only without lease and without heartbeat for Z', async () => {
    const lease = await leaseOf('ins_off');
    await clock.advanceMs(PAUSE_MS);
    expect(await fence('ins_off')).toBe('instance_alive');
    await storeOf('ins_off').beat();
    await lease.end();
    await clock.advanceMs(PAUSE_MS - 1);
    expect(await fence('ins_off')).toBe('instance_alive');
    await clock.advanceMs(1);
    expect(await fence('ins_off')).toBe('ended');
    expect(await instanceOf('ins_off')).toMatchObject({ ended_by: 'operator', credential_rotated: false });
    expect(await fence('ins_off')).toBe('already_ended');
    const audits =
      await db.owner`select code from cs.audit_event where what = 'fence_instance' and detail ->> 'instance_id' = 'ins_off' order by at`;
    expect(audits.map((audit) => audit.code)).toEqual(['instance_alive', 'instance_alive', 'ended', 'already_ended']);
  });

  test('is told by an operator about a living instance once the credential was rotated, also later', async () => {
    const lease = await leaseOf('ins_rotated');
    expect(await fence('ins_rotated', true)).toBe('ended');
    expect(await instanceOf('ins_rotated')).toMatchObject({ ended_by: 'operator', credential_rotated: true });
    await lease.end();
    await endInstance(db.owner, { instance_id: 'ins_theirs', evidence: 'exit code 0' });
    expect(await fence('ins_theirs', true)).toBe('ended');
    expect(await instanceOf('ins_theirs')).toMatchObject({ ended_by: 'supervisor', credential_rotated: true });
    expect(await fence('ins_theirs', true)).toBe('already_ended');
  });

  test('is not told by somebody who is no operator, nor of an instance that nobody knows', async () => {
    expect(await fence('ins_off', true, await db.principal('approver'))).toBe('role_missing');
    expect(await fence('ins_nobody', true)).toBe('instance_unknown');
  });

  test('one session holds a lease at a time', async () => {
    const lease = await leaseOf('ins_twice');
    expect(await takeLease(db.serviceSql.executor, 'ins_twice', { host: 'there', pid: 2 })).toBe(false);
    expect(await instanceOf('ins_twice')).toMatchObject({ host: 'here', pid: 1, lease: 'held' });
    await lease.end();
  });
});

describe('a successor of a failed run', () => {
  const looked = async (
    run_id: RunId,
    change: { code?: string; observedMs?: number; by?: 'reconciler' | 'executor' } = {},
  ) => {
    const observed_at = plusMs(await deadlineOf(run_id), SETTLE_MS + (change.observedMs ?? 0)).toISOString();
    await db.stores[change.by ?? 'reconciler'].audit({
      tenant_id: 'shop_north',
      principal_id: null,
      run_id,
      what: 'closure_audit',
      code: change.code ?? 'looked',
      detail: { observed_at },
    });
  };
  const supersede = async (run_id: RunId) => {
    const requester = await db.principal('requester');
    const { request_id } = await manifestOf(run_id);
    const { kind } = await db.api.createRun({
      ...newRun(requester),
      request_id,
      supersedes: run_id,
      settle_ms: SETTLE_MS,
    });
    return kind;
  };
  const failedAs = async (status: 'rejected' | 'not_sent') => {
    const dispatched = await db.dispatch(await db.toApproved());
    if (dispatched.kind !== 'committed') throw new Error('not dispatched');
    const attempt_id = (await manifestOf(dispatched.row.run_id)).attempts[0]?.attempt_id ?? '';
    const attempt_outcome = { attempt_id, status, provider_ref: null, response: null };
    if (status === 'rejected')
      return await db.move('executor', dispatched.row, 'effect_rejected', 'failed', {
        attempt_outcome,
        stop_reason: { code: 'effect_rejected', message: 'm' },
      });
    const unsent = await db.move('executor', dispatched.row, 'nothing_sent', 'needs_reconciliation', {
      attempt_outcome,
      ...DOUBT,
    });
    return await db.move('reconciler', unsent, 'never_sent', 'failed', {
      stop_reason: { code: 'not_sent', message: 'm' },
    });
  };

  test.each<[string, Parameters<typeof looked>[1] | null, string]>([
    ['a look at settle found nothing', {}, 'created'],
    ['nobody looked, whatever time has passed', null, 'supersedes_invalid'],
    ['the look was a millisecond before settle', { observedMs: -1 }, 'supersedes_invalid'],
    ['the looks were given up', { code: 'given_up' }, 'supersedes_invalid'],
    ['somebody else than the reconciler says so', { by: 'executor' }, 'supersedes_invalid'],
    ['the look lies in the future', { observedMs: 600_000 }, 'supersedes_invalid'],
  ])('%s: %s', async (_, look, kind) => {
    const { run_id } = await failedAs('rejected');
    await settle(run_id, 60_000);
    if (look !== null) await looked(run_id, look);
    expect(await supersede(run_id)).toBe(kind);
  });

  test('needs no look where no byte ever left', async () => {
    expect(await supersede((await failedAs('not_sent')).run_id)).toBe('created');
  });
});

describe('the clock is read after the row lock:', () => {
  /** Calls while another transaction holds the run's row, and moves the time past the expiry before it lets go. */
  async function passedWhileWaiting<T>(row: HotRow, name: string, call: () => Promise<T>): Promise<T> {
    const holder = await holding((tx) => tx`select 1 from cs.run where run_id = ${uuid(row.run_id)}::uuid for update`);
    const answer = call();
    await expect.poll(() => waiting(name), SOON).toBe(1);
    await clock.advanceMs(25_000);
    await holder.release();
    return await answer;
  }

  test('a vote that waited beyond the expiry is too late, and ends the run as expired', async () => {
    const row = await db.toAwaitingApproval({}, { lifeMs: 20_000 });
    const { approval } = await manifestOf(row.run_id);
    const approver = await db.principal('approver');
    if (approval === null) throw new Error('no approval');
    const { approval_id, approval_digest, action_digest, action_revision } = approval;
    const vote = {
      run_id: row.run_id,
      approval_id,
      decision_id: testIds.id('decision'),
      decision: 'approve',
      method: 'dev_key',
      approval_digest,
      action_digest,
      action_revision,
      reason: null,
      break_glass: false,
      assertion: null,
    } as const;
    const outcome = await passedWhileWaiting(row, 'commit_decision', () => db.api.decide(approver, vote, 3_000));
    expect(outcome.result).toBe('approval_expired');
    expect(await manifestOf(row.run_id)).toMatchObject({ state: 'expired', approval: { decisions: [] } });
  });

  test('a first dispatch that waited beyond the expiry is refused', async () => {
    const row = await db.toApproved({}, { lifeMs: 20_000 });
    const outcome = await passedWhileWaiting(row, 'commit_dispatch', () => db.dispatch(row));
    expect(outcome).toMatchObject({ kind: 'refused', code: 'approval_expired' });
  });

  test('a retry that waited beyond the expiry is refused', async () => {
    const { row } = await retryable({ lifeMs: 20_000 });
    const outcome = await passedWhileWaiting(row, 'commit_dispatch', () => retry(row));
    expect(outcome).toMatchObject({ kind: 'refused', code: 'approval_expired' });
  });

  test('a retry that waited until its approval was over is not recorded', async () => {
    const { row } = await doubted({ lifeMs: 20_000 });
    await settle(row.run_id);
    const outcome = await passedWhileWaiting(row, 'commit_stage', () => record(row));
    expect(outcome).toEqual({ kind: 'stale_revision' });
  });
});

describe('a first dispatch', () => {
  test('is refused at the run’s deadline, even where somebody wrote a longer approval', async () => {
    const row = await db.toApproved();
    await db.owner.unsafe(`alter table cs.run drop constraint run_approval_within_run;
      update cs.run set run_deadline = cs.clock() + interval '5 seconds' where run_id = '${uuid(row.run_id)}'`);
    await clock.advanceMs(5_000);
    expect(await db.dispatch(row)).toMatchObject({ kind: 'refused', code: 'deadline_exceeded' });
    await clock.advanceMs(-1);
    expect(await db.dispatch(row)).toMatchObject({ kind: 'committed' });
  });

  test('one-in-flight: a second dispatch on the resource waits for the first’s commit, and is refused then', async () => {
    // The first stands still after every check and before its commit.
    await db.owner.unsafe(`create function public.stand_still() returns trigger language plpgsql as $$ begin perform pg_advisory_xact_lock_shared(4711); return new; end $$;
      create trigger stand_still before insert on cs.attempt for each row execute function public.stand_still()`);
    const resource = 'shop_north/sandbox-payments/pay_one_lock';
    const [one, two] = [await db.toApproved({}, { resource }), await db.toApproved({}, { resource })];
    const holder = await holding((tx) => tx`select pg_advisory_xact_lock(4711)`);
    const first = db.dispatch(one);
    await expect.poll(() => waiting('commit_dispatch'), SOON).toBe(1);
    const second = db.dispatch(two);
    await expect.poll(() => waiting('commit_dispatch'), SOON).toBe(2);
    await holder.release();
    expect(await first).toMatchObject({ kind: 'committed' });
    expect(await second).toMatchObject({ kind: 'refused', code: 'resource_busy' });
    await db.owner.unsafe('drop trigger stand_still on cs.attempt');
  });
});
