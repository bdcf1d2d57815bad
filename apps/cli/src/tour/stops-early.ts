import type { ScenarioGroup } from './scenario.ts';

const AT = '/input/requested_amount_minor';

/** What must stop before anybody is asked. */
export const STOPS_EARLY: ScenarioGroup = {
  title: 'Stops before anybody is asked',
  scenarios: [
    {
      kind: 'door',
      name: 'invalid amount',
      tries: [
        { what: 'zero', amount: '0', refused: `400 amount_not_positive at ${AT}` },
        { what: 'negative', amount: '-4200', refused: `400 amount_not_positive at ${AT}` },
        { what: 'fraction', amount: '42.5', refused: `400 amount_not_integer at ${AT}` },
        { what: 'missing', refused: `400 amount_missing at ${AT}` },
      ],
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
