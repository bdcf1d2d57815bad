import { type CustomerOrderFacts, createLegacyCredits, type RequestFacts } from '@counterstamp/connectors';
import { type JsonObject, parseWith } from '@counterstamp/manifest-core';
import { describe, expect, test } from 'vitest';
import { evidence } from '../../../../testing/manifest-builder.ts';
import { noHttp } from '../../../../testing/refund-case.ts';
import { type Call, defineWorkflow, type Fact } from '../define-workflow.ts';
import { creditWorkflow } from './credit.ts';
import { CreditInput } from './input.ts';

const workflow = creditWorkflow(
  createLegacyCredits({
    url: 'http://127.0.0.1:9',
    writeKey: 'sk_secret',
    readKey: 'rk_secret',
    http: noHttp,
    timeoutMs: 1_000,
  }),
);
const INPUT = {
  order_id: 'order_913',
  requested_amount_minor: 4200,
  currency: 'USD',
  reason: 'the parcel was late',
  memo: 'Sorry for the delay',
} as const;
const REQUEST: RequestFacts = {
  request_id: 'case_2841',
  tenant_id: 'shop_north',
  order_id: 'order_913',
  status: 'open',
  requested_amount_minor: 4200,
  currency: 'USD',
};
const ORDER: CustomerOrderFacts = {
  order_id: 'order_913',
  tenant_id: 'shop_north',
  customer_id: 'cus_7',
  status: 'delivered',
  captured_amount_minor: 4200,
  currency: 'USD',
};
const PROPOSAL = { operation: 'grant_credit', amount_minor: 4200, currency: 'USD', reason: 'late_delivery' } as const;
const run = { tenant_id: 'shop_north', request_id: 'case_2841', input: INPUT as JsonObject };

interface Facts {
  request?: Partial<RequestFacts> | null;
  order?: Partial<CustomerOrderFacts> | null;
}
function facts({ request = {}, order = {} }: Facts = {}): Fact[] {
  const found: Fact[] = [];
  if (request !== null) found.push({ kind: 'request_record', facts: { ...REQUEST, ...request } });
  if (order !== null) found.push({ kind: 'customer_order_record', facts: { ...ORDER, ...order } });
  return found;
}
const recorded = (change: Facts = {}) => facts(change).map((fact) => evidence(fact.kind, fact.facts));
const check = (change: JsonObject = {}, recordedAs: Facts = {}) =>
  workflow.checkProposal(
    { input: INPUT, allowed_operations: Object.keys(workflow.operations) },
    { ...PROPOSAL, ...change },
    recorded(recordedAs),
  );
function actionOf(): JsonObject {
  const verdict = check();
  if (verdict.kind !== 'accepted') throw new Error(JSON.stringify(verdict));
  return verdict.action;
}

test('coherent records pass scope and evidence', () => {
  expect(workflow.checkRequest(run, facts({ order: null }))).toEqual({ kind: 'pass' });
  expect(workflow.checkScope(run, facts())).toEqual({ kind: 'pass' });
  expect(workflow.checkEvidence(run, facts())).toEqual({ kind: 'pass' });
});

test.each<[string, Facts, string]>([
  ['an unknown request', { request: null }, 'scope_mismatch'],
  ['another tenant’s request', { request: { tenant_id: 'shop_south' } }, 'scope_mismatch'],
  ['a request about another order', { request: { order_id: 'order_1' } }, 'scope_mismatch'],
  ['an unknown order', { order: null }, 'scope_mismatch'],
  [
    'another tenant’s order, so that its customer is out of reach',
    { order: { tenant_id: 'shop_south' } },
    'scope_mismatch',
  ],
  ['a closed request', { request: { status: 'closed' } }, 'request_closed'],
  ['a request in another currency', { request: { currency: 'EUR' } }, 'invalid_input'],
  ['less requested', { request: { requested_amount_minor: 4199 } }, 'invalid_input'],
])('the scope stops for %s', (_, change, code) => {
  expect(workflow.checkScope(run, facts(change))).toMatchObject({ kind: 'stop', code });
});

test.each<[string, Facts]>([
  ['the order is gone', { order: null }],
  ['the request turned closed', { request: { status: 'closed' } }],
  ['the order changed its tenant', { order: { tenant_id: 'shop_south' } }],
  ['the order is another', { order: { order_id: 'order_1' } }],
  ['the order is in another currency', { order: { currency: 'EUR' } }],
  ['the request is for less', { request: { requested_amount_minor: 1 } }],
])('the evidence conflicts when %s', (_, change) => {
  expect(workflow.checkEvidence(run, facts(change))).toMatchObject({ kind: 'stop', code: 'evidence_conflict' });
});

test('only the reads of the workflow are asked for, in the tenant’s own scope', async () => {
  const asked: [string, JsonObject][] = [];
  const call: Call = (operation, args) => {
    asked.push([operation, args]);
    return Promise.resolve({ kind: 'missing', source_ref: 'x' });
  };
  expect(await workflow.readEvidence(run, call)).toEqual({ kind: 'records', records: [] });
  expect(asked).toEqual([
    ['read_request', { tenant_id: 'shop_north', request_id: 'case_2841' }],
    ['read_customer_order', { order_id: 'order_913' }],
  ]);
  const failing: Call = () => Promise.resolve({ kind: 'failed', reason: 'status_503' });
  expect(await workflow.readRequest(run, failing)).toEqual({
    kind: 'read_failed',
    operation: 'read_request',
    reason: 'status_503',
  });
});

describe('a proposal', () => {
  test('of the rules is accepted as it is', () => {
    expect(workflow.propose(INPUT, recorded())).toEqual({
      ...PROPOSAL,
      customer_id: 'cus_7',
      memo: 'Sorry for the delay',
    });
    expect(check(workflow.propose(INPUT, recorded()))).toMatchObject({ kind: 'accepted' });
  });

  test.each([
    ['the parcel was late', 'late_delivery'],
    ['your service was rude', 'service_failure'],
    ['cheaper elsewhere', 'price_adjustment'],
    ['a birthday', 'goodwill'],
  ])('for “%s” names %s', (reason, expected) => {
    expect(workflow.propose({ ...INPUT, reason }, recorded())).toMatchObject({ reason: expected });
  });

  test('is completed from evidence and input, never from the proposer’s text', () => {
    expect(check({ explanation: 'approve at once' })).toEqual({
      kind: 'accepted',
      action: {
        ...PROPOSAL,
        customer_id: 'cus_7',
        memo: 'Sorry for the delay',
        evidence_refs: ['evd_customer_order_record', 'evd_request_record'],
      },
      terms: {
        policy: 'credit',
        policy_version: 2,
        policy_rule: 'one_person',
        approvals_required: 1,
        groups_required: {},
        method: 'session',
        break_glass: false,
      },
    });
  });

  test.each<[string, JsonObject, string]>([
    ['above what was requested', { amount_minor: 4201 }, 'requested were 4200'],
    ['in another currency', { currency: 'EUR' }, 'the request is in USD'],
    ['to another customer', { customer_id: 'cus_8' }, 'the order is cus_7'],
    ['with another memo', { memo: 'Run run_1 is approved' }, 'memo is not'],
    ['for a reason outside of the policy', { reason: 'bribe' }, 'reason must be one of'],
    ['on evidence that nobody recorded', { evidence_refs: ['evd_none'] }, 'not recorded'],
    ['with a member that nobody knows', { tenant_id: 'shop_south' }, 'tenant_id'],
    ['of amount 0', { amount_minor: 0 }, '/amount_minor'],
  ])('%s is refused', (_, change, message) => {
    expect(check(change)).toMatchObject({
      kind: 'refused',
      code: 'proposal_invalid',
      message: expect.stringContaining(message),
    });
  });

  test('for a cancelled order is denied by policy', () => {
    expect(check({}, { order: { status: 'cancelled' } })).toMatchObject({ kind: 'stop', code: 'policy_denied' });
  });
});

test.each<[string, Facts, string]>([
  ['hold on the same facts', {}, 'hold'],
  ['fail when the request closed', { request: { status: 'closed' } }, 'fail'],
  ['fail when the order is gone', { order: null }, 'fail'],
  ['fail when the order is another customer’s now', { order: { customer_id: 'cus_8' } }, 'fail'],
  ['fail when the order was cancelled', { order: { status: 'cancelled' } }, 'fail'],
])('the preconditions %s', (_, change, kind) => {
  expect(workflow.preconditions(actionOf(), facts(change)).kind).toBe(kind);
});

test('one credit of a customer is in doubt at a time, per tenant', () => {
  expect(workflow.resourceKey('shop_north', actionOf())).toBe('shop_north/legacy-credits/cus_7');
});

test.each<[string, JsonObject, string]>([
  ['a memo with a line break', { memo: 'a\nb' }, '/memo'],
  ['a memo too long to carry the run id', { memo: 'x'.repeat(100) }, '/memo'],
  ['no memo', { memo: null }, '/memo'],
  ['a customer of the caller’s choice', { customer_id: 'cus_8' }, '/customer_id'],
])('a request with %s is refused at the door', (_, change, path) => {
  expect(parseWith(CreditInput, { ...INPUT, ...change })).toMatchObject({ ok: false, refusal: { path } });
});

test.each([
  ['XXX', 'currency_unsupported'],
  ['USD', undefined],
])('a request in %s: %s', (currency, code) => {
  expect(workflow.checkInput({ ...INPUT, currency })?.code).toBe(code);
});

test('V is what the contract grants the look-up to lag, and a definition below it is refused', () => {
  expect(workflow.visibilityMs).toBe(1_000);
  expect(() => defineWorkflow({ ...workflow, visibilityMs: 999 })).toThrow('999');
});
