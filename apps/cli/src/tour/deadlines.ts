import { AMOUNT_MINOR, APPROVED, type ScenarioGroup } from './scenario.ts';

/** Milliseconds of a run that is to end by its own deadline. */
const SHORT_MS = 1_500;

/** The deadline of the whole run ends it in whatever phase it is, and after a dispatch it ends no effect. */
export const DEADLINES: ScenarioGroup = {
  title: 'The run’s own deadline',
  scenarios: [
    {
      kind: 'run',
      name: 'while the request cannot be read',
      world: { fault: { kind: 'read_error', status: 503, times: 'always', endpoint: 'shop_request' } },
      asked: { run_life_ms: SHORT_MS },
      expected: { state: 'failed', stop: 'deadline_exceeded', refunds: [], requests: 0 },
    },
    {
      kind: 'run',
      name: 'while a proposal is missing',
      asked: { run_life_ms: SHORT_MS, proposer: 'external' },
      expected: { state: 'failed', stop: 'deadline_exceeded', refunds: [], requests: 0 },
    },
    {
      kind: 'run',
      name: 'while an approval is missing',
      asked: { run_life_ms: SHORT_MS },
      expected: { state: 'failed', stop: 'deadline_exceeded', refunds: [], requests: 0 },
    },
    {
      kind: 'run',
      name: 'while the refund is pending',
      world: { fault: { kind: 'pending_then_succeeded', after_ms: 600_000 } },
      asked: { run_life_ms: 8_000 },
      steps: APPROVED,
      expected: {
        state: 'needs_reconciliation',
        stop: 'deadline_exceeded',
        parked: true,
        through: ['verifying', 'needs_reconciliation'],
        refunds: [AMOUNT_MINOR],
        requests: 1,
      },
    },
  ],
};
