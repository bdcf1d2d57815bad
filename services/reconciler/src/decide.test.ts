import type { Observation, Settlement } from '@counterstamp/connectors';
import {
  type Attempt,
  backoffMs,
  type DueRun,
  epochMs,
  LIMITS,
  type Manifest,
  PROFILES,
  type StopReasonCode,
  settleMs,
  transitionRule,
} from '@counterstamp/manifest-core';
import { describe, expect, test } from 'vitest';
import { at, attempt, counted, hotRow, loaded, START_MS } from '../../../testing/manifest-builder.ts';
import { approvedRun, effect } from '../../../testing/refund-case.ts';
import { decideLook, decideOverdue } from './decide.ts';

const VISIBILITY_MS = 300;
const terms = { durations: PROFILES.fast, limits: LIMITS, visibilityMs: VISIBILITY_MS };
const { look_min_ms, look_max_ms, stage_lease_ms } = terms.durations;
const { look_ups_max, verification_waits_max } = LIMITS;

const approved = approvedRun();
const inDoubt = (attempts: Attempt[], change: Partial<Manifest> = {}): Manifest => ({
  ...approvedRun({ state: 'needs_reconciliation', attempts, ...change }),
  stop_reason: { code: 'external_result_uncertain', message: 'x' },
});
const uncertain = inDoubt([attempt(approved)]);

function moveOf(observation: Observation, run = uncertain, nowMs = START_MS) {
  const decision = decideLook(loaded(run, nowMs), observation, terms);
  if (decision.kind !== 'commit') throw new Error(`decided ${decision.kind}`);
  const rule = transitionRule('needs_reconciliation', decision.on);
  expect(rule?.by).toContain('reconciler');
  for (const fact of Object.keys(decision.facts)) expect(rule?.facts).toContain(fact);
  const { observation: seen, stop_reason, parked_reason, retry_allowed } = decision.facts;
  expect(retry_allowed).toBeUndefined();
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
const neverSent = { on: 'never_sent', to: 'failed', seen: undefined, code: 'not_sent', wake: null };

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

describe('absence', () => {
  // call_deadline is kept in microseconds and read in milliseconds rounded down: one more is on the safe side.
  const settled = (deadlineMs: number) => deadlineMs + 1 + settleMs(terms.durations, VISIBILITY_MS);
  const edge = settled(START_MS + 2_000);

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

  test('is never the reason to send again', () => {
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

describe('a run of which nothing was ever sent', () => {
  const nothing = (n: number) =>
    attempt(approved, { n, status: 'not_sent', response: { class: 'not_sent', reason: `why_${n}` } });
  test.each<[string, Observation]>([
    ['nothing is found', absent],
    ['the look fails', unknown],
    ['a lookalike is found', lookalike],
  ])('is failed when %s, without waiting for settle', (_, observation) => {
    expect(moveOf(observation, inDoubt([nothing(1), nothing(2)]))).toEqual(neverSent);
  });
  test('says why of every attempt', () => {
    expect(decideLook(loaded(inDoubt([nothing(1), nothing(2)])), absent, terms)).toMatchObject({
      facts: { stop_reason: { message: expect.stringContaining('(why_1, why_2)') } },
    });
  });
  test('is not one with a single attempt that may have been sent', () => {
    expect(moveOf(absent, inDoubt([nothing(1), attempt(approved, { n: 2 })])).on).toBe('look_inconclusive');
  });
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
