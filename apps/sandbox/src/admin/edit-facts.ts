import { z } from 'zod';
import type { EpochMs } from '../clock.ts';
import type { Payment, Refund, StatusAt } from '../provider/payment.ts';
import { type Order, orderView, type ShopRequest } from '../shop/shop.ts';
import { Currency, Id, MinorUnits, Reason, WaitMs } from '../values.ts';
import { OrderStatus, RequestStatus } from './seed-case.ts';

export const RequestEdit = z.strictObject({
  status: RequestStatus.optional(),
  order_id: Id.optional(),
  requested_amount_minor: MinorUnits.optional(),
  currency: Currency.optional(),
  reason: Reason.optional(),
});

export const OrderEdit = z.strictObject({
  status: OrderStatus.optional(),
  tenant_id: Id.optional(),
  /** The credits must know the new customer: seed one, or its grants are refused. */
  customer_id: Id.optional(),
  payment_id: Id.optional(),
  captured_amount_minor: MinorUnits.optional(),
  currency: Currency.optional(),
});

export const PaymentEdit = z.strictObject({
  captured_amount_minor: MinorUnits.optional(),
  currency: Currency.optional(),
  disputed: z.boolean().optional(),
  latency_ms: WaitMs.optional(),
});

export const RefundEdit = z.strictObject({ status: z.string().min(1).max(64) });

/** `edit` without the members that were left out. */
type Given<E> = { [K in keyof E]?: Exclude<E[K], undefined> };

function given<E extends Record<string, unknown>>(edit: E): Given<E> {
  return Object.fromEntries(Object.entries(edit).filter(([, value]) => value !== undefined)) as Given<E>;
}

export function editRequest(request: ShopRequest, edit: z.infer<typeof RequestEdit>, now: EpochMs): void {
  Object.assign(request, given(edit));
  request.version += 1;
  request.updated_at = now;
}

/** @param payments all payments: an order that moves to another payment must not fall back in its version. */
export function editOrder(
  order: Order,
  edit: z.infer<typeof OrderEdit>,
  payments: ReadonlyMap<string, Payment>,
  now: EpochMs,
): void {
  const before = orderView(order, payments.get(order.payment_id), now).version;
  Object.assign(order, given(edit));
  order.edited_at = now;
  const after = orderView(order, payments.get(order.payment_id), now).version;
  order.edits += Math.max(1, before + 1 - after);
}

/** Latency is no fact about the payment: changing it alone leaves the version. */
export function editPayment(payment: Payment, edit: z.infer<typeof PaymentEdit>, now: EpochMs): void {
  const { latency_ms: latencyMs, ...facts } = given(edit);
  if (latencyMs !== undefined) payment.latency_ms = latencyMs;
  if (Object.keys(facts).length === 0) return;
  Object.assign(payment, facts);
  payment.edits += 1;
  payment.edited_at = now;
}

/** Gives a refund another status from now on, and hands that back; statuses that were still to come are dropped. */
export function editRefund(refund: Refund, edit: z.infer<typeof RefundEdit>, now: EpochMs): StatusAt {
  const step = { at: now, status: edit.status };
  refund.timeline = [...refund.timeline.filter((each) => each.at <= now), step];
  return step;
}
