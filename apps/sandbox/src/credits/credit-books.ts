import { type EpochMs, isoTime } from '../clock.ts';
import type { Booking } from '../faults/catalogue.ts';
import { FaultMenu } from '../faults/fault-menu.ts';
import { GrantLedger } from './grant-ledger.ts';

/** Milliseconds by which look-ups lag the writes unless the settings say otherwise: enough that a look right after a write misses it. */
export const CREDITS_LAG_MS = 600;

/** One credit as the books hold it. It is final at once. */
export interface Grant {
  readonly grant_id: string;
  readonly customer_id: string;
  readonly amount: number;
  readonly currency: string;
  readonly memo: string;
  readonly created_at: EpochMs;
  /** The replica has it this time plus its lag. */
  readonly replicated_from: EpochMs;
  readonly made_by: 'api' | 'hand';
  /** The ledger entry that made it; null when made by hand. */
  readonly request_seq: number | null;
}

export interface GrantToBook {
  readonly customer_id: string;
  readonly amount: number;
  readonly currency: string;
  readonly memo: string;
  readonly request_seq: number | null;
}

export interface GrantView {
  readonly grant_id: string;
  readonly customer_id: string;
  readonly amount: number;
  readonly currency: string;
  readonly memo: string;
  readonly created_at: string;
}

/** A grant as the books hold it, replicated or not: what a test counts. */
export interface GrantEffectView extends GrantView {
  readonly made_by: 'api' | 'hand';
  readonly request_seq: number | null;
}

export function grantView(grant: Grant): GrantView {
  const { grant_id, customer_id, amount, currency, memo, created_at } = grant;
  return { grant_id, customer_id, amount, currency, memo, created_at: isoTime(created_at) };
}

export function grantEffectView(grant: Grant): GrantEffectView {
  return { ...grantView(grant), made_by: grant.made_by, request_seq: grant.request_seq };
}

/** Everything that the credits know. They remember no key: every request that is accepted books a grant. */
export class CreditBooks {
  readonly ledger = new GrantLedger();
  /** By customer. */
  readonly faults = new FaultMenu();
  readonly customers = new Set<string>();
  /** How far the replica that answers look-ups is behind, in milliseconds of the sandbox's clock. */
  lagMs: number = CREDITS_LAG_MS;
  readonly #grants: Grant[] = [];

  /** Books one grant, at once and for good. */
  book(grant: GrantToBook, now: EpochMs, booking: Booking): Grant {
    const booked: Grant = {
      grant_id: `cg_${(this.#grants.length + 1).toString(16).padStart(8, '0')}`,
      customer_id: grant.customer_id,
      amount: booking.amount ?? grant.amount,
      currency: booking.currency ?? grant.currency,
      memo: booking.keeps_metadata ? grant.memo : '',
      created_at: now,
      replicated_from: now + booking.hidden_ms,
      made_by: grant.request_seq === null ? 'hand' : 'api',
      request_seq: grant.request_seq,
    };
    this.#grants.push(booked);
    return booked;
  }

  /** The books themselves, oldest first: nothing lags here. */
  list(customerId: string | undefined): readonly Grant[] {
    return customerId === undefined ? this.#grants : this.#grants.filter((grant) => grant.customer_id === customerId);
  }

  /** What the replica shows of a customer at `now`, newest first. */
  replica(customerId: string, now: EpochMs): readonly Grant[] {
    return this.list(customerId)
      .filter((grant) => grant.replicated_from + this.lagMs <= now)
      .toReversed();
  }

  reset(): void {
    this.ledger.reset();
    this.faults.reset();
    this.customers.clear();
    this.lagMs = CREDITS_LAG_MS;
    this.#grants.length = 0;
  }
}
