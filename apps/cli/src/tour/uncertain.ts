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
        state: 'completed',
        through: ['executing', 'needs_reconciliation', 'executing', 'verifying'],
        refunds: [AMOUNT_MINOR],
        requests: 2,
      },
    },
    {
      kind: 'run',
      name: 'connection cut before acceptance, twice',
      world: { fault: { kind: 'cut_before_accept', times: 2 } },
      steps: APPROVED,
      expected: {
        state: 'needs_reconciliation',
        stop: 'effect_not_found',
        parked: true,
        through: ['executing', 'needs_reconciliation', 'executing', 'needs_reconciliation'],
        refunds: [],
        requests: 2,
      },
    },
    {
      kind: 'run',
      name: 'error 500 after acceptance',
      world: { fault: { kind: 'error_after_accept', status: 500, code: 'oops' } },
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
      name: 'refund not visible yet',
      world: { fault: { kind: 'hidden_from_reads', hide_ms: 1_500 } },
      steps: APPROVED,
      expected: {
        state: 'completed',
        through: ['verifying', 'verifying', 'completed'],
        refunds: [AMOUNT_MINOR],
        requests: 1,
      },
    },
    {
      kind: 'run',
      name: 'pending, later failed',
      world: { fault: { kind: 'pending_then_failed', after_ms: 500 } },
      steps: APPROVED,
      expected: { state: 'failed', stop: 'settlement_failed', refunds: [AMOUNT_MINOR], requests: 1 },
    },
    {
      kind: 'run',
      name: 'an equal refund without our reference',
      world: { fault: { kind: 'metadata_lost' } },
      steps: APPROVED,
      expected: {
        state: 'needs_reconciliation',
        stop: 'verification_mismatch',
        parked: true,
        says: 'run_id',
        refunds: [AMOUNT_MINOR],
        requests: 1,
      },
    },
  ],
};
