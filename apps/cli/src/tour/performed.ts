import { AMOUNT_MINOR, APPROVED, type ScenarioGroup } from './scenario.ts';

/** What is approved is performed once, and proved by a separate read. */
export const PERFORMED: ScenarioGroup = {
  title: 'Performed once, then proved',
  scenarios: [
    {
      kind: 'run',
      name: 'happy path',
      steps: APPROVED,
      expected: {
        state: 'completed',
        through: ['awaiting_approval', 'executing', 'verifying'],
        refunds: [AMOUNT_MINOR],
        requests: 1,
      },
    },
    {
      kind: 'run',
      name: 'clear rejection by the provider',
      world: { fault: { kind: 'reject', status: 402, code: 'charge_disputed' } },
      steps: APPROVED,
      expected: { state: 'failed', stop: 'effect_rejected', through: ['executing'], refunds: [], requests: 1 },
    },
    {
      kind: 'run',
      name: 'pending, later succeeded',
      world: { fault: { kind: 'pending_then_succeeded', after_ms: 1_500 } },
      steps: APPROVED,
      expected: { state: 'completed', through: ['verifying', 'verifying'], refunds: [AMOUNT_MINOR], requests: 1 },
    },
    {
      kind: 'run',
      name: 'another amount booked',
      world: { amount_minor: 6_000, fault: { kind: 'other_amount', amount: 4_300 } },
      steps: APPROVED,
      expected: {
        state: 'needs_reconciliation',
        stop: 'verification_mismatch',
        parked: true,
        says: 'amount_minor: approved 4200, observed 4300',
        refunds: [4_300],
        requests: 1,
      },
    },
  ],
};
