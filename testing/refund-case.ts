import {
  createSandboxPayments,
  type Effect,
  type OrderFacts,
  type PaymentFacts,
  type RefundAction,
  type RequestFacts,
} from '@counterstamp/connectors';
import type { Digest, Evidence, JsonObject, Manifest, ReadHttp } from '@counterstamp/manifest-core';
import { type Fact, refundWorkflow, type Workflow } from '@counterstamp/workflows';
import { asked, decided, evidence, manifest, proposal, RUN_ID } from './manifest-builder.ts';

/** An HTTP port for tests in which nothing may be read. */
export const noHttp: ReadHttp = {
  get: (url) => Promise.reject(new Error(`nothing is to be read here: ${url}`)),
};

/** The reference workflow; its connector reaches nothing. */
export const workflow: Workflow = refundWorkflow(
  createSandboxPayments({
    url: 'http://127.0.0.1:9',
    writeKey: 'sk_secret',
    readKey: 'rk_secret',
    http: noHttp,
    timeoutMs: 1_000,
  }),
);

export const INPUT = {
  order_id: 'order_913',
  requested_amount_minor: 4200,
  currency: 'USD',
  reason: 'arrived damaged',
} as const satisfies JsonObject;

export const REQUEST: RequestFacts = {
  request_id: 'case_2841',
  tenant_id: 'shop_north',
  order_id: 'order_913',
  status: 'open',
  requested_amount_minor: 4200,
  currency: 'USD',
};
export const ORDER: OrderFacts = {
  order_id: 'order_913',
  tenant_id: 'shop_north',
  payment_id: 'pay_913',
  status: 'delivered',
  captured_amount_minor: 4200,
  refundable_amount_minor: 4200,
  currency: 'USD',
};
export const PAYMENT: PaymentFacts = {
  payment_id: 'pay_913',
  captured_amount_minor: 4200,
  refundable_amount_minor: 4200,
  currency: 'USD',
  disputed: false,
};

export interface Facts {
  request?: Partial<RequestFacts> | null;
  order?: Partial<OrderFacts> | null;
  payment?: Partial<PaymentFacts> | null;
}

/** The three records of a coherent case, changed; null: the record is missing. */
export function facts({ request = {}, order = {}, payment = {} }: Facts = {}): Fact[] {
  const found: Fact[] = [];
  if (request !== null) found.push({ kind: 'request_record', facts: { ...REQUEST, ...request } });
  if (order !== null) found.push({ kind: 'order_record', facts: { ...ORDER, ...order } });
  if (payment !== null) found.push({ kind: 'payment_record', facts: { ...PAYMENT, ...payment } });
  return found;
}

/** The same as fresh reads of the outside. */
export function records(change: Facts = {}) {
  return facts(change).map((fact) => ({ ...fact, source_ref: `test:${fact.kind}`, version_marker: '1' }));
}

/** The same as recorded evidence of the run's current round. */
export function recorded(change: Facts = {}): Evidence[] {
  return facts(change).map((fact) => evidence(fact.kind, fact.facts));
}

export const PROPOSAL = {
  operation: 'refund_order',
  order_id: 'order_913',
  amount_minor: 4200,
  currency: 'USD',
  reason: 'damaged_item',
} as const satisfies JsonObject;

export const ACTION = {
  operation: 'refund_order',
  order_id: 'order_913',
  amount_minor: 4200,
  currency: 'USD',
  destination: 'pay_913',
  reason: 'damaged_item',
  evidence_refs: ['evd_order_record', 'evd_payment_record', 'evd_request_record'],
  metadata: {},
} as unknown as RefundAction;

/** A run with its evidence recorded and one proposal, in `proposed`. */
export function proposedRun(change: Partial<Manifest> = {}): Manifest {
  return manifest({ input: INPUT, evidence: recorded(), proposals: [proposal(PROPOSAL)], ...change });
}

/** A run whose action one person has approved. */
export function approvedRun(change: Partial<Manifest> = {}): Manifest {
  return { ...decided(asked(proposedRun(), ACTION), 'prn_ada'), decisions_sufficient: true, ...change };
}

/** The approved refund as the provider's record shows it. */
/** The action digest that `effect` carries. */
export const EFFECT_DIGEST = `sha256:${'a'.repeat(64)}` as Digest;

export function effect(change: Partial<Effect> = {}): Effect {
  return {
    provider_ref: 're_1',
    amount_minor: 4200,
    currency: 'USD',
    destination: 'pay_913',
    status: 'succeeded',
    reason: 'damaged_item',
    settlement: 'final',
    run_id: RUN_ID,
    action_digest: EFFECT_DIGEST,
    ...change,
  };
}
