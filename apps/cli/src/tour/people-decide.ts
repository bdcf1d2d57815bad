import { AMOUNT_MINOR, APPROVED, type ScenarioGroup } from './scenario.ts';

/** What people decide, and who may. */
export const PEOPLE_DECIDE: ScenarioGroup = {
  title: 'People decide',
  scenarios: [
    {
      kind: 'run',
      name: 'rejected by the approver',
      steps: [{ kind: 'decide', by: 'shop_north/approver', decision: 'reject' }],
      expected: { state: 'rejected', stop: 'approval_rejected', refunds: [], requests: 0 },
    },
    {
      kind: 'run',
      name: 'nobody decides',
      approval_life_ms: 1_500,
      expected: { state: 'expired', stop: 'approval_expired', refunds: [], requests: 0 },
    },
    {
      kind: 'run',
      name: 'approved with another digest, then rightly',
      steps: [
        {
          kind: 'decide',
          by: 'shop_north/approver',
          decision: 'approve',
          digest: 'another',
          refused: '409 digest_mismatch',
        },
        ...APPROVED,
      ],
      expected: {
        state: 'completed',
        refused: ['409 digest_mismatch'],
        refunds: [AMOUNT_MINOR],
        requests: 1,
      },
    },
    {
      kind: 'run',
      name: 'the requester’s key approves',
      steps: [
        { kind: 'decide', by: 'shop_north/requester', decision: 'approve', refused: '403 not_an_approver' },
        { kind: 'decide', by: 'shop_north/approver_2', decision: 'reject' },
      ],
      expected: {
        state: 'rejected',
        stop: 'approval_rejected',
        refused: ['403 not_an_approver'],
        refunds: [],
        requests: 0,
      },
    },
    {
      kind: 'run',
      name: 'another tenant’s keys',
      steps: [
        { kind: 'read', by: 'shop_south/auditor', refused: '404 run_not_found' },
        { kind: 'decide', by: 'shop_south/approver', decision: 'approve', refused: '404 run_not_found' },
        { kind: 'decide', by: 'shop_north/approver_2', decision: 'reject' },
      ],
      expected: {
        state: 'rejected',
        stop: 'approval_rejected',
        refused: ['404 run_not_found', '404 run_not_found'],
        refunds: [],
        requests: 0,
      },
    },
  ],
};
