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
      asked: { approval_life_ms: 1_500 },
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
    {
      kind: 'run',
      name: 'approved after the expiry',
      asked: { approval_life_ms: 1_500 },
      steps: [
        {
          kind: 'decide',
          by: 'shop_north/approver',
          decision: 'approve',
          once: 'expired',
          refused: '410 approval_expired',
        },
      ],
      expected: {
        state: 'expired',
        stop: 'approval_expired',
        refused: ['410 approval_expired'],
        refunds: [],
        requests: 0,
      },
    },
    {
      kind: 'run',
      name: 'cancelled before anything is sent',
      steps: [{ kind: 'cancel', by: 'shop_north/requester' }],
      expected: { state: 'rejected', stop: 'cancelled', refunds: [], requests: 0 },
    },
    {
      kind: 'run',
      name: 'large amount: two people',
      world: { amount_minor: 60_000 },
      asked: { amount_minor: 60_000 },
      steps: [...APPROVED, { kind: 'decide', by: 'shop_north/approver_2', decision: 'approve' }],
      expected: { state: 'completed', refunds: [60_000], requests: 1 },
    },
    {
      kind: 'run',
      name: 'payload changed while it waits: the old decision is void, a fresh one counts',
      steps: [
        { kind: 'propose', amount_minor: 3_900 },
        {
          kind: 'decide',
          by: 'shop_north/approver',
          decision: 'approve',
          shown: 'before',
          refused: '409 digest_mismatch',
        },
        ...APPROVED,
      ],
      expected: {
        state: 'completed',
        through: ['awaiting_approval', 'collecting', 'awaiting_approval'],
        refused: ['409 digest_mismatch'],
        refunds: [3_900],
        requests: 1,
      },
    },
    {
      kind: 'run',
      name: 'evidence changed before the send: asked anew',
      world: { amount_minor: 8_400, requested_amount_minor: AMOUNT_MINOR },
      steps: [{ kind: 'by_hand', amount_minor: 100 }, ...APPROVED, ...APPROVED],
      expected: {
        state: 'completed',
        through: ['awaiting_approval', 'collecting', 'awaiting_approval', 'executing'],
        refunds: [100, AMOUNT_MINOR],
        requests: 1,
      },
    },
    {
      kind: 'run',
      name: 'balance gone before the send',
      steps: [{ kind: 'by_hand', amount_minor: 4_000 }, ...APPROVED],
      expected: {
        state: 'failed',
        stop: 'precondition_failed',
        says: 'exceeds_refundable',
        refunds: [4_000],
        requests: 0,
      },
    },
  ],
};
