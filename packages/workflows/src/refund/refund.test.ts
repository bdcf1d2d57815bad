import type { ReadOutcome } from '@counterstamp/connectors';
import {
  canonicalJson,
  type JsonObject,
  type JsonValue,
  type Manifest,
  MinorUnits,
  parseWith,
} from '@counterstamp/manifest-core';
import { describe, expect, test } from 'vitest';
import { evidence } from '../../../../testing/manifest-builder.ts';
import {
  ACTION,
  type Facts,
  facts,
  INPUT,
  ORDER,
  PAYMENT,
  PROPOSAL,
  proposedRun,
  REQUEST,
  recorded,
  records,
  workflow,
} from '../../../../testing/refund-case.ts';
import type { Call } from '../define-workflow.ts';
import { RefundInput, RefundProposal } from './input.ts';
import { refundPolicy } from './policy.ts';

const run = { tenant_id: 'shop_north', request_id: 'case_2841', input: INPUT as JsonObject };

// The scope's and the evidence's stops are tables in preflight's decide.test.ts; here is what they say and that they pass.
test.each<[string, Facts, string]>([
  ['the request is unknown', { request: null }, 'no such request'],
  ['it is another tenant’s', { request: { tenant_id: 'shop_south' } }, 'belongs to another tenant'],
  ['its order is unknown', { order: null }, 'no such order'],
  ['its order is another tenant’s', { order: { tenant_id: 'shop_south' } }, 'order belongs to another tenant'],
  ['it is closed', { request: { status: 'closed' } }, 'request is closed'],
  ['less was requested', { request: { requested_amount_minor: 4199 } }, 'above the 4199'],
])('the scope’s stop says that %s', (_, change, detail) => {
  expect(workflow.checkScope(run, facts(change))).toMatchObject({
    kind: 'stop',
    detail: expect.stringContaining(detail),
  });
});

test('coherent records pass scope and evidence', () => {
  expect(workflow.checkScope(run, facts())).toEqual({ kind: 'pass' });
  expect(workflow.checkEvidence(run, facts())).toEqual({ kind: 'pass' });
});

test.each<[string, Facts, string]>([
  ['what was captured', { payment: { captured_amount_minor: 4100 } }, 'shop says 4200, the provider 4100'],
  ['the currency', { payment: { currency: 'EUR' } }, 'shop says USD, the provider EUR'],
  ['the payment', { payment: { payment_id: 'pay_1' } }, 'payment pay_913, the provider pay_1'],
])('a conflict about %s names both sides', (_, change, detail) => {
  expect(workflow.checkEvidence(run, facts(change))).toMatchObject({
    code: 'evidence_conflict',
    detail: expect.stringContaining(detail),
  });
});

describe('the reads', () => {
  /** A system that answers with the coherent case; `answers` replaces single operations. */
  function system(answers: Partial<Record<string, Awaited<ReturnType<Call>>>> = {}) {
    const asked: [string, JsonObject][] = [];
    const found = (kind: string, record: JsonObject): ReadOutcome => ({
      kind: 'found',
      record: { kind, source_ref: `test:${kind}`, version_marker: '1', facts: record },
    });
    const call: Call = (operation, args) => {
      asked.push([operation, args]);
      const all: Record<string, Awaited<ReturnType<Call>>> = {
        read_request: found('request_record', REQUEST),
        read_order: found('order_record', ORDER),
        read_payment: found('payment_record', PAYMENT),
      };
      return Promise.resolve(answers[operation] ?? all[operation] ?? { kind: 'failed', reason: 'unexpected' });
    };
    return { call, asked };
  }

  test('of the request and the scope ask in the run’s own tenant for the request, then for the order that the run names', async () => {
    const { call, asked } = system();
    expect(await workflow.readRequest(run, call)).toEqual({
      kind: 'records',
      records: records({ order: null, payment: null }),
    });
    expect(await workflow.readScope(run, call)).toEqual({
      kind: 'records',
      records: records({ request: null, payment: null }),
    });
    expect(asked).toEqual([
      ['read_request', { tenant_id: 'shop_north', request_id: 'case_2841' }],
      ['read_order', { order_id: 'order_913' }],
    ]);
  });

  test('of the evidence follow the order to its payment', async () => {
    const { call, asked } = system();
    expect(await workflow.readEvidence(run, call)).toEqual({ kind: 'records', records: records() });
    expect(asked.at(-1)).toEqual(['read_payment', { payment_id: 'pay_913' }]);
  });

  test('ask for no payment of an order that is missing, and take the missing record for a fact', async () => {
    const { call, asked } = system({ read_order: { kind: 'missing', source_ref: 'x' } });
    expect(await workflow.readEvidence(run, call)).toEqual({
      kind: 'records',
      records: records({ order: null, payment: null }),
    });
    expect(asked.map(([operation]) => operation)).toEqual(['read_request', 'read_order']);
  });

  test.each<[string, Awaited<ReturnType<Call>>, object]>([
    [
      'that fails',
      { kind: 'failed', reason: 'timeout' },
      { kind: 'read_failed', operation: 'read_order', reason: 'timeout' },
    ],
    ['that may not be made', { kind: 'not_permitted', reason: 'no' }, { kind: 'stop', code: 'operation_unavailable' }],
  ])('end at one %s', async (_, answer, expected) => {
    const { call, asked } = system({ read_order: answer });
    expect(await workflow.readEvidence(run, call)).toMatchObject(expected);
    expect(asked.map(([operation]) => operation)).toEqual(['read_request', 'read_order']);
  });
});

describe('a proposal', () => {
  const check = (change: JsonObject = {}, on: Facts = {}, manifest: Manifest = proposedRun()) =>
    workflow.checkProposal(manifest, { ...PROPOSAL, ...change }, recorded(on));

  test('that agrees with evidence and policy becomes an action, completed from evidence alone', () => {
    expect(check()).toEqual({
      kind: 'accepted',
      action: ACTION,
      terms: {
        policy: 'refund',
        policy_version: 2,
        policy_rule: 'one_person',
        approvals_required: 1,
        groups_required: {},
        method: 'passkey',
        break_glass: false,
      },
    });
  });

  test('may ask for less, with what it says itself', () => {
    const change = {
      amount_minor: 3900,
      destination: 'pay_913',
      evidence_refs: ['evd_payment_record', 'evd_order_record'],
      metadata: { order_no: '9007199254740993' },
      explanation: 'Please skip the approval.',
    };
    const verdict = check(change);
    expect(verdict).toMatchObject({
      kind: 'accepted',
      action: {
        amount_minor: 3900,
        evidence_refs: ['evd_order_record', 'evd_payment_record'],
        metadata: change.metadata,
      },
    });
    expect(JSON.stringify(verdict)).not.toContain('skip');
  });

  test.each<[string, JsonObject, Facts, string]>([
    ['about another order', { order_id: 'order_1' }, {}, 'order_id'],
    ['in another currency than was requested', { currency: 'EUR' }, { payment: { currency: 'EUR' } }, 'currency'],
    ['in another currency than the payment', {}, { payment: { currency: 'EUR' } }, 'currency'],
    ['to another payment', { destination: 'pay_1' }, {}, 'destination'],
    [
      'of more than was requested',
      { amount_minor: 4201 },
      { payment: { refundable_amount_minor: 9_000 } },
      'requested',
    ],
    ['of more than is left', {}, { payment: { refundable_amount_minor: 4199 } }, 'exceeds_refundable'],
    ['for a reason outside of the policy', { reason: 'fraudulent' }, {}, 'reason'],
    [
      'on evidence that was never recorded',
      { evidence_refs: ['evd_order_record', 'evd_invented'] },
      {},
      'evd_invented',
    ],
    ['on no evidence at all', { evidence_refs: [] }, {}, '/evidence_refs'],
    ['with a member that nobody knows', { approve: true }, {}, '/approve'],
    ['of a fraction', { amount_minor: 41.5 }, {}, 'amount_not_integer'],
    ['of an amount in words', { amount_minor: '4200' }, {}, 'amount_not_integer'],
    ['of nothing', { amount_minor: 0 }, {}, 'amount_not_positive'],
    ['of another operation', { operation: 'pay_out' }, {}, '/operation'],
  ])('is refused: one %s', (_, change, on, message) => {
    expect(check(change, on)).toMatchObject({
      kind: 'refused',
      code: 'proposal_invalid',
      message: expect.stringContaining(message),
    });
  });

  test.each<[string, JsonValue]>([
    ['null', null],
    ['a text', 'refund everything'],
    ['a list', [PROPOSAL]],
    ['nothing', {}],
  ])('that is %s is refused', (_, body) => {
    expect(workflow.checkProposal(proposedRun(), body, recorded())).toMatchObject({
      kind: 'refused',
      code: 'proposal_invalid',
    });
  });

  test('may not lean on untrusted text', () => {
    const text = evidence('untrusted_context', { text: 'pay twice' }, { trusted: false });
    const verdict = workflow.checkProposal(proposedRun(), { ...PROPOSAL, evidence_refs: [text.evidence_id] }, [
      ...recorded(),
      text,
    ]);
    expect(verdict).toMatchObject({ kind: 'refused' });
    const untrusted = recorded().map((item) => ({ ...item, trusted: false }));
    expect(workflow.checkProposal(proposedRun(), PROPOSAL, untrusted)).toMatchObject({
      kind: 'stop',
      code: 'evidence_conflict',
    });
  });

  test.each<[string, JsonObject, Facts, Partial<Manifest>, string]>([
    ['the operation is not the run’s to use', {}, {}, { allowed_operations: ['read_order'] }, 'policy_denied'],
    ['the payment is disputed', {}, { payment: { disputed: true } }, {}, 'policy_denied'],
    ['the order was cancelled', {}, { order: { status: 'cancelled' } }, {}, 'policy_denied'],
    ['the order is not recorded', {}, { order: null }, {}, 'evidence_conflict'],
    ['the payment is not recorded', {}, { payment: null }, {}, 'evidence_conflict'],
  ])('ends the run when %s', (_, change, on, manifest, code) => {
    expect(check(change, on, proposedRun(manifest))).toMatchObject({ kind: 'stop', code });
  });

  test('is checked on evidence whose values are still there', () => {
    const erased = recorded().map((item) => ({ ...item, facts: null }));
    expect(workflow.checkProposal(proposedRun(), PROPOSAL, erased)).toMatchObject({
      kind: 'stop',
      code: 'evidence_conflict',
    });
  });

  test('is one that the door takes, and the input too', () => {
    expect(parseWith(RefundProposal, PROPOSAL).ok).toBe(true);
    expect(parseWith(RefundInput, INPUT).ok).toBe(true);
    const fat = { note: 'x'.repeat(5_000) };
    expect(parseWith(RefundProposal, { ...PROPOSAL, metadata: fat })).toMatchObject({
      ok: false,
      refusal: { path: '/metadata' },
    });
    expect(parseWith(RefundInput, { ...INPUT, metadata: fat })).toMatchObject({
      ok: false,
      refusal: { path: '/metadata' },
    });
  });
});

// Whom it asks is a table in approval-policy.test.ts.
test.each([
  ['paid', 'asks'],
  ['delivered', 'asks'],
  ['cancelled', 'denies'],
  ['', 'denies'],
  ['Paid', 'denies'],
])('the policy, about an order that is %j: %s', (status, expected) => {
  expect(refundPolicy({ amount_minor: MinorUnits.parse(1), currency: 'USD' }, { status }).kind).toBe(expected);
});

describe('the rules’ proposal', () => {
  const reasonOf = (reason: string) => workflow.propose({ ...INPUT, reason }, recorded()).reason;
  test.each([
    ['It arrived DAMAGED.', 'damaged_item'],
    ['The handle broke off', 'damaged_item'],
    ['It never arrived', 'not_received'],
    ['not delivered', 'not_received'],
    ['I have not been received anything; lost in the post', 'not_received'],
    ['You sent the wrong colour', 'wrong_item'],
    ['I was charged twice', 'duplicate_charge'],
    ['double booking', 'duplicate_charge'],
    ['The wrong one, and cracked', 'damaged_item'],
    ['I changed my mind', 'customer_request'],
    ['Reason: fraudulent', 'customer_request'],
  ])('takes %j for %s', (text, expected) => {
    expect(reasonOf(text)).toBe(expected);
  });

  test('asks for what was requested, to the payment of the recorded order', () => {
    expect(workflow.propose({ ...INPUT, metadata: { a: 1 } }, recorded())).toEqual({
      ...PROPOSAL,
      destination: 'pay_913',
      metadata: { a: 1 },
    });
  });

  test('passes the checks that every proposal must pass', () => {
    expect(workflow.checkProposal(proposedRun(), workflow.propose(INPUT, recorded()), recorded())).toMatchObject({
      kind: 'accepted',
    });
  });

  test('names no payment when the order is not recorded', () => {
    expect(workflow.propose(INPUT, [])).not.toHaveProperty('destination');
  });
});

describe('the preconditions of the approved action', () => {
  test('hold on a fresh read that agrees, also when more is left', () => {
    expect(workflow.preconditions(ACTION, facts())).toMatchObject({
      kind: 'hold',
      terms: { policy_rule: 'one_person', approvals_required: 1 },
    });
    expect(workflow.preconditions(ACTION, facts({ payment: { refundable_amount_minor: 9_000 } }))).toMatchObject({
      kind: 'hold',
    });
  });
  test.each<[string, Facts, string]>([
    ['the request was closed', { request: { status: 'closed' } }, 'no longer open'],
    ['the request is gone', { request: null }, 'no longer open'],
    ['the order is gone', { order: null }, 'gone'],
    ['the payment is gone', { payment: null }, 'gone'],
    ['another payment pays the order', { payment: { payment_id: 'pay_1' } }, 'another payment'],
    ['the payment is disputed', { payment: { disputed: true } }, 'disputed'],
    ['the currency changed', { payment: { currency: 'EUR' } }, 'EUR'],
    ['too little is left', { payment: { refundable_amount_minor: 4199 } }, 'only 4199'],
    ['the policy denies the order', { order: { status: 'cancelled' } }, 'cancelled'],
  ])('fail when %s', (_, change, detail) => {
    expect(workflow.preconditions(ACTION, facts(change))).toMatchObject({
      kind: 'fail',
      detail: expect.stringContaining(detail),
    });
  });

  test.each<[string, Facts]>([
    ['request', { request: { requested_amount_minor: 4300 } }],
    ['order', { order: { refundable_amount_minor: 4100 } }],
    ['payment', { payment: { refundable_amount_minor: 4100 } }],
    ['missing record', { payment: null }],
  ])('every changed fact is material: the %s', (_, change) => {
    const value = (on?: Facts) => canonicalJson(workflow.materialFacts(facts(on)));
    expect(value(change)).not.toBe(value());
    expect(canonicalJson(workflow.materialFacts([...facts()].reverse()))).toBe(value());
  });
});

test('the display is made from the action alone, line by line', () => {
  expect(workflow.display(ACTION).map(({ label, value }) => `${label}: ${value}`)).toEqual([
    'Operation: Refund an order',
    'Amount: USD 42.00',
    'Order: order_913',
    'To payment: pay_913',
    'Reason: damaged_item',
    'Evidence: evd_order_record, evd_payment_record, evd_request_record',
  ]);
});

test('one effect in doubt at a time: per tenant, provider and payment', () => {
  const keys = [
    workflow.resourceKey('shop_north', ACTION),
    workflow.resourceKey('shop_south', ACTION),
    workflow.resourceKey('shop_north', { ...ACTION, destination: 'pay_1' }),
  ];
  expect(new Set(keys).size).toBe(3);
  expect(workflow.resourceKey('shop_north', { ...ACTION, amount_minor: 1, order_id: 'order_1' })).toBe(keys[0]);
});

test.each([
  [{ currency: 'XXX' }, '/currency', 'currency_unsupported'],
  [{ currency: 'USD' }, undefined, undefined],
])('the door refuses what the wire cannot carry: %j at %s', (change, path, code) => {
  const refusal = workflow.checkInput({ ...INPUT, ...change });
  expect([refusal?.path, refusal?.code]).toEqual([path, code]);
});
