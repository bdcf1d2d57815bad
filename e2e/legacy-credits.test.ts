import type { RunView } from '@counterstamp/api-contract';
import type { RunId } from '@counterstamp/manifest-core';
import type { GrantEffectView, GrantLedgerEntry } from '@counterstamp/sandbox';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { Fleet } from '../testing/fleet.ts';
import { FLEET_BACKENDS, testFleet } from '../testing/test-fleet.ts';

/** Milliseconds by which the look-up lags here: below the 1,000 that the connector's contract grants, above the first looks. */
const LAG_MS = 900;
/** Z + P + V + ε of the fast profile, V being the contract's 1,000 ms. */
const SETTLE_MS = 2_700;

const parked = (run: RunView) => run.parked_reason !== null;

describe.each(FLEET_BACKENDS)('credits through a system without idempotency, on the %s queue', (backend) => {
  let fleet: Fleet;
  beforeAll(async () => {
    fleet = await testFleet(backend);
    await admin('PUT', '/admin/settings', { credits_lag_ms: LAG_MS });
  }, 90_000);
  afterAll(() => fleet?.stop(), 30_000);

  async function admin(method: string, path: string, body?: unknown): Promise<unknown> {
    const response = await fetch(`${fleet.sandbox.url}${path}`, {
      method,
      ...(body === undefined ? {} : { headers: { 'content-type': 'application/json' }, body: JSON.stringify(body) }),
    });
    if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${await response.text()}`);
    return await response.json();
  }
  const requestsOf = async (customer_id: string) =>
    ((await admin('GET', `/admin/credits/ledger?customer_id=${customer_id}`)) as { entries: GrantLedgerEntry[] })
      .entries;
  const effectsOf = async (customer_id: string) =>
    ((await admin('GET', `/admin/credits/effects?customer_id=${customer_id}`)) as { effects: GrantEffectView[] })
      .effects;

  const ask = async (seeded: { request_id: string; order_id: string }): Promise<RunId> =>
    await fleet.request(seeded, {
      workflow: 'credit',
      input: {
        order_id: seeded.order_id,
        requested_amount_minor: 4200,
        currency: 'USD',
        reason: 'the parcel was late',
        memo: 'Sorry for the delay',
      },
    });
  /** A run that one person approved, with a fault waiting for its send. */
  async function approved(fault?: unknown): Promise<{ run_id: RunId; customer_id: string }> {
    const seeded = await fleet.seed();
    const customer_id = `cus_${seeded.order_id}`;
    if (fault !== undefined) await admin('PUT', `/admin/credits/faults/${customer_id}`, fault);
    const run_id = await ask(seeded);
    await fleet.approve(run_id);
    return { run_id, customer_id };
  }
  const movesOf = async (run_id: RunId) => (await fleet.requester.runEvents(run_id)).events.map((event) => event.to);

  test('completed-means-observed: an approved credit is sent once and verified as soon as the look-up has caught up', async () => {
    const { run_id, customer_id } = await approved();
    const run = await fleet.until(run_id, ['completed']);
    const [effect, ...others] = await effectsOf(customer_id);
    expect(others).toEqual([]);
    expect(effect).toMatchObject({ amount: 4200, currency: 'USD', memo: `${run_id} Sorry for the delay` });
    expect(run.outcome).toMatchObject({ kind: 'matched', provider_ref: effect?.grant_id });
    expect(run.action?.fields).toMatchObject({ customer_id, reason: 'late_delivery', memo: 'Sorry for the delay' });
    expect(run.counters.verification_waits).toBeGreaterThan(0);
    const [request, ...more] = await requestsOf(customer_id);
    expect(more).toEqual([]);
    // The bytes that arrived are the bytes that were stored with the attempt.
    const [stored] = await fleet.owner<
      { sha256: string }[]
    >`select encode(sha256(request_bytes), 'hex') as sha256 from cs.attempt where attempt_id = ${run.attempts[0]?.attempt_id ?? ''}`;
    expect(request?.body_sha256).toBe(stored?.sha256);
  });

  test('at-most-one-effect: cut after accepting → uncertain, found only after the lag, completed; nothing is sent again', async () => {
    const { run_id, customer_id } = await approved({ kind: 'cut_after_accept' });
    const run = await fleet.until(run_id, ['completed']);
    expect(await movesOf(run_id)).toContain('needs_reconciliation');
    const [effect, ...others] = await effectsOf(customer_id);
    expect(others).toEqual([]);
    expect(run.outcome).toMatchObject({ kind: 'matched', provider_ref: effect?.grant_id });
    // At least one look came too early and concluded nothing.
    expect(run.counters.look_ups).toBeGreaterThan(0);
    const found = run.observations.find((observation) => observation.kind === 'found');
    expect(Date.parse(found?.at ?? '') - Date.parse(effect?.created_at ?? '')).toBeGreaterThanOrEqual(LAG_MS);
    expect(await requestsOf(customer_id)).toHaveLength(1);
  });

  test('cut before accepting: absence is believed only after settle, V included, and a person is asked; no hint makes a second send', async () => {
    const { run_id, customer_id } = await approved({ kind: 'cut_before_accept' });
    const run = await fleet.until(run_id, parked);
    expect(run).toMatchObject({ state: 'needs_reconciliation', parked_reason: 'effect_not_found' });
    const [attempt] = run.attempts;
    const last = run.observations.at(-1);
    expect(Date.parse(last?.at ?? '') - Date.parse(attempt?.call_deadline ?? '')).toBeGreaterThanOrEqual(SETTLE_MS);
    for (const stage of ['execute', 'reconcile'] as const) await fleet.hintAgain(stage, run);
    const another = await approved();
    await fleet.until(another.run_id, ['completed']);
    expect(await fleet.requester.getRun(run_id)).toMatchObject({ revision: run.revision, retry_allowed: false });
    expect(await requestsOf(customer_id)).toHaveLength(1);
    expect(await effectsOf(customer_id)).toEqual([]);
  });

  test.each([
    ['the answer comes after the deadline', { kind: 'hang_after_accept', hold_ms: 4_000 }],
    ['it answers 500 after accepting', { kind: 'error_after_accept' }],
    ['it answers HTML that says 200', { kind: 'html_after_accept', status: 200 }],
  ])('at-most-one-effect: %s → uncertain, found, completed', async (_, fault) => {
    const { run_id, customer_id } = await approved(fault);
    await fleet.until(run_id, ['completed']);
    expect(await movesOf(run_id)).toContain('needs_reconciliation');
    expect(await requestsOf(customer_id)).toHaveLength(1);
    expect(await effectsOf(customer_id)).toHaveLength(1);
  });

  test('booked twice without an answer → parked as ambiguous', async () => {
    const { run_id, customer_id } = await approved({ kind: 'booked_twice', cut: true });
    const run = await fleet.until(run_id, parked);
    expect(run).toMatchObject({ state: 'needs_reconciliation', parked_reason: 'effect_ambiguous' });
    expect(run.stop_reason?.message).toContain('multiple');
    expect(await requestsOf(customer_id)).toHaveLength(1);
    expect(await effectsOf(customer_id)).toHaveLength(2);
  });

  test('booked twice behind a clear answer → the verifier sees both and parks; a success of the answer alone completes nothing', async () => {
    const { run_id, customer_id } = await approved({ kind: 'booked_twice' });
    const run = await fleet.until(run_id, parked);
    expect(run).toMatchObject({ state: 'needs_reconciliation', parked_reason: 'verification_mismatch' });
    expect(run.attempts[0]?.status).toBe('succeeded');
    expect(await requestsOf(customer_id)).toHaveLength(1);
    expect(await effectsOf(customer_id)).toHaveLength(2);
  });

  test('memo lost → a lookalike, parked and never claimed', async () => {
    const { run_id, customer_id } = await approved({ kind: 'metadata_lost' });
    const run = await fleet.until(run_id, parked);
    expect(run).toMatchObject({ state: 'needs_reconciliation', parked_reason: 'effect_ambiguous' });
    expect(run.outcome).toMatchObject({ kind: 'inconclusive', provider_ref: null });
    expect(run.stop_reason?.message).toContain('lookalike');
    expect(run.attempts).toMatchObject([{ status: 'uncertain', provider_ref: null }]);
    expect(await requestsOf(customer_id)).toHaveLength(1);
    expect(await effectsOf(customer_id)).toMatchObject([{ memo: '' }]);
  });

  test('another amount booked → parked with the differing field', async () => {
    const { run_id } = await approved({ kind: 'other_amount', amount: 4100 });
    const run = await fleet.until(run_id, parked);
    expect(run.parked_reason).toBe('effect_differs');
    expect(run.stop_reason?.message).toContain('amount_minor: approved 4200, observed 4100');
  });

  test('a clear rejection → failed, no effect', async () => {
    const { run_id, customer_id } = await approved({ kind: 'reject', code: 'customer_not_found', status: 404 });
    const run = await fleet.until(run_id, ['failed']);
    expect(run.stop_reason?.code).toBe('effect_rejected');
    expect(await effectsOf(customer_id)).toEqual([]);
  });

  test('two identical credits of two runs are two effects, and each run is verified with its own', async () => {
    const seeded = await fleet.seed();
    const sibling = await fleet.seed({ order_id: seeded.order_id, payment_id: seeded.payment_id });
    const runs = [await ask(seeded), await ask(sibling)];
    for (const run_id of runs) await fleet.approve(run_id);
    const done = await Promise.all(runs.map((run_id) => fleet.until(run_id, ['completed'])));
    const effects = await effectsOf(`cus_${seeded.order_id}`);
    expect(effects).toHaveLength(2);
    for (const run of done) {
      const own = effects.find((effect) => effect.memo.startsWith(`${run.run_id} `));
      expect(run.outcome).toMatchObject({ kind: 'matched', provider_ref: own?.grant_id });
    }
    expect(await requestsOf(`cus_${seeded.order_id}`)).toHaveLength(2);
  });
});
