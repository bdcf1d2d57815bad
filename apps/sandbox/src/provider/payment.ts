import { type EpochMs, isoTime } from '../clock.ts';
import type { Metadata } from '../values.ts';

/** One refund as the provider booked it. Its later statuses are already in `timeline`; the clock says which one holds. */
export interface Refund {
  readonly refund_id: string;
  readonly payment_id: string;
  readonly amount: number;
  readonly currency: string;
  readonly reason: string;
  readonly metadata: Metadata;
  readonly created_at: EpochMs;
  /** Reads do not show it before. */
  readonly visible_at: EpochMs;
  /** In order of time, the first at `created_at`. */
  timeline: readonly StatusAt[];
  /** Who made it: a request to the API, or a person in the provider's dashboard. */
  readonly made_by: 'api' | 'hand';
  readonly idempotency_key: string | null;
  /** The ledger entry that made it; null when made by hand. */
  readonly request_seq: number | null;
}

export interface StatusAt {
  readonly at: EpochMs;
  readonly status: string;
}

export interface Payment {
  readonly payment_id: string;
  captured_amount_minor: number;
  currency: string;
  disputed: boolean;
  /** Milliseconds, real time, added to every provider call about this payment. */
  latency_ms: number;
  /** In order of creation. */
  readonly refunds: Refund[];
  /** Edits by hand so far; a part of the version. */
  edits: number;
  edited_at: EpochMs;
}

/** Through whose eyes: a reader does not see what is still hidden, the provider's own books hold everything. */
export type Eyes = 'reader' | 'books';

export interface PaymentTotals {
  readonly refunded_amount_minor: number;
  /** Changes by refunds so far: one for each refund and one for each later status of it. */
  readonly changes: number;
  readonly changed_at: EpochMs;
}

/** Statuses under which the money is, or comes, back on this side. */
const UNDONE: readonly string[] = ['failed', 'canceled'];

export function statusAt(refund: Refund, now: EpochMs): string {
  const reached = refund.timeline.findLast((step) => step.at <= now) ?? refund.timeline[0];
  return reached?.status ?? 'pending';
}

export function isVisible(refund: Refund, now: EpochMs, eyes: Eyes): boolean {
  return eyes === 'books' || refund.visible_at <= now;
}

/** Sums up the refunds of a payment at `now`. Nothing is kept up to date in the background, so nothing can be missed. */
export function totalsAt(payment: Payment, now: EpochMs, eyes: Eyes): PaymentTotals {
  let refunded = 0;
  let changes = 0;
  let changedAt = 0;
  for (const refund of payment.refunds) {
    if (!isVisible(refund, now, eyes)) continue;
    if (!UNDONE.includes(statusAt(refund, now))) refunded += refund.amount;
    changedAt = Math.max(changedAt, eyes === 'books' ? refund.created_at : refund.visible_at);
    for (const step of refund.timeline) {
      if (step.at > now) break;
      changes += 1;
      changedAt = Math.max(changedAt, step.at);
    }
  }
  return { refunded_amount_minor: refunded, changes, changed_at: changedAt };
}

export interface PaymentView {
  readonly payment_id: string;
  readonly captured_amount_minor: number;
  readonly refunded_amount_minor: number;
  readonly refundable_amount_minor: number;
  readonly currency: string;
  readonly disputed: boolean;
  readonly version: number;
  readonly updated_at: string;
}

export function paymentView(payment: Payment, now: EpochMs, eyes: Eyes): PaymentView {
  const totals = totalsAt(payment, now, eyes);
  return {
    payment_id: payment.payment_id,
    captured_amount_minor: payment.captured_amount_minor,
    refunded_amount_minor: totals.refunded_amount_minor,
    refundable_amount_minor: Math.max(0, payment.captured_amount_minor - totals.refunded_amount_minor),
    currency: payment.currency,
    disputed: payment.disputed,
    version: 1 + payment.edits + totals.changes,
    updated_at: isoTime(Math.max(payment.edited_at, totals.changed_at)),
  };
}

export interface RefundView {
  readonly refund_id: string;
  readonly payment_id: string;
  readonly amount: number;
  readonly currency: string;
  readonly reason: string;
  readonly status: string;
  readonly metadata: Metadata;
  readonly created_at: string;
}

export function refundView(refund: Refund, now: EpochMs): RefundView {
  return {
    refund_id: refund.refund_id,
    payment_id: refund.payment_id,
    amount: refund.amount,
    currency: refund.currency,
    reason: refund.reason,
    status: statusAt(refund, now),
    metadata: refund.metadata,
    created_at: isoTime(refund.created_at),
  };
}

/** A refund as the books hold it, hidden or not: what a test counts. */
export interface EffectView extends RefundView {
  readonly made_by: 'api' | 'hand';
  readonly idempotency_key: string | null;
  readonly request_seq: number | null;
  readonly run_id: string | null;
}

export function effectView(refund: Refund, now: EpochMs): EffectView {
  return {
    ...refundView(refund, now),
    made_by: refund.made_by,
    idempotency_key: refund.idempotency_key,
    request_seq: refund.request_seq,
    run_id: runIdOf(refund.metadata),
  };
}

/** The run id that our side put into a refund's metadata. */
export function runIdOf(metadata: Metadata): string | null {
  const runId = Object.hasOwn(metadata, 'run_id') ? metadata.run_id : undefined;
  return typeof runId === 'string' ? runId : null;
}
