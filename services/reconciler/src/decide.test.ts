import type { ConnectorContract, Observation, Settlement } from '@counterstamp/connectors';
import {
  type Attempt,
  backoffMs,
  type DueRun,
  EXPIRY_MARGIN_MS,
  epochMs,
  LIMITS,
  type Manifest,
  PROFILES,
  retryReserveMs,
  type StopReasonCode,
  settleMs,
  transitionRule,
} from '@counterstamp/manifest-core';
import { describe, expect, test } from 'vitest';
import { at, attempt, counted, evidence, hotRow, loaded, START_MS } from '../../../testing/manifest-builder.ts';
import { approvedRun, effect, workflow } from '../../../testing/refund-case.ts';
import { decideClosureAudit, decideLook, decideOverdue, type Terms } from './decide.ts';

const VISIBILITY_MS = 300;
const { contract } = workflow;
const judgedBy = (change: Partial<ConnectorContract>): Terms => ({
  durations: PROFILES.fast,
  limits: LIMITS,
  visibilityMs: VISIBILITY_MS,
  contract: { ...contract, ...change },
});
/** A target without keys: nothing is ever sent to it twice. `keyed` is the sandbox's own contract. */
const terms = judgedBy({ idempotency: { kind: 'none' } });
const keyed = judgedBy({});
const { look_min_ms, look_max_ms, stage_lease_ms, defer_min_ms, closure_audit_ms, epsilon_ms } = terms.durations;
const { look_ups_max, verification_waits_max, not_sent_retries_max } = LIMITS;

const approved = approvedRun();
const inDoubt = (attempts: Attempt[], change: Partial<Manifest> = {}): Manifest => ({
  ...approvedRun({ state: 'needs_reconciliation', attempts, ...change }),
  stop_reason: { code: 'external_result_uncertain', message: 'x' },
});
const uncertain = inDoubt([attempt(approved)]);

function moveOf(observation: Observation, run = uncertain, nowMs = START_MS, by = terms) {
  const decision = decideLook(loaded(run, nowMs), observation, by);
  if (decision.kind !== 'commit') throw new Error(`decided ${decision.kind}`);
  const rule = transitionRule('needs_reconciliation', decision.on);
  expect(rule?.by).toContain('reconciler');
  for (const fact of Object.keys(decision.facts)) expect(rule?.facts).toContain(fact);
  const { observation: seen, stop_reason, parked_reason } = decision.facts;
  expect(stop_reason?.code).toBe(parked_reason ?? stop_reason?.code);
  return { on: decision.on, to: rule?.to, seen: seen?.kind, code: stop_reason?.code, wake: decision.wake_in_ms };
}
const parked = (code: StopReasonCode) => ({
  on: 'parked',
  to: 'needs_reconciliation',
  seen: 'inconclusive',
  code,
  wake: null,
});
const again = (wake: number) => ({
  on: 'look_inconclusive',
  to: 'needs_reconciliation',
  seen: 'inconclusive',
  code: undefined,
  wake,
});
const found = { on: 'effect_found', to: 'verifying', seen: 'found', code: undefined, wake: stage_lease_ms };
const neverSent = { on: 'never_sent', to: 'failed', seen: undefined, code: 'not_sent', wake: closure_audit_ms };
const retried = {
  on: 'retry_recorded',
  to: 'needs_reconciliation',
  seen: 'absent',
  code: undefined,
  wake: stage_lease_ms,
};

const exact = (settlement: Settlement): Observation => ({
  kind: 'found',
  match: 'exact',
  effect: effect({ settlement, status: 'x' }),
});
const absent: Observation = { kind: 'absent', strength: 'strong' };
const unknown: Observation = { kind: 'unknown', reason: 'timeout' };
const different: Observation = {
  kind: 'found',
  match: 'different',
  effect: effect({ amount_minor: 4100 }),
  differing: [{ field: 'amount_minor', approved: '4200', observed: '4100' }],
};
const multiple: Observation = { kind: 'found', match: 'multiple', effects: [effect(), effect()] };
const lookalike: Observation = { kind: 'found', match: 'lookalike', effects: [effect({ run_id: null })] };

describe('presence is believed at once', () => {
  test.each<[string, Observation, object]>([
    ['an exact effect, final', exact('final'), found],
    ['an exact effect, pending', exact('pending'), found],
    ['an exact effect that failed', exact('failed'), found],
    ['an exact effect with a status nobody knows', exact('unrecognised'), found],
    ['a different effect', different, parked('effect_differs')],
    ['several effects', multiple, parked('effect_ambiguous')],
    ['a lookalike, which is never ours', lookalike, parked('effect_ambiguous')],
  ])('%s', (_, observation, expected) => {
    // Before the call deadline, long before settle.
    expect(moveOf(observation)).toEqual(expected);
  });

  test('a parked difference names its fields and its effect', () => {
    expect(decideLook(loaded(uncertain), different, terms)).toMatchObject({
      facts: {
        observation: { provider_ref: 're_1' },
        stop_reason: { message: expect.stringContaining('amount_minor: approved 4200, observed 4100') },
      },
    });
  });
});

// call_deadline is kept in microseconds and read in milliseconds rounded down: one more is on the safe side.
const settled = (deadlineMs: number) => deadlineMs + 1 + settleMs(terms.durations, VISIBILITY_MS);
const edge = settled(START_MS + 2_000);

describe('absence', () => {
  test.each<[string, number, object]>([
    ['long before settle is looked at again after the back-off', START_MS, again(look_min_ms)],
    ['shortly before settle is looked at again at settle', edge - 100, again(100)],
    ['a millisecond before settle proves nothing', edge - 1, again(1)],
    ['at settle is parked for a person', edge, parked('effect_not_found')],
    ['after settle is parked for a person', edge + 60_000, parked('effect_not_found')],
  ])('%s', (_, nowMs, expected) => {
    expect(moveOf(absent, uncertain, nowMs)).toEqual(expected);
    expect(moveOf({ kind: 'absent', strength: 'eventual' }, uncertain, nowMs)).toEqual(expected);
  });

  test('counts from the latest call deadline of the attempts that may have been sent', () => {
    const later = START_MS + 30_000;
    const run = inDoubt([
      attempt(approved),
      attempt(approved, { n: 2, call_deadline: at(later) }),
      attempt(approved, { n: 3, call_deadline: at(later + 60_000), status: 'not_sent' }),
    ]);
    expect(moveOf(absent, run, settled(later) - 1)).toEqual(again(1));
    expect(moveOf(absent, run, settled(later))).toEqual(parked('effect_not_found'));
  });

  test('counts from an attempt that was never closed as well', () => {
    const run = inDoubt([attempt(approved, { status: 'started', closed_at: null, response: null })]);
    expect(moveOf(absent, run, edge - 1)).toEqual(again(1));
  });

  test('is never the reason to send again to a target without keys', () => {
    for (let nowMs = START_MS; nowMs < edge + 10_000; nowMs += 500)
      expect(['look_inconclusive', 'parked']).toContain(moveOf(absent, uncertain, nowMs).on);
  });
});

describe('a look that shows nothing', () => {
  test.each([0, 1, 3, look_ups_max - 2])('after %i looks is counted and backed off', (look_ups) => {
    expect(moveOf(unknown, counted(uncertain, { look_ups }))).toEqual(
      again(backoffMs(look_ups, look_min_ms, look_max_ms)),
    );
  });
  test.each<[string, Observation]>([
    ['no answer', unknown],
    ['absence that has not settled', absent],
  ])('parks the run when the looks are used up: %s', (_, observation) => {
    expect(moveOf(observation, counted(uncertain, { look_ups: look_ups_max - 1 }))).toEqual(
      parked('external_result_uncertain'),
    );
  });
  test.each([
    ['a millisecond before the run’s deadline is counted', -1, again(look_min_ms)],
    ['at the run’s deadline parks the run', 0, parked('deadline_exceeded')],
  ])('%s', (_, offsetMs, expected) => {
    expect(moveOf(unknown, uncertain, epochMs(uncertain.deadlines.run) + offsetMs)).toEqual(expected);
  });
});

describe('an exact effect that does not settle', () => {
  const spent = counted(uncertain, { verification_waits: verification_waits_max - 1 });
  const late = epochMs(uncertain.deadlines.run);

  test('goes to the verifier while that has a wait left', () => {
    expect(moveOf(exact('pending'), counted(uncertain, { verification_waits: verification_waits_max - 2 }))).toEqual(
      found,
    );
  });
  test.each(['pending', 'unrecognised'] as const)(
    '%s: is a counted look once the verifier gave up, never a circle',
    (settlement) => {
      expect(moveOf(exact(settlement), spent)).toEqual(again(look_min_ms));
      expect(moveOf(exact(settlement), counted(spent, { look_ups: look_ups_max - 1 }))).toEqual(
        parked('external_result_uncertain'),
      );
      expect(moveOf(exact(settlement), uncertain, late)).toEqual(parked('deadline_exceeded'));
    },
  );
  test.each(['final', 'failed'] as const)(
    'goes to the verifier when it is %s at last, whatever was used up',
    (settlement) => {
      expect(moveOf(exact(settlement), counted(spent, { look_ups: look_ups_max }))).toEqual(found);
      expect(moveOf(exact(settlement), uncertain, late)).toEqual(found);
    },
  );
});

describe('an absence that has settled, at a target that remembers keys and compares bodies,', () => {
  const expiresMs = epochMs(approved.approval?.expires_at ?? '');
  const keyOf = (change: object) =>
    judgedBy({ idempotency: { ...contract.idempotency, ...change } as ConnectorContract['idempotency'] });

  test('is the reason to record one retry, a millisecond earlier it is not', () => {
    expect(moveOf(absent, uncertain, edge - 1, keyed)).toEqual(again(1));
    expect(moveOf(absent, uncertain, edge, keyed)).toEqual(retried);
  });

  test('is recorded with what the database judges again: when it was observed, settle, the key contract, the margins', () => {
    expect(decideLook(loaded(uncertain, edge), absent, keyed)).toMatchObject({
      facts: {
        observation: { provider_ref: null, body: { retry: 'after_absence', observed_at: at(edge) } },
        retry_grounds: {
          observed_at: at(edge),
          settle_ms: settleMs(keyed.durations, VISIBILITY_MS),
          retention_ms: 23 * 3_600_000,
          reserve_ms: retryReserveMs(keyed.durations),
          expiry_margin_ms: epsilon_ms + EXPIRY_MARGIN_MS,
          not_sent_retries_max,
        },
      },
    });
  });

  const used = [attempt(approved), attempt(approved, { n: 2 })];
  const positive = evidence('late_effect', { class: 'applied' }, { round: 0 });
  test.each<[string, Manifest, Terms, object]>([
    ['was sent twice already', inDoubt(used), keyed, parked('effect_not_found')],
    ['was refused its retry before', counted(uncertain, { retries_refused: 1 }), keyed, parked('effect_not_found')],
    [
      'is known to have been applied',
      inDoubt([attempt(approved)], { evidence: [positive] }),
      keyed,
      parked('late_effect_found'),
    ],
    [
      'was answered as applied',
      inDoubt([attempt(approved, { status: 'succeeded' })]),
      keyed,
      parked('late_effect_found'),
    ],
    ['has no approval', { ...uncertain, approval: null }, keyed, parked('effect_not_found')],
    ['goes to a target without keys', uncertain, terms, parked('effect_not_found')],
    [
      'goes to a target that does not compare every parameter',
      uncertain,
      keyOf({ compares: 'some-params' }),
      parked('effect_not_found'),
    ],
    [
      'goes to a target that is not installed',
      uncertain,
      { ...keyed, contract: undefined },
      parked('effect_not_found'),
    ],
  ])('is parked where the run %s', (_, run, by, expected) => {
    expect(moveOf(absent, run, edge, by)).toEqual(expected);
  });

  test('is parked once the approval is within ε + 1 s of its expiry', () => {
    const last = expiresMs - epsilon_ms - EXPIRY_MARGIN_MS;
    expect(moveOf(absent, uncertain, last - 1, keyed)).toEqual(retried);
    expect(moveOf(absent, uncertain, last, keyed)).toEqual(parked('effect_not_found'));
  });

  test('is parked when the key might be forgotten before the retry arrives, counted from the first send', () => {
    // Age of the key at the look, rounded up, and the reserve of the retry.
    const least = edge + 1 - START_MS + retryReserveMs(keyed.durations);
    const remembers = (retentionMs: number) => keyOf({ retentionMs, safetyMarginMs: 0 });
    expect(moveOf(absent, uncertain, edge, remembers(least + 1))).toEqual(retried);
    expect(moveOf(absent, uncertain, edge, remembers(least))).toEqual(parked('effect_not_found'));
    expect(moveOf(absent, uncertain, edge, keyOf({ retentionMs: least + 60_000, safetyMarginMs: 60_000 }))).toEqual(
      parked('effect_not_found'),
    );
    const unsent = attempt(approved, { status: 'not_sent', started_at: at(START_MS - 60_000) });
    const run = inDoubt([unsent, attempt(approved, { n: 2 })]);
    expect(moveOf(absent, run, edge, remembers(least + 1))).toEqual(retried);
  });
});

describe('an answer that permits the same request again', () => {
  const safe = (change: Partial<Attempt> = {}, afterMs: number | undefined = 500) =>
    attempt(approved, {
      response: { class: 'retry_safe', reason: 'rate_limited', ...(afterMs === undefined ? {} : { afterMs }) },
      closed_at: at(START_MS + 300),
      ...change,
    });
  const from = START_MS + 801;

  test('is taken up after its time, long before settle, when nothing is found', () => {
    expect(moveOf(absent, inDoubt([safe()]), from - 1, keyed)).toEqual(again(1));
    expect(moveOf(absent, inDoubt([safe()]), from, keyed)).toEqual(retried);
    expect(decideLook(loaded(inDoubt([safe()]), from), absent, keyed)).toMatchObject({
      facts: { observation: { body: { retry: 'after_retry_safe' } } },
    });
  });
  test('is taken up at once where it names no time', () => {
    const run = inDoubt([safe({ response: { class: 'retry_safe', reason: 'rate_limited' } })]);
    expect(moveOf(absent, run, START_MS + 301, keyed)).toEqual(retried);
  });
  test.each<[string, Observation, Manifest, Terms]>([
    [
      'for an earlier attempt in doubt',
      absent,
      inDoubt([attempt(approved, { closed_at: at(START_MS) }), safe({ n: 2 })]),
      keyed,
    ],
    ['at a target without keys', absent, inDoubt([safe()]), terms],
    ['while the look has no answer', unknown, inDoubt([safe()]), keyed],
    [
      'when the answer was another',
      absent,
      inDoubt([attempt(approved, { response: { class: 'uncertain', reason: 'x', afterMs: 0 } })]),
      keyed,
    ],
  ])('says nothing %s', (_, observation, run, by) => {
    expect(moveOf(observation, run, from, by).on).toBe('look_inconclusive');
  });
});

describe('a run of which nothing was ever sent', () => {
  const nothing = (n: number) =>
    attempt(approved, { n, status: 'not_sent', response: { class: 'not_sent', reason: `why_${n}` } });
  const unsent = inDoubt([nothing(1), nothing(2)]);
  const resent = {
    on: 'resend_recorded',
    to: 'needs_reconciliation',
    seen: undefined,
    code: undefined,
    wake: stage_lease_ms,
  };
  const closedMs = START_MS + 2_000;

  test.each<[string, Observation, Terms]>([
    ['nothing is found', absent, keyed],
    ['the look fails', unknown, keyed],
    ['the target has no keys', absent, terms],
  ])('is sent again after a back-off when %s: settle and key contract do not apply', (_, observation, by) => {
    for (const retries of [0, 1, 3]) {
      const run = counted(unsent, { not_sent_retries: retries });
      const due = closedMs + backoffMs(retries, defer_min_ms, PROFILES.fast.defer_max_ms);
      expect(decideLook(loaded(run, due - 1), observation, by)).toMatchObject({ kind: 'defer', wake_in_ms: 1 });
      expect(moveOf(observation, run, due, by)).toEqual(resent);
    }
  });
  test('counts its back-off from the last attempt, and is recorded without an absence', () => {
    const later = inDoubt([
      nothing(1),
      attempt(approved, { n: 2, status: 'not_sent', closed_at: at(closedMs + 1_000) }),
    ]);
    expect(decideLook(loaded(later, closedMs + 1_000), absent, keyed)).toMatchObject({
      kind: 'defer',
      wake_in_ms: defer_min_ms,
    });
    expect(decideLook(loaded(unsent, closedMs + 60), absent, keyed)).toMatchObject({ kind: 'defer' });
    expect(decideLook(loaded(unsent, closedMs + 5_000), absent, keyed)).toMatchObject({
      facts: { retry_grounds: { observed_at: null, not_sent_retries_max } },
    });
  });
  test.each<[string, Manifest, number]>([
    ['its retries are used up', counted(unsent, { not_sent_retries: not_sent_retries_max }), closedMs + 5_000],
    [
      'its approval is about to expire',
      unsent,
      epochMs(approved.approval?.expires_at ?? '') - epsilon_ms - EXPIRY_MARGIN_MS,
    ],
    ['the executor refused the retry', counted(unsent, { retries_refused: 1 }), closedMs + 5_000],
  ])('is failed when %s, without waiting for settle', (_, run, nowMs) => {
    for (const observation of [absent, unknown]) expect(moveOf(observation, run, nowMs, keyed)).toEqual(neverSent);
  });
  test('says why of every attempt', () => {
    const run = counted(unsent, { not_sent_retries: not_sent_retries_max });
    expect(decideLook(loaded(run), absent, terms)).toMatchObject({
      facts: { stop_reason: { message: expect.stringContaining('(why_1, why_2)') } },
    });
  });
  test.each<[string, Observation, Partial<Manifest>, string]>([
    ['an effect with our reference is found', exact('final'), {}, 'effect_found'],
    ['only a lookalike is found', lookalike, {}, 'parked'],
    [
      'the provider once said that it was applied',
      absent,
      { evidence: [evidence('late_effect', {}, { round: 0 })] },
      'look_inconclusive',
    ],
  ])('is neither failed nor sent again when %s', (_, observation, change, on) => {
    expect(moveOf(observation, { ...unsent, ...change }, closedMs + 5_000, keyed).on).toBe(on);
  });
  test('is not one with a single attempt that may have been sent', () => {
    expect(moveOf(absent, inDoubt([nothing(1), attempt(approved, { n: 2 })])).on).toBe('look_inconclusive');
  });
});

describe('a look at a closed run', () => {
  const HOUR = 3_600_000;
  const closed = (
    state: 'failed' | 'completed',
    code: StopReasonCode | null,
    change: Partial<Manifest> = {},
  ): Manifest => ({
    ...approvedRun({ state, attempts: [attempt(approved, { status: 'rejected' })] }),
    stop_reason: code === null ? null : { code, message: 'm' },
    ...change,
  });
  const rejected = closed('failed', 'effect_rejected');
  const completed = closed('completed', null);
  const judge = (run: Manifest, observation: Observation, afterMs = 0, by = keyed) => {
    const { decision, looked } = decideClosureAudit(loaded(run, START_MS + afterMs), observation, by);
    if (decision.kind === 'defer') return { wake: decision.wake_in_ms, looked };
    if (decision.kind !== 'commit') throw new Error(`decided ${decision.kind}`);
    const rule = transitionRule(run.state, decision.on);
    expect(rule?.by).toContain('reconciler');
    expect(rule?.to).toBe('needs_reconciliation');
    for (const fact of Object.keys(decision.facts)) expect(rule?.facts).toContain(fact);
    for (const fact of rule?.requires ?? []) expect(Object.keys(decision.facts)).toContain(fact);
    const { stop_reason, parked_reason, observation: seen } = decision.facts;
    expect(parked_reason).toBe(stop_reason?.code);
    expect(decision.wake_in_ms).toBeNull();
    return { on: decision.on, code: stop_reason?.code, provider_ref: seen?.provider_ref };
  };
  const seen = (change: object, provider_ref = 're_1'): Observation => ({
    kind: 'found',
    match: 'exact',
    effect: effect({ provider_ref, ...change }),
  });

  describe('that failed', () => {
    // Attempt: START to START + 2 s; settle 2 s after it; the target forgets the key after 24 h.
    const settledAt = edge - START_MS;
    test.each<[string, number, number | null]>([
      ['before settle comes back at settle', 0, settledAt],
      ['at settle comes back at the next', settledAt, closure_audit_ms - settledAt],
      ['between them comes back at the next', settledAt + 400, closure_audit_ms - settledAt - 400],
      ['then comes back once the key is forgotten', closure_audit_ms, 24 * HOUR - closure_audit_ms],
      ['at last comes back no more', 24 * HOUR, null],
    ])('and finds nothing %s', (_, afterMs, wake) => {
      expect(judge(rejected, absent, afterMs)).toEqual({ wake, looked: 'looked' });
      expect(judge(rejected, lookalike, afterMs)).toEqual({ wake, looked: 'looked' });
    });
    test('has no last look for a key where there is none', () => {
      expect(judge(rejected, absent, closure_audit_ms, terms)).toEqual({ wake: null, looked: 'looked' });
    });
    test('of which nothing was sent is looked at once', () => {
      const unsent = closed('failed', 'not_sent', { attempts: [attempt(approved, { status: 'not_sent' })] });
      expect(judge(unsent, absent)).toEqual({ wake: closure_audit_ms, looked: 'looked' });
      expect(judge(unsent, absent, closure_audit_ms)).toEqual({ wake: null, looked: 'looked' });
      expect(judge({ ...unsent, attempts: [] }, absent, closure_audit_ms)).toEqual({ wake: null, looked: 'looked' });
    });

    test.each<[string, Observation]>([
      ['its effect', exact('final')],
      ['its effect, not settled yet', exact('pending')],
      ['another effect with our reference', different],
      ['several effects', multiple],
    ])('reopens and parks the run when it finds %s', (_, observation) => {
      expect(judge(rejected, observation)).toEqual({
        on: 'late_effect_found',
        code: 'late_effect_found',
        provider_ref: 're_1',
      });
    });
    test('is not reopened by an effect that failed as well', () => {
      expect(judge(rejected, exact('failed'))).toMatchObject({ looked: 'looked' });
    });

    const noted = (code: StopReasonCode) =>
      closed('failed', code, {
        observations: [
          { revision: rejected.revision, at: at(START_MS), kind: 'person', provider_ref: 're_1', body: {} },
        ],
      });
    test.each(['settled_with_difference', 'settlement_failed'] as const)(
      'as %s is not reopened by the effect that its outcome records, and is by another',
      (code) => {
        expect(judge(noted(code), seen({}))).toMatchObject({ looked: 'looked' });
        expect(judge(noted(code), seen({}, 're_2'))).toMatchObject({ on: 'late_effect_found', provider_ref: 're_2' });
        const both: Observation = {
          kind: 'found',
          match: 'multiple',
          effects: [effect(), effect({ provider_ref: 're_2' })],
        };
        expect(judge(noted(code), both)).toMatchObject({ on: 'late_effect_found', provider_ref: 're_2' });
      },
    );
    test('for another reason is reopened although an observation names the effect', () => {
      expect(judge(noted('person_absent'), seen({}))).toMatchObject({ on: 'late_effect_found' });
    });
  });

  describe('that completed', () => {
    test.each<[string, number, number | null]>([
      ['first', 0, closure_audit_ms],
      ['then after twice the time', closure_audit_ms, closure_audit_ms],
      ['then twice as long again', 2 * closure_audit_ms, 2 * closure_audit_ms],
      ['no more once its status can no longer turn', 7 * 24 * HOUR + 1, null],
    ])('and is as it was verified comes back %s', (_, afterMs, wake) => {
      for (const observation of [exact('final'), exact('pending'), lookalike, absent])
        expect(judge(completed, observation, afterMs)).toEqual({ wake, looked: null });
    });
    test('where a status never turns comes back no more', () => {
      expect(judge(completed, exact('final'), 0, judgedBy({ reversalHorizonMs: 0 }))).toEqual({
        wake: null,
        looked: null,
      });
    });
    test.each<[string, Observation, object]>([
      ['was undone', exact('failed'), { on: 'effect_reversed', code: 'effect_reversed' }],
      ['changed', different, { on: 'effect_reversed', code: 'effect_reversed' }],
      ['is no longer alone', multiple, { on: 'effect_reversed', code: 'effect_ambiguous' }],
    ])('is reopened and parked when its effect %s', (_, observation, expected) => {
      expect(judge(completed, observation)).toEqual({ ...expected, provider_ref: 're_1' });
    });
  });

  describe('that has no answer', () => {
    test.each<[string, Manifest, number]>([
      ['failed', rejected, 24 * HOUR],
      ['completed', completed, 7 * 24 * HOUR],
    ])('is made again soon, and given up one interval after the last was due: %s', (_, run, last) => {
      expect(judge(run, unknown, 0)).toEqual({
        wake: Math.min(look_max_ms, run === rejected ? edge - START_MS : closure_audit_ms),
        looked: null,
      });
      expect(judge(run, unknown, last - 10)).toEqual({ wake: 10, looked: null });
      expect(judge(run, unknown, last)).toEqual({ wake: look_max_ms, looked: null });
      expect(judge(run, unknown, last + closure_audit_ms)).toEqual({ wake: look_max_ms, looked: null });
      expect(judge(run, unknown, last + closure_audit_ms + 1)).toEqual({ wake: null, looked: 'given_up' });
    });
  });
});

test('an effect that is found and lost again and again is a person’s to judge, not a circle without an end', () => {
  const lookedAt = (look_ups: number) => moveOf(exact('final'), counted(uncertain, { look_ups }));
  expect(lookedAt(2 * look_ups_max - 1)).toEqual(found);
  expect(lookedAt(2 * look_ups_max)).toEqual(parked('external_result_uncertain'));
});

describe('an overdue run', () => {
  const due = (state: Manifest['state'], overdue: DueRun['overdue'], attempt_id: string | null = null): DueRun => ({
    row: hotRow(approvedRun({ state })),
    overdue,
    attempt_id,
  });

  test.each<[string, DueRun, object]>([
    [
      'an attempt without an outcome → uncertain, looked up at once',
      due('executing', 'attempt', 'att_1'),
      { on: 'attempt_overdue', to: 'needs_reconciliation', code: 'external_result_uncertain', wake: stage_lease_ms },
    ],
    [
      'an approval → expired',
      due('awaiting_approval', 'approval'),
      { on: 'approval_expired', to: 'expired', code: 'approval_expired', wake: null },
    ],
    ...(['queued', 'preflight', 'collecting', 'proposed', 'awaiting_approval'] as const).map(
      (state): [string, DueRun, object] => [
        `the run in ${state} → failed`,
        due(state, 'run'),
        { on: 'deadline_passed', to: 'failed', code: 'deadline_exceeded', wake: null },
      ],
    ),
    [
      'the run in doubt → parked: a deadline ends no effect',
      due('needs_reconciliation', 'run'),
      { on: 'parked', to: 'needs_reconciliation', code: 'deadline_exceeded', wake: null },
    ],
    [
      'the run in verifying → looked up: a deadline ends no effect',
      due('verifying', 'run'),
      { on: 'deadline_passed', to: 'needs_reconciliation', code: 'deadline_exceeded', wake: stage_lease_ms },
    ],
  ])('%s', (_, item, expected) => {
    const commit = decideOverdue(item, terms.durations);
    if (commit === undefined) throw new Error('nothing was decided');
    const rule = transitionRule(item.row.state, commit.on);
    expect(rule?.by).toContain('reconciler');
    expect(rule?.to).toBe(commit.to);
    for (const fact of Object.keys(commit.facts)) expect(rule?.facts).toContain(fact);
    expect(commit).toMatchObject({ run_id: item.row.run_id, expected: item.row.revision, from: item.row.state });
    expect({ on: commit.on, to: commit.to, code: commit.facts.stop_reason?.code, wake: commit.wake_in_ms }).toEqual(
      expected,
    );
  });

  test('closes the attempt that is overdue as uncertain, and no other', () => {
    expect(decideOverdue(due('executing', 'attempt', 'att_7'), terms.durations)?.facts.attempt_outcome).toMatchObject({
      attempt_id: 'att_7',
      status: 'uncertain',
      provider_ref: null,
    });
    expect(() => decideOverdue(due('executing', 'attempt'), terms.durations)).toThrow('without an attempt');
  });

  test('that only needs a hint is not committed', () => {
    expect(decideOverdue(due('verifying', null), terms.durations)).toBeUndefined();
  });
});
