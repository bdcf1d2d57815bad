import { type Digest, digestOf, type HttpReply, type JsonObject } from '@counterstamp/manifest-core';

/** The targets that the protocol has to cope with (protocol.md section 5). */
export const PROVIDER_KINDS = ['key', 'strong', 'eventual', 'pending', 'partial', 'forgetful', 'slow'] as const;
export type ProviderKind = (typeof PROVIDER_KINDS)[number];

export const PROVIDER_MEANINGS: Readonly<Record<ProviderKind, string>> = {
  key: 'idempotency key with retention and body check, strong look-up',
  strong: 'no key, strong look-up',
  eventual: 'no key, look-up that lags (legacy credits)',
  pending: 'key; accepted effects settle later, or fail, or are undone',
  partial: 'key; sometimes applies another amount, shows lookalikes',
  forgetful: 'key that is forgotten right after its declared, short retention',
  slow: 'applies requests later than it declares; key with a short retention',
};

/** One request that arrived, as the provider's own ledger keeps it. */
export interface LedgerEntry {
  arrivedMs: number;
  key: string | null;
  body: string;
  body_digest: Digest;
  run_id: string | null;
  /** What the provider did with it. */
  result: 'applied' | 'replayed' | 'rejected' | 'conflict' | 'failed_before' | 'rate_limited';
  effect: ProviderEffect | null;
  /** The network made it of another one. */
  copy: boolean;
}

export interface ProviderEffect {
  ref: string;
  run_id: string | null;
  /** Payment or customer that it went to. */
  destination: string;
  amount: number;
  currency: string;
  reason: string;
  memo: string;
  metadata: JsonObject;
  body: string;
  key: string | null;
  appliedMs: number;
  visibleMs: number;
  status: 'succeeded' | 'pending' | 'failed';
  /** When it became final; null while pending. */
  finalMs: number | null;
  /** Final, and then undone by the provider. */
  undone: boolean;
}

/** The business record of one case at the shop and at the provider. */
export interface BusinessCase {
  tenant_id: string;
  request_id: string;
  order_id: string;
  payment_id: string;
  customer_id: string;
  amount_minor: number;
  status: 'open' | 'closed';
  orderStatus: 'delivered' | 'cancelled';
  version: number;
  /** What the source would ask for today: only a worker that does not send the stored bytes ever notices. */
  currentAmount: number;
}

/** How the provider takes one request. */
export type Reception =
  | 'apply'
  | 'apply_other_amount'
  | 'reject'
  | 'rate_limit'
  | 'fail_before'
  | 'fail_after'
  | 'html_after'
  | 'in_progress';

const TEXT = new TextEncoder();
function reply(status: number, body: JsonObject | string, headers: Record<string, string> = {}): HttpReply {
  return { kind: 'reply', status, headers, body: TEXT.encode(typeof body === 'string' ? body : JSON.stringify(body)) };
}

/**
 * Shop, payment provider and credit system in one process, with a ledger. It does not protect its callers: what is refundable never shrinks, so
 * a second effect is always possible.
 */
export class Provider {
  readonly kind: ProviderKind;
  readonly cases: BusinessCase[] = [];
  readonly ledger: LedgerEntry[] = [];
  readonly effects: ProviderEffect[] = [];
  /** While no read is answered. */
  readsFail = false;
  readonly #keys = new Map<string, { body: string; reply: HttpReply; effect: ProviderEffect; storedMs: number }>();
  readonly #now: () => number;
  readonly #retentionMs: number;

  constructor(kind: ProviderKind, nowMs: () => number, retentionMs: number) {
    this.kind = kind;
    this.#now = nowMs;
    this.#retentionMs = retentionMs;
  }

  get keepsKeys(): boolean {
    return this.kind !== 'strong' && this.kind !== 'eventual';
  }

  get #forgets(): boolean {
    return this.kind === 'forgetful' || this.kind === 'slow';
  }

  /** Answers a read as the record stands now. */
  read(url: string): HttpReply {
    // Parsed by hand: nothing here needs more of a URL, and a real parser would take a tenth of a simulation's time.
    const [, path = '', query = ''] = /^http:\/\/[^/]*\/([^?]*)\??(.*)$/.exec(url) ?? [];
    const [system, collection, id, , request_id] = path.split('/').map(decodeURIComponent);
    const asked = (name: string) => decodeURIComponent(new RegExp(`(?:^|&)${name}=([^&]*)`).exec(query)?.[1] ?? '');
    if (system === 'shop' && collection === 'tenants') {
      const found = this.cases.find((item) => item.tenant_id === id && item.request_id === request_id);
      if (found === undefined) return reply(404, { code: 'request_not_found' });
      const { tenant_id, order_id, status, amount_minor, version } = found;
      return reply(200, {
        request_id: found.request_id,
        tenant_id,
        order_id,
        status,
        requested_amount_minor: amount_minor,
        currency: 'USD',
        version,
      });
    }
    if (system === 'shop' && collection === 'orders') {
      const found = this.cases.find((item) => item.order_id === id);
      if (found === undefined) return reply(404, { code: 'order_not_found' });
      const { tenant_id, order_id, payment_id, customer_id, orderStatus, version } = found;
      const captured = { captured_amount_minor: 900_000, refundable_amount_minor: 900_000, currency: 'USD' };
      return reply(200, { order_id, tenant_id, payment_id, customer_id, status: orderStatus, ...captured, version });
    }
    if (system === 'payments' && collection === 'payments')
      return reply(200, {
        payment_id: id ?? '',
        captured_amount_minor: 900_000,
        refundable_amount_minor: 900_000,
        currency: 'USD',
        disputed: false,
        version: 1,
      });
    if (system === 'payments') {
      const refunds = this.visible(asked('payment_id')).map((effect) => ({
        refund_id: effect.ref,
        payment_id: effect.destination,
        amount: effect.amount,
        currency: effect.currency,
        status: effect.status,
        reason: effect.reason,
        metadata: effect.metadata,
      }));
      return reply(200, { refunds, has_more: false });
    }
    const grants = this.visible(asked('customer_id')).map(grantRecord);
    return reply(200, { grants, has_more: false });
  }

  visible(destination: string): ProviderEffect[] {
    return this.effects.filter((effect) => effect.destination === destination && effect.visibleMs <= this.#now());
  }

  /** Takes one request for an effect. @returns the answer, and whether a new effect came of it. */
  take(
    key: string | null,
    bytes: Uint8Array,
    how: Reception,
    visibleInMs: number,
    copy = false,
  ): { reply: HttpReply; effect: ProviderEffect | null } {
    const now = this.#now();
    const body = new TextDecoder().decode(bytes);
    const sent = JSON.parse(body) as SentBody;
    const run_id = sent.metadata?.run_id ?? sent.memo?.slice(0, RUN_ID_LENGTH) ?? null;
    const entry = (result: LedgerEntry['result'], effect: ProviderEffect | null) =>
      this.ledger.push({
        arrivedMs: now,
        key,
        body,
        body_digest: digestOf('cs.request-bytes.v1', bytes),
        run_id,
        result,
        effect,
        copy,
      });
    const known = key === null || !this.keepsKeys ? undefined : this.#keys.get(key);
    if (known !== undefined && this.#forgets && now >= known.storedMs + this.#retentionMs) this.#keys.delete(key ?? '');
    else if (known !== undefined) {
      if (known.body !== body) {
        entry('conflict', null);
        return { reply: reply(422, { code: 'idempotency_body_mismatch' }), effect: null };
      }
      if (how === 'in_progress') {
        entry('conflict', null);
        return { reply: reply(409, { code: 'idempotency_key_in_use' }), effect: null };
      }
      entry('replayed', known.effect);
      return { reply: { ...known.reply, headers: { 'idempotent-replayed': 'true' } }, effect: null };
    }
    const remember = (answer: HttpReply, effect: ProviderEffect) => {
      if (key !== null && this.keepsKeys) this.#keys.set(key, { body, reply: answer, effect, storedMs: now });
      return answer;
    };
    switch (how) {
      case 'reject':
        entry('rejected', null);
        // At the door, before any key is looked at: a later copy of the same request may be taken.
        return {
          reply:
            this.kind === 'eventual'
              ? reply(400, { code: 'invalid_request' })
              : reply(402, { code: 'charge_disputed' }),
          effect: null,
        };
      case 'rate_limit':
        entry('rate_limited', null);
        return { reply: reply(429, { code: 'rate_limited' }), effect: null };
      case 'fail_before':
        entry('failed_before', null);
        return { reply: reply(503, { code: 'unavailable' }), effect: null };
      default:
    }
    const effect: ProviderEffect = {
      ref: `${this.kind === 'eventual' ? 'cg' : 're'}_${this.effects.length + 1}`,
      run_id,
      destination: sent.payment_id ?? sent.customer_id ?? '',
      amount: how === 'apply_other_amount' ? Math.max(1, sent.amount - 1) : sent.amount,
      currency: sent.currency,
      reason: sent.reason ?? '',
      memo: sent.memo ?? '',
      metadata: sent.metadata ?? {},
      body,
      key,
      appliedMs: now,
      visibleMs: now + visibleInMs,
      status: this.kind === 'pending' ? 'pending' : 'succeeded',
      finalMs: this.kind === 'pending' ? null : now,
      undone: false,
    };
    this.effects.push(effect);
    entry('applied', effect);
    const applied = remember(this.#applied(effect), effect);
    if (how === 'fail_after') return { reply: reply(500, { code: 'internal_error' }), effect };
    if (how === 'html_after') return { reply: reply(502, '<h1>Bad gateway</h1>'), effect };
    return { reply: applied, effect };
  }

  #applied(effect: ProviderEffect): HttpReply {
    if (this.kind === 'eventual') return reply(201, grantRecord(effect));
    return reply(201, {
      refund_id: effect.ref,
      payment_id: effect.destination,
      amount: effect.amount,
      currency: effect.currency,
      status: effect.status,
      reason: effect.reason,
      metadata: effect.metadata,
    });
  }

  /** Somebody makes an equal effect by hand: without our tag, never ours. */
  bookLookalike(of: BusinessCase): void {
    const now = this.#now();
    this.effects.push({
      ref: `by_hand_${this.effects.length + 1}`,
      run_id: null,
      destination: this.kind === 'eventual' ? of.customer_id : of.payment_id,
      amount: of.amount_minor,
      currency: 'USD',
      reason: 'customer_request',
      memo: 'by hand',
      metadata: {},
      body: '',
      key: null,
      appliedMs: now,
      visibleMs: now,
      status: 'succeeded',
      finalMs: now,
      undone: false,
    });
  }
}

const RUN_ID_LENGTH = 40;
interface SentBody {
  payment_id?: string;
  customer_id?: string;
  amount: number;
  currency: string;
  reason?: string;
  memo?: string;
  metadata?: JsonObject & { run_id?: string };
}

function grantRecord(effect: ProviderEffect): JsonObject {
  const { ref, destination, amount, currency, memo } = effect;
  return { grant_id: ref, customer_id: destination, amount, currency, memo };
}
