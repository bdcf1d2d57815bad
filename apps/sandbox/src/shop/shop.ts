import { type EpochMs, isoTime } from '../clock.ts';
import { type Payment, type PaymentTotals, totalsAt } from '../provider/payment.ts';

/** A customer's request for a refund, as the shop's help desk keeps it. */
export interface ShopRequest {
  readonly request_id: string;
  readonly tenant_id: string;
  order_id: string;
  status: 'open' | 'closed';
  requested_amount_minor: number;
  currency: string;
  reason: string;
  version: number;
  updated_at: EpochMs;
}

/** An order with the shop's own idea of what was captured; refunds it learns from the provider. */
export interface Order {
  readonly order_id: string;
  tenant_id: string;
  /** Whose order it is; the credits know the customer by the same id. */
  customer_id: string;
  payment_id: string;
  status: 'paid' | 'delivered' | 'cancelled';
  captured_amount_minor: number;
  currency: string;
  /** Edits by hand so far; a part of the version. */
  edits: number;
  edited_at: EpochMs;
}

/** Key of a request: ids are unique per tenant only. JSON, so that no pair of ids can pass for another pair. */
export function requestKey(tenantId: string, requestId: string): string {
  return JSON.stringify([tenantId, requestId]);
}

export interface ShopRequestView extends Omit<ShopRequest, 'updated_at'> {
  readonly updated_at: string;
}

export function requestView(request: ShopRequest): ShopRequestView {
  return { ...request, updated_at: isoTime(request.updated_at) };
}

export interface OrderView {
  readonly order_id: string;
  readonly tenant_id: string;
  readonly customer_id: string;
  readonly payment_id: string;
  readonly status: Order['status'];
  readonly captured_amount_minor: number;
  readonly refunded_amount_minor: number;
  readonly refundable_amount_minor: number;
  readonly currency: string;
  readonly version: number;
  readonly updated_at: string;
}

const NO_PAYMENT: PaymentTotals = { refunded_amount_minor: 0, changes: 0, changed_at: 0 };

/** The order as the shop shows it. Its refunded amount and version follow the refunds of its payment. */
export function orderView(order: Order, payment: Payment | undefined, now: EpochMs): OrderView {
  const totals = payment === undefined ? NO_PAYMENT : totalsAt(payment, now, 'reader');
  return {
    order_id: order.order_id,
    tenant_id: order.tenant_id,
    customer_id: order.customer_id,
    payment_id: order.payment_id,
    status: order.status,
    captured_amount_minor: order.captured_amount_minor,
    refunded_amount_minor: totals.refunded_amount_minor,
    refundable_amount_minor: Math.max(0, order.captured_amount_minor - totals.refunded_amount_minor),
    currency: order.currency,
    version: 1 + order.edits + totals.changes,
    updated_at: isoTime(Math.max(order.edited_at, totals.changed_at)),
  };
}
