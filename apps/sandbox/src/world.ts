import { type Clock, type EpochMs, SettableClock } from './clock.ts';
import { CreditBooks } from './credits/credit-books.ts';
import { type Booking, HONEST_PLAN } from './faults/catalogue.ts';
import { FaultMenu } from './faults/fault-menu.ts';
import { Pauses } from './pauses.ts';
import { IdempotencyKeys, KEY_RETENTION_MS } from './provider/idempotency-keys.ts';
import { Ledger } from './provider/ledger.ts';
import type { Payment, Refund } from './provider/payment.ts';
import { Webhooks } from './provider/webhooks.ts';
import type { Order, ShopRequest } from './shop/shop.ts';
import type { Metadata } from './values.ts';

/** Everything the sandbox knows. In memory only: it is lost on exit, by design. */
export class World {
  readonly clock: SettableClock;
  readonly pauses = new Pauses();
  readonly faults = new FaultMenu();
  readonly keys = new IdempotencyKeys();
  readonly ledger = new Ledger();
  /** The second provider: its books, its ledger and its faults. */
  readonly credits = new CreditBooks();
  readonly webhooks: Webhooks;
  /** By tenant and request id, see `requestKey`. */
  readonly requests = new Map<string, ShopRequest>();
  readonly orders = new Map<string, Order>();
  readonly payments = new Map<string, Payment>();
  readonly refunds = new Map<string, Refund>();
  /** The seeds as they were given, in a fixed order of members, by tenant and request id. */
  readonly seeds = new Map<string, string>();
  keyRetentionMs: number = KEY_RETENTION_MS;
  /** Since when the ledgers are kept, by the clock that nobody moves. */
  since: EpochMs;
  #refundCount = 0;

  constructor(clock: Clock) {
    this.clock = new SettableClock(clock);
    this.since = this.clock.unmoved();
    this.webhooks = new Webhooks(this.clock, this.faults);
  }

  /** Books one refund, at once and for good; whether it is allowed was decided before. */
  bookRefund(payment: Payment, refund: RefundToBook, now: EpochMs, booking: Booking = HONEST_PLAN.booking): Refund {
    this.#refundCount += 1;
    const booked: Refund = {
      refund_id: `re_${this.#refundCount.toString(16).padStart(8, '0')}`,
      payment_id: payment.payment_id,
      amount: booking.amount ?? refund.amount,
      currency: booking.currency ?? refund.currency,
      reason: refund.reason,
      metadata: booking.keeps_metadata ? refund.metadata : {},
      created_at: now,
      visible_at: now + booking.hidden_ms,
      timeline: booking.steps.map((step) => ({ at: now + step.after_ms, status: step.status })),
      made_by: refund.request_seq === null ? 'hand' : 'api',
      idempotency_key: refund.idempotency_key,
      request_seq: refund.request_seq,
    };
    payment.refunds.push(booked);
    this.refunds.set(booked.refund_id, booked);
    for (const step of booked.timeline) this.webhooks.announce(booked, step);
    return booked;
  }

  /** Forgets everything; requests that are still waiting are cut without an effect. */
  reset(): void {
    this.pauses.cancelAll();
    this.clock.reset();
    this.faults.reset();
    this.keys.reset();
    this.ledger.reset();
    this.credits.reset();
    this.webhooks.reset();
    for (const map of [this.requests, this.orders, this.payments, this.refunds, this.seeds]) map.clear();
    this.keyRetentionMs = KEY_RETENTION_MS;
    this.since = this.clock.unmoved();
    this.#refundCount = 0;
  }
}

export interface RefundToBook {
  readonly amount: number;
  readonly currency: string;
  readonly reason: string;
  readonly metadata: Metadata;
  readonly idempotency_key: string | null;
  readonly request_seq: number | null;
}
