import { AMOUNT_MINOR, APPROVED, type ScenarioGroup } from './scenario.ts';

/** Milliseconds of a hanging answer: beyond the 2 s that a call may take in the profile `fast`. */
const HOLD_MS = 6_000;

/** A timeout is not a failure: the effect is looked up, never repeated blindly. */
export const UNCERTAIN: ScenarioGroup = {
  title: 'Uncertain until looked up',
  scenarios: [
    {
      kind: 'run',
      name: 'timeout after acceptance',
      world: { fault: { kind: 'hang_after_accept', hold_ms: HOLD_MS } },
      steps: APPROVED,
      expected: {
        state: 'completed',
        through: ['executing', 'needs_reconciliation', 'verifying'],
        refunds: [AMOUNT_MINOR],
        requests: 1,
      },
    },
    {
      kind: 'run',
      name: 'connection cut after acceptance',
      world: { fault: { kind: 'cut_after_accept' } },
      steps: APPROVED,
      expected: {
        state: 'completed',
        through: ['executing', 'needs_reconciliation', 'verifying'],
        refunds: [AMOUNT_MINOR],
        requests: 1,
      },
    },
    {
      kind: 'run',
      name: 'connection cut before acceptance',
      world: { fault: { kind: 'cut_before_accept' } },
      steps: APPROVED,
      expected: {
        state: 'needs_reconciliation',
        stop: 'effect_not_found',
        parked: true,
        through: ['executing', 'needs_reconciliation'],
        refunds: [],
        requests: 1,
      },
    },
  ],
};
