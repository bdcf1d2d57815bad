import {
  type Connector,
  displayRefund,
  OrderFacts,
  PaymentFacts,
  REFUND_REASONS,
  RefundAction,
  RequestFacts,
  type SourceRecord,
} from '@counterstamp/connectors';
import { type JsonObject, type JsonValue, parseWith } from '@counterstamp/manifest-core';
import type { z } from 'zod';
import {
  type Call,
  defineWorkflow,
  type Fact,
  type Gathered,
  type Verdict,
  type Workflow,
} from '../define-workflow.ts';
import { refundDoor } from './door.ts';
import { RefundInput, RefundProposal } from './input.ts';
import { refundPolicy } from './policy.ts';

/** Words in a request's free text that the proposer `rules` maps to a reason of the policy; the first match counts. */
const REASON_WORDS: readonly [RegExp, (typeof REFUND_REASONS)[number]][] = [
  [/damag|broke|crack|faulty/i, 'damaged_item'],
  [/never arrived|not (been )?(received|delivered)|lost in/i, 'not_received'],
  [/wrong|mistaken/i, 'wrong_item'],
  [/twice|duplicate|double/i, 'duplicate_charge'],
];

/** The reference workflow: refund an order through a payment provider, after one person (two above a tier) approved the exact bytes. */
export function refundWorkflow(connector: Connector): Workflow {
  return defineWorkflow({
    ...refundDoor,
    connector,
    effectOperation: 'refund_order',
    observeOperation: 'read_refund_status',
    limits: { proposal_cycles_max: 3 },
    action: RefundAction as z.ZodType<JsonObject>,

    verifiedFields: ['amount_minor', 'currency', 'destination', 'reason'],

    readRequest: (run, call) => gather(run, call, ['request_record']),

    checkRequest: requestInScope,

    readScope: (run, call) => gather(run, call, ['order_record']),

    checkScope({ tenant_id, input }, records) {
      const refund = RefundInput.parse(input);
      const request = factsOf(records, 'request_record', RequestFacts);
      const order = factsOf(records, 'order_record', OrderFacts);
      const scope = requestInScope({ tenant_id, input }, records);
      if (scope.kind !== 'pass' || request === undefined) return scope;
      if (order === undefined) return stop('scope_mismatch', 'There is no such order.');
      if (order.tenant_id !== tenant_id) return stop('scope_mismatch', 'The order belongs to another tenant.');
      if (request.status !== 'open') return stop('request_closed', `The request is ${request.status}.`);
      if (refund.currency !== request.currency)
        return stop('invalid_input', `The request is in ${request.currency}, the run in ${refund.currency}.`);
      if (refund.requested_amount_minor > request.requested_amount_minor) {
        return stop(
          'invalid_input',
          `The amount is above the ${request.requested_amount_minor} minor units that were requested.`,
        );
      }
      return { kind: 'pass' };
    },

    readEvidence: (run, call) => gather(run, call, ['request_record', 'order_record', 'payment_record']),

    checkEvidence({ tenant_id, input }, records) {
      const refund = RefundInput.parse(input);
      const request = factsOf(records, 'request_record', RequestFacts);
      const order = factsOf(records, 'order_record', OrderFacts);
      const payment = factsOf(records, 'payment_record', PaymentFacts);
      if (request === undefined || order === undefined)
        return stop('evidence_conflict', 'The request or its order is gone.');
      if (request.status !== 'open')
        return stop('evidence_conflict', `The request turned ${request.status} meanwhile.`);
      if (request.tenant_id !== tenant_id || order.tenant_id !== tenant_id)
        return stop('evidence_conflict', 'The request or its order changed its tenant meanwhile.');
      if (request.order_id !== refund.order_id || order.order_id !== refund.order_id)
        return stop('evidence_conflict', `The request is about order ${request.order_id}.`);
      if (refund.requested_amount_minor > request.requested_amount_minor)
        return stop('evidence_conflict', `The request is now for ${request.requested_amount_minor} minor units.`);
      if (request.currency !== refund.currency || order.currency !== refund.currency) {
        return stop(
          'evidence_conflict',
          `The run is in ${refund.currency}, the request in ${request.currency}, the order in ${order.currency}.`,
        );
      }
      if (payment === undefined)
        return stop(
          'evidence_conflict',
          `The shop names payment ${order.payment_id}, which the provider does not know.`,
        );
      if (payment.payment_id !== order.payment_id)
        return stop(
          'evidence_conflict',
          `The shop names payment ${order.payment_id}, the provider ${payment.payment_id}.`,
        );
      if (payment.currency !== order.currency)
        return stop('evidence_conflict', `The shop says ${order.currency}, the provider ${payment.currency}.`);
      if (payment.captured_amount_minor !== order.captured_amount_minor) {
        return stop(
          'evidence_conflict',
          `Captured: the shop says ${order.captured_amount_minor}, the provider ${payment.captured_amount_minor} minor units.`,
        );
      }
      return { kind: 'pass' };
    },

    propose(input, evidence) {
      const refund = RefundInput.parse(input);
      const order = factsOf(trusted(evidence), 'order_record', OrderFacts);
      const reason = REASON_WORDS.find(([words]) => words.test(refund.reason))?.[1] ?? 'customer_request';
      return {
        operation: 'refund_order',
        order_id: refund.order_id,
        amount_minor: refund.requested_amount_minor,
        currency: refund.currency,
        reason,
        ...(order === undefined ? {} : { destination: order.payment_id }),
        ...(refund.metadata === undefined ? {} : { metadata: refund.metadata }),
      };
    },

    checkProposal(run, body, evidence) {
      const parsed = parseWith(RefundProposal, body);
      if (!parsed.ok)
        return {
          kind: 'refused',
          code: 'proposal_invalid',
          message: `${parsed.refusal.code} at ${parsed.refusal.path || '/'}: ${parsed.refusal.detail}`,
        };
      const proposal = parsed.value;
      const input = RefundInput.parse(run.input);
      const records = trusted(evidence);
      const order = factsOf(records, 'order_record', OrderFacts);
      const payment = factsOf(records, 'payment_record', PaymentFacts);
      if (order === undefined || payment === undefined)
        return {
          kind: 'stop',
          code: 'evidence_conflict',
          detail: 'The evidence that the proposal needs is not recorded.',
        };

      const refuse = (message: string) => ({ kind: 'refused', code: 'proposal_invalid', message }) as const;
      if (!run.allowed_operations.includes(proposal.operation))
        return {
          kind: 'stop',
          code: 'policy_denied',
          detail: `${proposal.operation} is not among the run's allowed operations.`,
        };
      if (proposal.order_id !== input.order_id)
        return refuse(`order_id is ${proposal.order_id}, the request is about ${input.order_id}`);
      // The requested amount bounds the proposed one only while both count in the same unit.
      if (proposal.currency !== input.currency)
        return refuse(`currency is ${proposal.currency}, the request is in ${input.currency}`);
      if (proposal.currency !== payment.currency)
        return refuse(`currency is ${proposal.currency}, the payment is in ${payment.currency}`);
      if (proposal.destination !== undefined && proposal.destination !== payment.payment_id)
        return refuse(`destination is ${proposal.destination}, the order was paid by ${payment.payment_id}`);
      if (proposal.amount_minor > input.requested_amount_minor)
        return refuse(`amount_minor is ${proposal.amount_minor}, requested were ${input.requested_amount_minor}`);
      if (proposal.amount_minor > payment.refundable_amount_minor)
        return refuse(
          `exceeds_refundable: amount_minor is ${proposal.amount_minor}, refundable are ${payment.refundable_amount_minor}`,
        );
      if (payment.disputed) return { kind: 'stop', code: 'policy_denied', detail: 'The payment is disputed.' };
      const reason = REFUND_REASONS.find((known) => known === proposal.reason);
      if (reason === undefined) return refuse(`reason must be one of ${REFUND_REASONS.join(', ')}`);
      const refs = evidence.filter((item) => item.trusted).map((item) => item.evidence_id);
      const unknown = proposal.evidence_refs?.find((ref) => !refs.includes(ref));
      if (unknown !== undefined) return refuse(`evidence_refs names ${unknown}, which is not recorded for this run`);

      const policy = refundPolicy(proposal, order);
      if (policy.kind === 'denies') return { kind: 'stop', code: 'policy_denied', detail: policy.detail };
      const action: RefundAction = RefundAction.parse({
        operation: 'refund_order',
        order_id: proposal.order_id,
        amount_minor: proposal.amount_minor,
        currency: proposal.currency,
        destination: payment.payment_id,
        reason,
        evidence_refs: [...(proposal.evidence_refs ?? refs)].sort(),
        metadata: proposal.metadata ?? {},
      });
      return { kind: 'accepted', action, terms: policy.terms };
    },

    preconditions(action, fresh) {
      const refund = RefundAction.parse(action);
      const request = factsOf(fresh, 'request_record', RequestFacts);
      const order = factsOf(fresh, 'order_record', OrderFacts);
      const payment = factsOf(fresh, 'payment_record', PaymentFacts);
      const fail = (detail: string) => ({ kind: 'fail', detail }) as const;
      if (request?.status !== 'open') return fail('The request is no longer open.');
      if (order === undefined || payment === undefined) return fail('The order or its payment is gone.');
      if (payment.payment_id !== refund.destination) return fail('The order is now paid by another payment.');
      if (payment.disputed) return fail('The payment is disputed.');
      if (payment.currency !== refund.currency) return fail(`The payment is now in ${payment.currency}.`);
      if (payment.refundable_amount_minor < refund.amount_minor)
        return fail(`exceeds_refundable: only ${payment.refundable_amount_minor} minor units are left.`);
      const policy = refundPolicy(refund, order);
      return policy.kind === 'denies' ? fail(policy.detail) : { kind: 'hold', terms: policy.terms };
    },

    materialFacts: (records) => Object.fromEntries(records.map((record) => [record.kind, record.facts])) as JsonValue,

    display: (action) => displayRefund(RefundAction.parse(action)),

    resourceKey: (tenant_id, action) =>
      `${tenant_id}/${connector.contract.name}/${RefundAction.parse(action).destination}`,
  });
}

/** Whether the tenant has such a request, and the run is about its order. */
function requestInScope(run: { tenant_id: string; input: JsonObject }, records: readonly Fact[]): Verdict {
  const request = factsOf(records, 'request_record', RequestFacts);
  if (request === undefined) return stop('scope_mismatch', 'The tenant has no such request.');
  if (request.tenant_id !== run.tenant_id) return stop('scope_mismatch', 'The request belongs to another tenant.');
  if (request.order_id !== RefundInput.parse(run.input).order_id)
    return stop('scope_mismatch', 'The request is about another order.');
  return { kind: 'pass' };
}

/** Reads request, order and payment one after the other, as far as asked for. A missing record is a fact; a failed read is not. */
async function gather(
  run: { tenant_id: string; request_id: string; input: JsonObject },
  call: Call,
  wanted: readonly string[],
): Promise<Gathered> {
  const { order_id } = RefundInput.parse(run.input);
  const records: SourceRecord[] = [];
  const steps: [string, string, () => JsonObject | undefined][] = [
    ['request_record', 'read_request', () => ({ tenant_id: run.tenant_id, request_id: run.request_id })],
    ['order_record', 'read_order', () => ({ order_id })],
    [
      'payment_record',
      'read_payment',
      () => {
        const order = factsOf(records, 'order_record', OrderFacts);
        return order === undefined ? undefined : { payment_id: order.payment_id };
      },
    ],
  ];
  for (const [kind, operation, argsOf] of steps) {
    if (!wanted.includes(kind)) continue;
    const args = argsOf();
    if (args === undefined) continue;
    const outcome = await call(operation, args);
    switch (outcome.kind) {
      case 'found':
        records.push(outcome.record);
        break;
      case 'missing':
        break;
      case 'not_permitted':
        return { kind: 'stop', code: 'operation_unavailable', detail: `${outcome.reason}.` };
      case 'failed':
        return { kind: 'read_failed', operation, reason: outcome.reason };
    }
  }
  return { kind: 'records', records };
}

function stop(code: Extract<Verdict, { kind: 'stop' }>['code'], detail: string): Verdict {
  return { kind: 'stop', code, detail };
}

function trusted(evidence: readonly { kind: string; trusted: boolean; facts: JsonValue | null }[]): Fact[] {
  return evidence
    .filter((item) => item.trusted && item.facts !== null)
    .map((item) => ({ kind: item.kind, facts: item.facts as JsonObject }));
}

function factsOf<T>(records: readonly Fact[], kind: string, schema: z.ZodType<T>): T | undefined {
  const record = records.findLast((item) => item.kind === kind);
  return record === undefined ? undefined : schema.parse(record.facts);
}
