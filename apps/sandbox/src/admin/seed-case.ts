import { z } from 'zod';
import type { EpochMs } from '../clock.ts';
import { type FaultInput, FaultList } from '../faults/catalogue.ts';
import { type Answer, jsonAnswer, problemAnswer } from '../http/answer.ts';
import { type Payment, paymentView } from '../provider/payment.ts';
import { type Order, orderView, requestKey, requestView, type ShopRequest } from '../shop/shop.ts';
import { Currency, Id, MinorUnits, PositiveMinorUnits, Reason, WaitMs } from '../values.ts';
import type { World } from '../world.ts';

export const RequestStatus = z.enum(['open', 'closed']);
export const OrderStatus = z.enum(['paid', 'delivered', 'cancelled']);

/** One coherent case: a request, its order and its payment. Members after `currency` default to agreement. */
export const CaseSeed = z.strictObject({
  tenant_id: Id,
  request_id: Id,
  order_id: Id,
  /** Default: `pay_` and the order id. */
  payment_id: Id.optional(),
  /** Default: `cus_` and the order id. The credits know the customer from then on. */
  customer_id: Id.optional(),
  /** What was captured, in minor units. */
  amount_minor: PositiveMinorUnits,
  currency: Currency,
  reason: Reason.default('item_not_received'),
  requested_amount_minor: MinorUnits.optional(),
  request_status: RequestStatus.default('open'),
  order_status: OrderStatus.default('delivered'),
  /** Another tenant's order. */
  order_tenant_id: Id.optional(),
  /** What the provider says where it contradicts the shop. */
  payment_currency: Currency.optional(),
  payment_captured_amount_minor: MinorUnits.optional(),
  disputed: z.boolean().default(false),
  latency_ms: WaitMs.default(0),
  fault: FaultList.optional(),
});
export type CaseSeed = z.infer<typeof CaseSeed>;
/** A case as it is posted: what has a default may be left out. */
export interface CaseSeedInput extends Omit<z.input<typeof CaseSeed>, 'fault'> {
  fault?: FaultInput | readonly FaultInput[];
}

interface CaseRecords {
  readonly request: ShopRequest;
  readonly order: Order;
  readonly payment: Payment;
}

function recordsOf(seed: CaseSeed, now: EpochMs): CaseRecords {
  const paymentId = seed.payment_id ?? `pay_${seed.order_id}`;
  return {
    request: {
      request_id: seed.request_id,
      tenant_id: seed.tenant_id,
      order_id: seed.order_id,
      status: seed.request_status,
      requested_amount_minor: seed.requested_amount_minor ?? seed.amount_minor,
      currency: seed.currency,
      reason: seed.reason,
      version: 1,
      updated_at: now,
    },
    order: {
      order_id: seed.order_id,
      tenant_id: seed.order_tenant_id ?? seed.tenant_id,
      customer_id: seed.customer_id ?? `cus_${seed.order_id}`,
      payment_id: paymentId,
      status: seed.order_status,
      captured_amount_minor: seed.amount_minor,
      currency: seed.currency,
      edits: 0,
      edited_at: now,
    },
    payment: {
      payment_id: paymentId,
      captured_amount_minor: seed.payment_captured_amount_minor ?? seed.amount_minor,
      currency: seed.payment_currency ?? seed.currency,
      disputed: seed.disputed,
      latency_ms: seed.latency_ms,
      refunds: [],
      edits: 0,
      edited_at: now,
    },
  };
}

function sameOrder(a: Order, b: Order): boolean {
  return (
    a.tenant_id === b.tenant_id &&
    a.customer_id === b.customer_id &&
    a.payment_id === b.payment_id &&
    a.status === b.status &&
    a.captured_amount_minor === b.captured_amount_minor &&
    a.currency === b.currency
  );
}

function samePayment(a: Payment, b: Payment): boolean {
  return a.captured_amount_minor === b.captured_amount_minor && a.currency === b.currency && a.disputed === b.disputed;
}

/**
 * Seeds a case. The same body again changes nothing (200, no fault armed again); another body for the same request is
 * a 409, and so is an order or a payment that exists with other facts. With the same facts they are shared.
 */
export function seedCase(world: World, seed: CaseSeed): Answer {
  const key = requestKey(seed.tenant_id, seed.request_id);
  // Parsing puts the members into the schema's order, so equal bodies give equal text.
  const text = JSON.stringify(seed);
  const known = world.seeds.get(key);
  if (known !== undefined && known !== text) return conflict('request');
  const now = world.clock.now();
  const fresh = recordsOf(seed, now);
  if (known === undefined) {
    const order = world.orders.get(fresh.order.order_id);
    if (order !== undefined && !sameOrder(order, fresh.order)) return conflict('order');
    const payment = world.payments.get(fresh.payment.payment_id);
    if (payment !== undefined && !samePayment(payment, fresh.payment)) return conflict('payment');
    world.requests.set(key, fresh.request);
    world.orders.set(fresh.order.order_id, order ?? fresh.order);
    world.payments.set(fresh.payment.payment_id, payment ?? fresh.payment);
    world.credits.customers.add(fresh.order.customer_id);
    world.seeds.set(key, text);
    if (seed.fault !== undefined) world.faults.arm(fresh.payment.payment_id, seed.fault, false);
  }
  const request = world.requests.get(key) ?? fresh.request;
  const order = world.orders.get(fresh.order.order_id) ?? fresh.order;
  const payment = world.payments.get(fresh.payment.payment_id) ?? fresh.payment;
  return jsonAnswer(known === undefined ? 201 : 200, {
    request: requestView(request),
    order: orderView(order, payment, now),
    payment: paymentView(payment, now, 'reader'),
  });
}

function conflict(what: string): Answer {
  return problemAnswer(409, 'case_conflict', `The ${what} exists with other facts.`);
}
