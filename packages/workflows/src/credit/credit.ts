import {
  type Connector,
  CREDIT_REASONS,
  CreditAction,
  CustomerOrderFacts,
  displayCredit,
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
import { creditDoor } from './door.ts';
import { CreditInput, CreditProposal } from './input.ts';
import { creditPolicy } from './policy.ts';

/** Words in a request's free text that the proposer `rules` maps to a reason of the policy; the first match counts. */
const REASON_WORDS: readonly [RegExp, (typeof CREDIT_REASONS)[number]][] = [
  [/late|delay/i, 'late_delivery'],
  [/outage|failed|rude|service/i, 'service_failure'],
  [/price|cheaper/i, 'price_adjustment'],
];

/** Grants a customer a credit through a system that keeps no idempotency keys, after one person (two above a tier) approved the exact bytes. */
export function creditWorkflow(connector: Connector): Workflow {
  return defineWorkflow({
    ...creditDoor,
    connector,
    effectOperation: 'grant_credit',
    observeOperation: 'read_grant_status',
    limits: { proposal_cycles_max: 3 },
    action: CreditAction as z.ZodType<JsonObject>,

    verifiedFields: ['amount_minor', 'currency', 'customer_id', 'memo'],

    readRequest: (run, call) => gather(run, call, ['request_record']),

    checkRequest: requestInScope,

    readScope: (run, call) => gather(run, call, ['customer_order_record']),

    checkScope(run, records) {
      const scope = requestInScope(run, records);
      const request = factsOf(records, 'request_record', RequestFacts);
      const order = factsOf(records, 'customer_order_record', CustomerOrderFacts);
      if (scope.kind !== 'pass' || request === undefined) return scope;
      const credit = CreditInput.parse(run.input);
      if (order === undefined) return stop('scope_mismatch', 'There is no such order.');
      if (order.tenant_id !== run.tenant_id) return stop('scope_mismatch', 'The order belongs to another tenant.');
      if (request.status !== 'open') return stop('request_closed', `The request is ${request.status}.`);
      if (credit.currency !== request.currency)
        return stop('invalid_input', `The request is in ${request.currency}, the run in ${credit.currency}.`);
      if (credit.requested_amount_minor > request.requested_amount_minor)
        return stop(
          'invalid_input',
          `The amount is above the ${request.requested_amount_minor} minor units that were requested.`,
        );
      return { kind: 'pass' };
    },

    readEvidence: (run, call) => gather(run, call, ['request_record', 'customer_order_record']),

    checkEvidence({ tenant_id, input }, records) {
      const credit = CreditInput.parse(input);
      const request = factsOf(records, 'request_record', RequestFacts);
      const order = factsOf(records, 'customer_order_record', CustomerOrderFacts);
      const conflict = (detail: string) => stop('evidence_conflict', detail);
      if (request === undefined || order === undefined) return conflict('The request or its order is gone.');
      if (request.status !== 'open') return conflict(`The request turned ${request.status} meanwhile.`);
      if (request.tenant_id !== tenant_id || order.tenant_id !== tenant_id)
        return conflict('The request or its order changed its tenant meanwhile.');
      if (request.order_id !== credit.order_id || order.order_id !== credit.order_id)
        return conflict(`The request is about order ${request.order_id}.`);
      if (credit.requested_amount_minor > request.requested_amount_minor)
        return conflict(`The request is now for ${request.requested_amount_minor} minor units.`);
      if (request.currency !== credit.currency || order.currency !== credit.currency)
        return conflict(
          `The run is in ${credit.currency}, the request in ${request.currency}, the order in ${order.currency}.`,
        );
      return { kind: 'pass' };
    },

    propose(input, evidence) {
      const credit = CreditInput.parse(input);
      const order = factsOf(trusted(evidence), 'customer_order_record', CustomerOrderFacts);
      return {
        operation: 'grant_credit',
        amount_minor: credit.requested_amount_minor,
        currency: credit.currency,
        reason: REASON_WORDS.find(([words]) => words.test(credit.reason))?.[1] ?? 'goodwill',
        memo: credit.memo,
        ...(order === undefined ? {} : { customer_id: order.customer_id }),
      };
    },

    checkProposal(run, body, evidence) {
      const parsed = parseWith(CreditProposal, body);
      if (!parsed.ok)
        return {
          kind: 'refused',
          code: 'proposal_invalid',
          message: `${parsed.refusal.code} at ${parsed.refusal.path || '/'}: ${parsed.refusal.detail}`,
        };
      const proposal = parsed.value;
      const input = CreditInput.parse(run.input);
      const order = factsOf(trusted(evidence), 'customer_order_record', CustomerOrderFacts);
      if (order === undefined)
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
      // The requested amount bounds the proposed one only while both count in the same unit.
      if (proposal.currency !== input.currency)
        return refuse(`currency is ${proposal.currency}, the request is in ${input.currency}`);
      if (proposal.amount_minor > input.requested_amount_minor)
        return refuse(`amount_minor is ${proposal.amount_minor}, requested were ${input.requested_amount_minor}`);
      if (proposal.customer_id !== undefined && proposal.customer_id !== order.customer_id)
        return refuse(`customer_id is ${proposal.customer_id}, the order is ${order.customer_id}'s`);
      if (proposal.memo !== undefined && proposal.memo !== input.memo)
        return refuse('memo is not the text that was requested');
      const reason = CREDIT_REASONS.find((known) => known === proposal.reason);
      if (reason === undefined) return refuse(`reason must be one of ${CREDIT_REASONS.join(', ')}`);
      const refs = evidence.filter((item) => item.trusted).map((item) => item.evidence_id);
      const unknown = proposal.evidence_refs?.find((ref) => !refs.includes(ref));
      if (unknown !== undefined) return refuse(`evidence_refs names ${unknown}, which is not recorded for this run`);

      const policy = creditPolicy(proposal, order);
      if (policy.kind === 'denies') return { kind: 'stop', code: 'policy_denied', detail: policy.detail };
      const action: CreditAction = CreditAction.parse({
        operation: 'grant_credit',
        customer_id: order.customer_id,
        amount_minor: proposal.amount_minor,
        currency: proposal.currency,
        memo: input.memo,
        reason,
        evidence_refs: [...(proposal.evidence_refs ?? refs)].sort(),
      });
      return { kind: 'accepted', action, terms: policy.terms };
    },

    preconditions(action, fresh) {
      const credit = CreditAction.parse(action);
      const request = factsOf(fresh, 'request_record', RequestFacts);
      const order = factsOf(fresh, 'customer_order_record', CustomerOrderFacts);
      const fail = (detail: string) => ({ kind: 'fail', detail }) as const;
      if (request?.status !== 'open') return fail('The request is no longer open.');
      if (order === undefined) return fail('The order is gone.');
      if (order.customer_id !== credit.customer_id) return fail("The order is now another customer's.");
      const policy = creditPolicy(credit, order);
      return policy.kind === 'denies' ? fail(policy.detail) : { kind: 'hold', terms: policy.terms };
    },

    materialFacts: (records) => Object.fromEntries(records.map((record) => [record.kind, record.facts])) as JsonValue,

    display: (action) => displayCredit(CreditAction.parse(action)),

    resourceKey: (tenant_id, action) =>
      `${tenant_id}/${connector.contract.name}/${CreditAction.parse(action).customer_id}`,
  });
}

/** Whether the tenant has such a request, and the run is about its order. */
function requestInScope(run: { tenant_id: string; input: JsonObject }, records: readonly Fact[]): Verdict {
  const request = factsOf(records, 'request_record', RequestFacts);
  if (request === undefined) return stop('scope_mismatch', 'The tenant has no such request.');
  if (request.tenant_id !== run.tenant_id) return stop('scope_mismatch', 'The request belongs to another tenant.');
  if (request.order_id !== CreditInput.parse(run.input).order_id)
    return stop('scope_mismatch', 'The request is about another order.');
  return { kind: 'pass' };
}

/** Reads request and order one after the other, as far as asked for. A missing record is a fact; a failed read is not. */
async function gather(
  run: { tenant_id: string; request_id: string; input: JsonObject },
  call: Call,
  wanted: readonly string[],
): Promise<Gathered> {
  const records: SourceRecord[] = [];
  const steps: [string, string, JsonObject][] = [
    ['request_record', 'read_request', { tenant_id: run.tenant_id, request_id: run.request_id }],
    ['customer_order_record', 'read_customer_order', { order_id: CreditInput.parse(run.input).order_id }],
  ];
  for (const [kind, operation, args] of steps) {
    if (!wanted.includes(kind)) continue;
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
