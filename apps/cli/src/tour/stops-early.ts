import { AMOUNT_MINOR, APPROVED, type ScenarioGroup } from './scenario.ts';

const AT = '/input/requested_amount_minor';

/** The members beside the amount. */
const REST = '"currency":"USD","reason":"item arrived damaged"';
const amount = (text: string) => `"requested_amount_minor":${text},${REST}`;

/** What must stop before anybody is asked. */
export const STOPS_EARLY: ScenarioGroup = {
  title: 'Stops before anybody is asked',
  scenarios: [
    {
      kind: 'door',
      name: 'invalid amount',
      tries: [
        { what: 'zero', members: amount('0'), refused: `400 amount_not_positive at ${AT}` },
        { what: 'negative', members: amount('-4200'), refused: `400 amount_not_positive at ${AT}` },
        { what: 'fraction', members: amount('42.5'), refused: `400 amount_not_integer at ${AT}` },
        { what: 'missing', members: REST, refused: `400 amount_missing at ${AT}` },
      ],
    },
    {
      kind: 'door',
      name: 'malformed request',
      tries: [
        {
          what: 'no currency',
          members: '"requested_amount_minor":4200,"reason":"x"',
          refused: '400 currency_missing at /input/currency',
        },
        {
          what: 'unexpected member',
          members: amount('4200,"approved":true'),
          refused: '400 unknown_member at /input/approved',
        },
        {
          what: 'a member twice',
          members: amount('4200,"requested_amount_minor":1'),
          refused: `400 duplicate_member at ${AT}`,
        },
        { what: 'beyond 2^53', members: amount('9007199254740993'), refused: `400 number_not_safe at ${AT}` },
        {
          what: 'half an emoji',
          members: amount('4200').replace('"currency"', '"metadata":{"a":"\\ud800"},"currency"'),
          refused: '400 text_not_well_formed at /input/metadata/a',
        },
        {
          what: 'currency that nobody carries',
          members: amount('4200').replace('USD', 'XXX'),
          refused: '400 currency_unsupported at /input/currency',
        },
      ],
    },
    {
      kind: 'run',
      name: 'more than was requested',
      world: { requested_amount_minor: 1_000 },
      expected: { state: 'failed', stop: 'invalid_input', refunds: [], requests: 0 },
    },
    {
      kind: 'run',
      name: 'an operation that the run may not use',
      asked: { allowed_operations: ['read_request', 'read_order', 'read_payment', 'refund_order'] },
      expected: { state: 'failed', stop: 'operation_unavailable', refunds: [], requests: 0 },
    },
    {
      kind: 'run',
      name: 'reads that keep failing',
      world: { fault: { kind: 'read_error', status: 503, times: 'always', endpoint: 'shop_order' } },
      expected: { state: 'failed', stop: 'attempt_limit', says: 'read_order failed 3 times', refunds: [], requests: 0 },
    },
    {
      kind: 'run',
      name: 'proposal above the balance, then one within',
      asked: { proposer: 'external' },
      steps: [{ kind: 'propose', amount_minor: 4_201 }, { kind: 'propose', amount_minor: 4_200 }, ...APPROVED],
      expected: {
        state: 'completed',
        through: ['proposed', 'collecting', 'proposed', 'awaiting_approval'],
        refunds: [AMOUNT_MINOR],
        requests: 1,
      },
    },
    {
      kind: 'run',
      name: 'proposal cycles exhausted',
      asked: { proposer: 'external' },
      steps: [
        { kind: 'propose', amount_minor: 9_001 },
        { kind: 'propose', amount_minor: 9_002 },
        { kind: 'propose', amount_minor: 9_003 },
      ],
      expected: { state: 'failed', stop: 'proposal_invalid', refunds: [], requests: 0 },
    },
    {
      kind: 'run',
      name: 'wrong tenant',
      world: { order_tenant_id: 'shop_south' },
      expected: { state: 'failed', stop: 'scope_mismatch', refunds: [], requests: 0 },
    },
    {
      kind: 'run',
      name: 'closed request',
      world: { request_status: 'closed' },
      expected: { state: 'failed', stop: 'request_closed', refunds: [], requests: 0 },
    },
    {
      kind: 'run',
      name: 'conflicting facts',
      world: { payment_captured_amount_minor: 9_900 },
      expected: { state: 'failed', stop: 'evidence_conflict', refunds: [], requests: 0 },
    },
  ],
};
