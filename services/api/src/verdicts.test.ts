import { canonicalJson, digestOf, PROFILES, type RunId, settleMs, stopReason } from '@counterstamp/manifest-core';
import {
  connectForLease,
  createWorkerStore,
  endInstance,
  type Principal,
  serviceUrl,
  takeLease,
} from '@counterstamp/manifest-store';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { newRunId, settableClock, TEST_ROLE_PREFIX, TEST_SECRET, testIds } from '../../../testing/store-fixture.ts';
import { type ApiFixture, apiFixture, type RunningApi, refundDoor } from '../testing/api-fixture.ts';

const SETTLE_MS = settleMs(PROFILES.fast, refundDoor.visibilityMs);
/** Past a call deadline and everything that settle grants after it. */
const SETTLED_MS = 2_000 + SETTLE_MS;

type Keyed = Principal & { key: string };
let fixture: ApiFixture;
let api: RunningApi;
let clock: Awaited<ReturnType<typeof settableClock>>;
let operator: Keyed;
let second: Keyed;

beforeAll(async () => {
  fixture = await apiFixture();
  api = await fixture.start();
  clock = await settableClock(fixture.store);
  await clock.set(new Date());
  operator = await fixture.store.principal('operator');
  second = await fixture.store.principal('operator', 'second operator');
});
afterAll(() => fixture.close());

interface Parked {
  run_id: RunId;
  revision: number;
  attempt_id: string;
  instance_id: string;
}

/** A run whose one send, by an executor of its own, has no known outcome, parked for a person. */
async function parked(approvals = 1): Promise<Parked> {
  const { store } = fixture;
  const instance_id = testIds.id('instance');
  const executor = createWorkerStore(store.serviceSql.executor, { instance_id, ids: testIds });
  store.stores.executor = executor;
  await executor.beat();
  let row = await store.toAwaitingApproval({}, { approvals });
  for (let n = 0; n < approvals; n++)
    row = await store.approve(row, await store.principal('approver', `approver ${n}`));
  const dispatched = await store.dispatch(row);
  if (dispatched.kind !== 'committed') throw new Error(`not dispatched: ${dispatched.kind}`);
  const attempt_id = (await executor.load(row.run_id))?.manifest.attempts[0]?.attempt_id ?? '';
  row = await store.move('executor', dispatched.row, 'outcome_uncertain', 'needs_reconciliation', {
    attempt_outcome: { attempt_id, status: 'uncertain', provider_ref: null, response: { class: 'uncertain' } },
    stop_reason: stopReason('effect_not_found'),
    parked_reason: 'effect_not_found',
  });
  return { run_id: row.run_id, revision: row.revision, attempt_id, instance_id };
}

/** The executor's own word, and the time after which a look covers that end. */
async function ended(instance_id: string): Promise<void> {
  await endInstance(fixture.store.serviceSql.executor, { instance_id, evidence: 'told to end' });
  await clock.advanceMs(SETTLE_MS);
}

async function say(
  { run_id, revision }: Pick<Parked, 'run_id' | 'revision'>,
  verdict: Record<string, unknown>,
  who = operator,
) {
  return await api.post(`/v1/runs/${run_id}/verdicts`, who.key, {
    revision,
    evidence: 'seen in the console',
    ...verdict,
  });
}

async function support(
  { run_id, revision }: Pick<Parked, 'run_id' | 'revision'>,
  body: Record<string, unknown>,
  who = second,
) {
  return await api.post(`/v1/runs/${run_id}/supports`, who.key, { revision, reason: 'I looked as well', ...body });
}

const view = (run_id: RunId) => api.client(operator.key).getRun(run_id);
const hintsOf = async (run_id: RunId) => {
  await api.api.drain();
  return api.hints.filter((hint) => hint.run_id === run_id);
};
/** Audit events of a run about verdicts and supports: what, code and who. */
async function auditsOf(run_id: RunId) {
  const uuid = run_id.slice('run_'.length);
  const audits = (await fixture.audits()) as { what: string; code: string; principal_id: string; run_id: string }[];
  return audits.filter((one) => one.run_id === uuid).map(({ what, code, principal_id }) => [what, code, principal_id]);
}

describe('a run in doubt', () => {
  test('says as of when it is shown, and from when on an absence counts', async () => {
    const run = await parked();
    const shown = await view(run.run_id);
    const [attempt] = shown.attempts;
    expect(Date.parse(shown.settles_at ?? '') - Date.parse(attempt?.call_deadline ?? '')).toBe(SETTLE_MS);
    const [now] = await fixture.store.owner<{ now: string }[]>`select cs.iso(cs.clock()) as now`;
    expect(shown.as_of).toBe(now?.now);
    // To the microsecond what the database holds a verdict to.
    const reply = await say(run, { verdict: 'did_not_land', observed_at: shown.as_of });
    expect(reply.body.detail).toContain(`settles at ${shown.settles_at}:`);
  });

  test('settles anew once the end of its executor is recorded, to the microsecond as the database says', async () => {
    const run = await parked();
    const other = await parked();
    // An end before the last call deadline adds nothing; that of another run's executor never does.
    const before = (await view(run.run_id)).settles_at;
    await endInstance(fixture.store.serviceSql.executor, { instance_id: other.instance_id, evidence: 'told to end' });
    await clock.advanceMs(SETTLED_MS);
    expect((await view(run.run_id)).settles_at).toBe(before);
    expect((await view(other.run_id)).settles_at).toBe(before);

    await endInstance(fixture.store.serviceSql.executor, { instance_id: run.instance_id, evidence: 'told to end' });
    const { instances } = await api.client(operator.key).listInstances({ service: 'executor', limit: 1_000 });
    const end = instances.find((one) => one.instance_id === run.instance_id)?.ended_at ?? '';
    const { as_of, settles_at } = await view(run.run_id);
    expect(Date.parse(settles_at ?? '') - Date.parse(end)).toBe(SETTLE_MS);
    const refused = await say(run, { verdict: 'did_not_land', observed_at: as_of });
    expect(refused).toMatchObject({ status: 409, body: { code: 'not_settled', path: '/observed_at' } });
    expect(refused.body.detail).toContain(`settles at ${settles_at}:`);
    await clock.advanceMs(SETTLE_MS);
    expect((await say(run, { verdict: 'did_not_land', observed_at: settles_at })).status).toBe(200);
  });

  test('settles at no time before anything was sent, nor when nothing can have left', async () => {
    const { run_id } = await fixture.store.createRun();
    expect((await view(run_id)).settles_at).toBeNull();
    const { row, attempt_id } = await fixture.store.toExecuting();
    await fixture.store.move('executor', row, 'nothing_sent', 'needs_reconciliation', {
      attempt_outcome: { attempt_id, status: 'not_sent', provider_ref: null, response: { reason: 'refused' } },
      stop_reason: stopReason('not_sent'),
    });
    expect(await view(row.run_id)).toMatchObject({ state: 'needs_reconciliation', settles_at: null });
  });
});

describe('“it landed”', () => {
  test('leads to the verifier, never straight to completed, and keeps who said it and what they saw', async () => {
    const run = await parked();
    const reply = await say(run, { verdict: 'landed', provider_ref: 're_7' });
    expect(reply).toMatchObject({ status: 200, body: { state: 'verifying', revision: run.revision + 1 } });
    const shown = await view(run.run_id);
    expect(shown.outcome).toMatchObject({
      kind: 'person',
      provider_ref: 're_7',
      body: { verdict: 'landed', evidence: 'seen in the console', observed_at: null },
    });
    expect(shown).toMatchObject({ parked_reason: null, stop_reason: null, settles_at: null });
    const { events } = await api.client(operator.key).runEvents(run.run_id);
    expect(events.at(-1)).toMatchObject({ trigger: 'person_landed', actor: `principal/${operator.principal_id}` });
    expect(await hintsOf(run.run_id)).toEqual([{ stage: 'verify', run_id: run.run_id, revision: run.revision + 1 }]);
  });
});

describe('“I do not know”', () => {
  test('leaves the run parked, with what was seen, and hints nobody', async () => {
    const run = await parked();
    expect(await say(run, { verdict: 'still_unknown' })).toMatchObject({
      status: 200,
      body: { state: 'needs_reconciliation', revision: run.revision + 1 },
    });
    expect(await view(run.run_id)).toMatchObject({
      parked_reason: 'effect_not_found',
      wake_at: null,
      outcome: { kind: 'person', body: { verdict: 'still_unknown' } },
    });
    expect(await hintsOf(run.run_id)).toEqual([]);
  });

  test('“look again” hands the run back to the reconciler', async () => {
    const run = await parked();
    expect((await say(run, { verdict: 'look_again' })).status).toBe(200);
    expect(await view(run.run_id)).toMatchObject({ state: 'needs_reconciliation', parked_reason: null });
    expect((await view(run.run_id)).wake_at).not.toBeNull();
    expect(await hintsOf(run.run_id)).toEqual([{ stage: 'reconcile', run_id: run.run_id, revision: run.revision + 1 }]);
  });
});

describe('“it did not land”', () => {
  test('counts once the look was late enough and the executor is gone; each refusal before says what is missing', async () => {
    const run = await parked();
    const early = (await view(run.run_id)).as_of;
    expect(await say(run, { verdict: 'did_not_land', observed_at: early })).toMatchObject({
      status: 409,
      body: { code: 'not_settled', path: '/observed_at' },
    });
    await clock.advanceMs(SETTLED_MS);
    // The look itself was too early: that time has passed since changes nothing.
    expect((await say(run, { verdict: 'did_not_land', observed_at: early })).body.code).toBe('not_settled');
    const { as_of } = await view(run.run_id);
    const later = new Date(Date.parse(as_of) + 1_000).toISOString();
    const future = await say(run, { verdict: 'did_not_land', observed_at: later });
    expect(future).toMatchObject({ status: 400, body: { code: 'value_invalid', path: '/observed_at' } });
    expect(future.body.detail).toContain(as_of);

    const unfenced = await say(run, { verdict: 'did_not_land', observed_at: as_of });
    expect(unfenced).toMatchObject({ status: 409, body: { code: 'instance_not_fenced', path: '' } });
    expect(unfenced.body.detail).toContain(`not fenced: ${run.instance_id};`);
    for (const way of ['end or restart', 'counterstamp instance fence', 'waive_fencing'])
      expect(unfenced.body.detail).toContain(way);
    expect(await view(run.run_id)).toMatchObject({ revision: run.revision, parked_reason: 'effect_not_found' });

    await ended(run.instance_id);
    // The look came before the executor's end: what it sent last may have appeared since.
    expect((await say(run, { verdict: 'did_not_land', observed_at: as_of })).body.code).toBe('not_settled');
    const observed_at = (await view(run.run_id)).as_of;
    expect(await say(run, { verdict: 'did_not_land', observed_at })).toMatchObject({
      status: 200,
      body: { state: 'failed', revision: run.revision + 1 },
    });
    expect(await view(run.run_id)).toMatchObject({
      state: 'failed',
      stop_reason: { code: 'person_absent', message: stopReason('person_absent', `Looked at ${observed_at}.`).message },
      outcome: { kind: 'person', provider_ref: null, body: { verdict: 'did_not_land', observed_at } },
    });
    // The closure audit comes by its own timer.
    expect(await hintsOf(run.run_id)).toEqual([]);
    expect((await view(run.run_id)).wake_at).not.toBeNull();
    const codes = ['not_settled', 'not_settled', 'observed_in_future', 'instance_not_fenced', 'not_settled'];
    expect(await auditsOf(run.run_id)).toEqual(codes.map((code) => ['verdict', code, operator.principal_id]));
  });

  test('waits for the pause after the last heartbeat, also when the end is recorded', async () => {
    const run = await parked();
    await clock.advanceMs(SETTLED_MS);
    await fixture.store.stores.executor.beat();
    await endInstance(fixture.store.serviceSql.executor, { instance_id: run.instance_id, evidence: 'told to end' });
    const { as_of } = await view(run.run_id);
    expect((await say(run, { verdict: 'did_not_land', observed_at: as_of })).body.code).toBe('instance_not_fenced');
    await clock.advanceMs(PROFILES.fast.pause_ms);
    expect((await say(run, { verdict: 'did_not_land', observed_at: as_of })).body.code).toBe('not_settled');
    await clock.advanceMs(SETTLE_MS - PROFILES.fast.pause_ms);
    const later = (await view(run.run_id)).as_of;
    expect((await say(run, { verdict: 'did_not_land', observed_at: later })).status).toBe(200);
  });

  test('stands without a fence when a second person takes that on themselves, on the same attempts', async () => {
    const run = await parked();
    await clock.advanceMs(SETTLED_MS);
    const { as_of } = await view(run.run_id);
    const absent = { verdict: 'did_not_land', observed_at: as_of };
    expect(await support(run, { kind: 'waive_fencing' }, operator)).toMatchObject({
      status: 200,
      body: { run_id: run.run_id, result: 'recorded' },
    });
    expect((await say(run, absent)).body.code).toBe('instance_not_fenced');
    expect((await support(run, { kind: 'waive_fencing' })).status).toBe(200);
    expect((await support(run, { kind: 'waive_fencing' })).status).toBe(200);
    expect(await say(run, absent)).toMatchObject({ status: 200, body: { state: 'failed' } });
    expect(await auditsOf(run.run_id)).toEqual([
      ['waive_fencing', 'recorded', operator.principal_id],
      ['verdict', 'instance_not_fenced', operator.principal_id],
      ['waive_fencing', 'recorded', second.principal_id],
      ['waive_fencing', 'recorded', second.principal_id],
    ]);
  });

  test('is refused while an instance holds its session lease, whatever is recorded about its end', async () => {
    const run = await parked();
    const lease = connectForLease(serviceUrl(fixture.store.url, 'executor', TEST_SECRET, TEST_ROLE_PREFIX), {
      applicationName: 'test-lease',
      onClose: () => undefined,
    });
    expect(await takeLease(lease, run.instance_id, { host: 'here', pid: 1 })).toBe(true);
    await clock.advanceMs(SETTLED_MS);
    await ended(run.instance_id);
    const { as_of } = await view(run.run_id);
    expect((await say(run, { verdict: 'did_not_land', observed_at: as_of })).body.code).toBe('instance_not_fenced');
    await lease.end();
    await expect
      .poll(async () => (await say(run, { verdict: 'did_not_land', observed_at: as_of })).status, { timeout: 5_000 })
      .toBe(200);
  });

  test('is refused while the provider’s word stands that it was applied', async () => {
    const run = await parked();
    await clock.advanceMs(SETTLED_MS);
    await ended(run.instance_id);
    await fixture.store.stores.executor.appendEvidence({
      run_id: run.run_id,
      attempt_id: run.attempt_id,
      applied: true,
      provider_ref: 're_9',
      body: { class: 'applied' },
    });
    const { as_of, revision } = await view(run.run_id);
    expect(await say({ ...run, revision }, { verdict: 'did_not_land', observed_at: as_of })).toMatchObject({
      status: 409,
      body: { code: 'evidence_stands' },
    });
    expect((await support({ ...run, revision }, { kind: 'waive_fencing' })).status).toBe(200);
    expect((await say({ ...run, revision }, { verdict: 'did_not_land', observed_at: as_of })).body.code).toBe(
      'evidence_stands',
    );
    expect((await say({ ...run, revision }, { verdict: 'landed' })).body.state).toBe('verifying');
  });
});

describe('“it landed differently”', () => {
  const effect = {
    provider_ref: 're_8',
    status: 'succeeded',
    amount_minor: 4100,
    currency: 'USD',
    target: 'order_913',
  };
  const effect_digest = digestOf('cs.observed-effect.v1', canonicalJson(effect));

  test('closes the run with the observed effect as its outcome', async () => {
    const run = await parked();
    expect(await say(run, { verdict: 'landed_differently', effect })).toMatchObject({
      status: 200,
      body: { state: 'failed' },
    });
    const shown = await view(run.run_id);
    expect(shown.outcome).toMatchObject({ kind: 'person', provider_ref: 're_8', body: { effect } });
    expect(shown.stop_reason?.code).toBe('settled_with_difference');
    expect(shown.stop_reason?.message).toMatch(/ Observed: re_8, USD 41\.00, on order_913, status succeeded\.$/);
    expect(await hintsOf(run.run_id)).toEqual([]);
  });

  test('needs no amount where no money moved', async () => {
    const run = await parked();
    const bare = { provider_ref: 'del_1', status: 'gone' };
    expect((await say(run, { verdict: 'landed_differently', effect: bare })).status).toBe(200);
    expect((await view(run.run_id)).outcome?.body).toMatchObject({ effect: bare });
  });

  test('of an action that needed two approvals needs a second person who confirms exactly this effect', async () => {
    const run = await parked(2);
    const different = { verdict: 'landed_differently', effect };
    const refused = await say(run, different);
    expect(refused).toMatchObject({ status: 409, body: { code: 'second_person_needed', path: '/effect' } });
    const [, told] = /sends (\{.*\}) to/.exec(refused.body.detail) ?? [];
    const wanted = JSON.parse(told ?? '') as Record<string, unknown>;
    expect(wanted).toEqual({ revision: run.revision, kind: 'confirm_difference', effect_digest, reason: '…' });

    const { kind } = wanted;
    expect((await support(run, { kind, effect_digest }, operator)).status).toBe(200);
    expect((await say(run, different)).body.code).toBe('second_person_needed');
    expect((await support(run, { kind, effect_digest: `sha256:${'0'.repeat(64)}` })).status).toBe(200);
    expect((await say(run, different)).body.code).toBe('second_person_needed');
    expect((await support(run, wanted)).status).toBe(200);
    expect((await say(run, { ...different, effect: { ...effect, amount_minor: 4101 } })).body.code).toBe(
      'second_person_needed',
    );
    expect(await say(run, different)).toMatchObject({ status: 200, body: { state: 'failed' } });
  });
});

describe('a verdict is refused', () => {
  test('on a revision that is not the run’s, and a lost swap is never tried again', async () => {
    const run = await parked();
    expect(await say({ ...run, revision: run.revision - 1 }, { verdict: 'landed' })).toMatchObject({
      status: 409,
      body: { code: 'stale_revision', path: '/revision' },
    });
    const reached: string[] = [];
    const slow = await fixture.start({
      failpoint: {
        async reach(name, run_id) {
          reached.push(`${name} ${run_id}`);
          // While the form was under way, somebody else changed the run.
          if (name === 'person.read.before-commit') await say(run, { verdict: 'still_unknown' }, second);
        },
        reachSync: () => undefined,
      },
    });
    const late = await slow.post(`/v1/runs/${run.run_id}/verdicts`, operator.key, {
      revision: run.revision,
      verdict: 'landed',
      evidence: 'x',
    });
    expect(late).toMatchObject({ status: 409, body: { code: 'stale_revision' } });
    expect(late.body.detail).toContain(`revision ${run.revision + 1};`);
    expect(reached).toEqual([`person.read.before-commit ${run.run_id}`]);
    expect(await view(run.run_id)).toMatchObject({ state: 'needs_reconciliation', revision: run.revision + 1 });
  });

  test('two at once are one, and the other is told that the run changed', async () => {
    const run = await parked();
    const replies = await Promise.all([
      say(run, { verdict: 'landed' }),
      say(run, { verdict: 'landed_differently', effect: { provider_ref: 're_1', status: 'done' } }, second),
    ]);
    expect(replies.map((reply) => reply.status).sort((a, b) => a - b)).toEqual([200, 409]);
    // Whoever came second met another state.
    expect(replies.find((reply) => reply.status === 409)?.body.code).toBe('not_in_doubt');
  });

  test('on a run with nothing in doubt, and so is a support', async () => {
    const row = await fixture.store.toApproved();
    expect(await say(row, { verdict: 'landed' })).toMatchObject({
      status: 409,
      body: { code: 'not_in_doubt', detail: 'the run is awaiting_approval' },
    });
    expect(await support(row, { kind: 'waive_fencing' })).toMatchObject({
      status: 409,
      body: { code: 'not_in_doubt' },
    });
    const run = await parked();
    expect(await support({ ...run, revision: 1 }, { kind: 'waive_fencing' })).toMatchObject({
      status: 409,
      body: { code: 'stale_revision', path: '/revision' },
    });
  });

  test('on a run of another tenant, exactly as on one that never was', async () => {
    const run = await parked();
    const south = await fixture.store.principal('operator', 'south operator', 'shop_south');
    const unknown = { ...run, run_id: newRunId() };
    for (const ask of [
      (of: Parked) => say(of, { verdict: 'landed' }, south),
      (of: Parked) => support(of, { kind: 'waive_fencing' }, south),
    ]) {
      const [foreign, never] = [await ask(run), await ask(unknown)];
      expect(foreign).toMatchObject({ status: 404, body: { code: 'run_not_found' } });
      expect(foreign.body).toEqual(never.body);
    }
    // What they tried is in their own audit, without a word that names the run at its owner.
    expect(await auditsOf(run.run_id)).toEqual([]);
    const tried = (
      (await fixture.audits()) as { what: string; code: string; principal_id: string; run_id: string | null }[]
    )
      .filter((one) => one.principal_id === south.principal_id)
      .map(({ what, code, run_id }) => [what, code, run_id]);
    expect(tried).toEqual([
      ['verdict', 'run_not_found', null],
      ['verdict', 'run_not_found', null],
      ['support_verdict', 'run_not_found', null],
      ['support_verdict', 'run_not_found', null],
    ]);
  });

  test.each(['requester', 'approver', 'auditor'] as const)('to a key whose role is %s', async (role) => {
    const run = await parked();
    const who = await fixture.store.principal(role);
    for (const reply of [
      await say(run, { verdict: 'landed' }, who),
      await support(run, { kind: 'waive_fencing' }, who),
    ])
      expect(reply).toMatchObject({ status: 403, body: { code: 'role_missing' } });
    expect((await auditsOf(run.run_id)).map(([what, code]) => [what, code])).toEqual([
      ['verdict', 'role_missing'],
      ['support_verdict', 'role_missing'],
    ]);
  });

  test('by the database as well, to whoever is no operator any more when it commits', async () => {
    const run = await parked();
    const leaving = await fixture.store.principal('operator', 'leaving operator');
    const slow = await fixture.start({
      failpoint: {
        reach: async () => {
          await fixture.store.owner`update cs.principal set roles = '{}' where principal_id = ${leaving.principal_id}`;
        },
        reachSync: () => undefined,
      },
    });
    const body = { revision: run.revision, verdict: 'landed', evidence: 'x' };
    expect(await slow.post(`/v1/runs/${run.run_id}/verdicts`, leaving.key, body)).toMatchObject({
      status: 403,
      body: { code: 'role_missing' },
    });
    expect(await auditsOf(run.run_id)).toEqual([['verdict', 'role_missing', leaving.principal_id]]);
    expect((await view(run.run_id)).revision).toBe(run.revision);
  });

  test('on a run of a workflow that is not installed here: nobody could say when it settles', async () => {
    const run = await parked();
    const bare = await fixture.start({ workflows: new Map() });
    const body = { revision: run.revision, verdict: 'landed', evidence: 'x' };
    expect(await bare.post(`/v1/runs/${run.run_id}/verdicts`, operator.key, body)).toMatchObject({
      status: 400,
      body: { code: 'workflow_unknown' },
    });
    expect((await bare.client(operator.key).getRun(run.run_id)).settles_at).toBeNull();
  });

  const at = '2026-01-31T09:30:00Z';
  const effect = { provider_ref: 're_1', status: 'done' };
  test.each<[string, Record<string, unknown>, { code: string; path: string }]>([
    ['without a verdict', {}, { code: 'member_missing', path: '/verdict' }],
    ['of a kind that there is not', { verdict: 'approved' }, { code: 'value_invalid', path: '/verdict' }],
    ['without a revision', { verdict: 'landed', revision: undefined }, { code: 'member_missing', path: '/revision' }],
    ['on revision 0', { verdict: 'landed', revision: 0 }, { code: 'value_invalid', path: '/revision' }],
    [
      'on a revision beyond the database’s',
      { verdict: 'landed', revision: 2 ** 31 },
      { code: 'value_too_large', path: '/revision' },
    ],
    ['without evidence', { verdict: 'landed', evidence: undefined }, { code: 'member_missing', path: '/evidence' }],
    ['with empty evidence', { verdict: 'landed', evidence: '' }, { code: 'value_invalid', path: '/evidence' }],
    [
      'with evidence without end',
      { verdict: 'landed', evidence: 'x'.repeat(2_001) },
      { code: 'value_too_large', path: '/evidence' },
    ],
    ['of absence without its time', { verdict: 'did_not_land' }, { code: 'member_missing', path: '/observed_at' }],
    [
      'of absence with a name for what is not there',
      { verdict: 'did_not_land', observed_at: at, provider_ref: 're_1' },
      { code: 'unknown_member', path: '/provider_ref' },
    ],
    ['of a difference without it', { verdict: 'landed_differently' }, { code: 'member_missing', path: '/effect' }],
    [
      'of a difference without the effect’s name',
      { verdict: 'landed_differently', effect: { status: 'done' } },
      { code: 'member_missing', path: '/effect/provider_ref' },
    ],
    [
      'of a difference with half an amount',
      { verdict: 'landed_differently', effect: { ...effect, amount_minor: 1 } },
      { code: 'currency_missing', path: '/effect/currency' },
    ],
    [
      'of a difference with the other half',
      { verdict: 'landed_differently', effect: { ...effect, currency: 'USD' } },
      { code: 'amount_missing', path: '/effect/amount_minor' },
    ],
    [
      'of a difference with an amount in fractions',
      { verdict: 'landed_differently', effect: { ...effect, currency: 'USD', amount_minor: 0.5 } },
      { code: 'amount_not_integer', path: '/effect/amount_minor' },
    ],
    ['with an effect where none differs', { verdict: 'landed', effect }, { code: 'unknown_member', path: '/effect' }],
    [
      'in the name of somebody else',
      { verdict: 'landed', decided_by: 'prn_1' },
      { code: 'unknown_member', path: '/decided_by' },
    ],
    ...['now', '2026-02-30T09:30:00Z', '2026-01-31T09:30Z', '2026-01-31T09:30:00+01:00', '0000-01-01T00:00:00Z'].map(
      (observed_at): [string, Record<string, unknown>, { code: string; path: string }] => [
        `at ${observed_at}`,
        { verdict: 'did_not_land', observed_at },
        { code: 'value_invalid', path: '/observed_at' },
      ],
    ),
    [
      'at an instant that would be rounded up',
      { verdict: 'did_not_land', observed_at: '2026-01-31T09:30:00.1234567Z' },
      { code: 'value_invalid', path: '/observed_at' },
    ],
  ])('%s', async (_, change, expected) => {
    // No such run: a body that passed would be answered with 404.
    expect(await say({ run_id: newRunId(), revision: 1 }, change)).toMatchObject({ status: 400, body: expected });
  });

  test.each<[string, Record<string, unknown>, { code: string; path: string }]>([
    ['without a kind', {}, { code: 'member_missing', path: '/kind' }],
    ['of another kind', { kind: 'landed' }, { code: 'value_invalid', path: '/kind' }],
    ['without a reason', { kind: 'waive_fencing', reason: undefined }, { code: 'member_missing', path: '/reason' }],
    [
      'of a difference without its digest',
      { kind: 'confirm_difference' },
      { code: 'member_missing', path: '/effect_digest' },
    ],
    [
      'of a difference with half a digest',
      { kind: 'confirm_difference', effect_digest: 'sha256:00' },
      { code: 'digest_malformed', path: '/effect_digest' },
    ],
    [
      'of a waiver with a digest',
      { kind: 'waive_fencing', effect_digest: `sha256:${'0'.repeat(64)}` },
      { code: 'unknown_member', path: '/effect_digest' },
    ],
  ])('and a support %s', async (_, change, expected) => {
    expect(await support({ run_id: newRunId(), revision: 1 }, change)).toMatchObject({ status: 400, body: expected });
  });
});
