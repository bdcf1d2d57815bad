import type { Observation, Settlement } from '@counterstamp/connectors';
import { backoffMs, epochMs, LIMITS, PROFILES, type StopReasonCode, transitionRule } from '@counterstamp/manifest-core';
import { describe, expect, test } from 'vitest';
import { counted, loaded, START_MS } from '../../../testing/manifest-builder.ts';
import { approvedRun, effect, workflow } from '../../../testing/refund-case.ts';
import { decideVerification } from './decide.ts';

const { contract } = workflow;
const terms = { durations: PROFILES.fast, limits: LIMITS, contract };
const { look_min_ms, look_max_ms, closure_audit_ms } = terms.durations;
const verifying = approvedRun({ state: 'verifying' });

function moveOf(observation: Observation, waits = 0, nowMs = START_MS, judged = terms) {
  const run = counted(verifying, { verification_waits: waits });
  const decision = decideVerification(loaded(run, nowMs), observation, judged);
  if (decision.kind !== 'commit') throw new Error(`decided ${decision.kind}`);
  const rule = transitionRule('verifying', decision.on);
  expect(rule?.by).toContain('verifier');
  for (const fact of Object.keys(decision.facts)) expect(rule?.facts).toContain(fact);
  const { observation: seen, stop_reason, parked_reason } = decision.facts;
  return {
    on: decision.on,
    to: rule?.to,
    seen: seen?.kind,
    code: stop_reason?.code,
    parked: parked_reason ?? undefined,
    wake: decision.wake_in_ms,
  };
}

const exact = (settlement: Settlement, status = 'x'): Observation => ({
  kind: 'found',
  match: 'exact',
  effect: effect({ settlement, status }),
});
const different: Observation = {
  kind: 'found',
  match: 'different',
  effect: effect({ amount_minor: 4100 }),
  differing: [{ field: 'amount_minor', approved: '4200', observed: '4100' }],
};
const multiple: Observation = {
  kind: 'found',
  match: 'multiple',
  effects: [effect(), effect({ provider_ref: 're_2' })],
};
const lookalike: Observation = { kind: 'found', match: 'lookalike', effects: [effect({ run_id: null })] };
const absent: Observation = { kind: 'absent', strength: 'strong' };
const unknown: Observation = { kind: 'unknown', reason: 'timeout' };

// Both are looked at again: a settlement may turn, and a failed effect may turn out to be another (protocol rule 25).
const matched = { on: 'effect_verified', to: 'completed', seen: 'matched', wake: closure_audit_ms };
const failed = {
  on: 'settlement_failed',
  to: 'failed',
  seen: 'settlement_failed',
  code: 'settlement_failed' satisfies StopReasonCode,
  wake: closure_audit_ms,
};
const parked = {
  on: 'verification_failed',
  to: 'needs_reconciliation',
  seen: 'mismatched',
  code: 'verification_mismatch' satisfies StopReasonCode,
  parked: 'verification_mismatch',
  wake: null,
};
const WAITS: [string, Observation][] = [
  ['an exact effect that is pending', exact('pending')],
  ['an exact effect with a status nobody knows', exact('unrecognised')],
  ['only a lookalike', lookalike],
  ['nothing', absent],
  ['no answer', unknown],
];

describe('a read that settles the question, at any count and past the run’s deadline,', () => {
  const late = epochMs(verifying.deadlines.run) + 1;
  test.each<[string, Observation, object]>([
    ['an exact and final effect completes', exact('final'), matched],
    ['an exact effect that failed definitely fails', exact('failed'), failed],
    ['a different effect is parked', different, parked],
    ['several effects with our reference are parked', multiple, parked],
  ])('%s the run', (_, observation, expected) => {
    for (const [waits, nowMs] of [
      [0, START_MS],
      [LIMITS.verification_waits_max, START_MS],
      [0, late],
    ] as const)
      expect(moveOf(observation, waits, nowMs)).toEqual({ code: undefined, parked: undefined, ...expected });
  });

  test('a completed run is not looked at again where a final status never turns, or its workflow is gone', () => {
    const never = { ...terms, contract: { ...contract, reversalHorizonMs: 0 } };
    expect(moveOf(exact('final'), 0, START_MS, never)).toMatchObject({ on: 'effect_verified', wake: null });
    const gone = { ...terms, contract: undefined };
    expect(decideVerification(loaded(verifying), exact('final'), gone)).toMatchObject({ wake_in_ms: null });
  });

  test('names the fields in which the effect differs', () => {
    const decision = decideVerification(loaded(verifying), different, terms);
    expect(decision).toMatchObject({
      facts: {
        stop_reason: { message: expect.stringContaining('amount_minor: approved 4200, observed 4100') },
        observation: { provider_ref: 're_1', body: { differing: [{ field: 'amount_minor' }] } },
      },
    });
  });
  test('says so when several effects carry our reference', () => {
    expect(decideVerification(loaded(verifying), multiple, terms)).toMatchObject({
      facts: { stop_reason: { message: expect.stringContaining('Several effects') } },
    });
  });
});

describe.each(WAITS)('a read that shows %s', (_, observation) => {
  const { verification_waits_max } = LIMITS;

  test('completes nothing at any count', () => {
    for (let waits = 0; waits <= verification_waits_max; waits++)
      expect(moveOf(observation, waits).to).not.toBe('completed');
  });

  test.each([0, 1, 2, 5, verification_waits_max - 2])('is a counted wait after %i waits, backed off', (waits) => {
    expect(moveOf(observation, waits)).toEqual({
      on: 'verification_pending',
      to: 'verifying',
      seen: 'pending',
      code: undefined,
      parked: undefined,
      wake: backoffMs(waits, look_min_ms, look_max_ms),
    });
  });

  test.each([verification_waits_max - 1, verification_waits_max])(
    'is a matter of reconciliation after %i waits',
    (waits) => {
      expect(moveOf(observation, waits)).toEqual({
        on: 'verification_failed',
        to: 'needs_reconciliation',
        seen: 'not_found',
        code: 'verification_not_found',
        parked: undefined,
        wake: look_min_ms,
      });
    },
  );

  test.each([
    ['a millisecond before', -1, 'verification_pending'],
    ['at', 0, 'deadline_passed'],
    ['after', 1, 'deadline_passed'],
  ])('%s the run’s deadline leads on by %s ms: %s', (_when, offsetMs, on) => {
    expect(moveOf(observation, 0, epochMs(verifying.deadlines.run) + offsetMs).on).toBe(on);
  });

  test('hands the run over to reconciliation at its deadline, without parking it', () => {
    expect(moveOf(observation, 0, epochMs(verifying.deadlines.run))).toMatchObject({
      to: 'needs_reconciliation',
      code: 'deadline_exceeded',
      parked: undefined,
      wake: look_min_ms,
    });
  });
});
