import { type EpochMs, isoTime } from '../clock.ts';
import type { Grant } from '../credits/credit-books.ts';
import { type Refund, runIdOf, statusAt } from '../provider/payment.ts';
import type { World } from '../world.ts';

/** One request for an effect at either provider, whatever came of it. */
export interface ArrivedRequest {
  readonly provider: 'sandbox-payments' | 'legacy-credits';
  readonly seq: number;
  /** By the clock that `/admin/clock` does not move. */
  readonly arrived_at: string;
  /** The run that the body names; null for none, or for a body that did not arrive whole. */
  readonly run_id: string | null;
  readonly idempotency_key: string | null;
  readonly body_digest: string | null;
}

/** One refund or credit in the books as it stands now, hidden from reads or not. */
export interface BookedEffect {
  readonly provider: 'sandbox-payments' | 'legacy-credits';
  readonly ref: string;
  /** The request that made it; null when made by hand. */
  readonly request_seq: number | null;
  readonly run_id: string | null;
  readonly idempotency_key: string | null;
  /** That of the approved action, when the metadata carry it. */
  readonly action_digest: string | null;
  readonly settlement: 'final' | 'pending' | 'failed' | 'unrecognised';
  /** By the names that Counterstamp's actions have for them. */
  readonly fields: Readonly<Record<string, string | number>>;
}

/** Everything that arrived and everything that was booked, at both providers, in one form: what a history is judged against. */
export interface ProviderHistory {
  /** Since when this is kept: the start, or the last reset. */
  readonly since: string;
  readonly requests: readonly ArrivedRequest[];
  readonly effects: readonly BookedEffect[];
}

export function providerHistory(world: World): ProviderHistory {
  const now = world.clock.now();
  const { credits } = world;
  return {
    since: isoTime(world.since),
    requests: [
      ...world.ledger.list({}).map(({ seq, arrived_at, run_id, idempotency_key, body_digest }) => ({
        provider: 'sandbox-payments' as const,
        seq,
        arrived_at,
        run_id,
        idempotency_key,
        body_digest,
      })),
      ...credits.ledger.list({}).map(({ seq, arrived_at, memo, body_digest }) => ({
        provider: 'legacy-credits' as const,
        seq,
        arrived_at,
        run_id: taggedMemo(memo ?? '').run_id,
        idempotency_key: null,
        body_digest,
      })),
    ],
    effects: [
      ...[...world.refunds.values()].map((refund) => refundEffect(refund, now)),
      ...credits.list(undefined).map(grantEffect),
    ],
  };
}

function refundEffect(refund: Refund, now: EpochMs): BookedEffect {
  return {
    provider: 'sandbox-payments',
    ref: refund.refund_id,
    request_seq: refund.request_seq,
    run_id: runIdOf(refund.metadata),
    idempotency_key: refund.idempotency_key,
    action_digest: typeof refund.metadata.action_digest === 'string' ? refund.metadata.action_digest : null,
    settlement: settlementOf(statusAt(refund, now)),
    fields: {
      amount_minor: refund.amount,
      currency: refund.currency,
      destination: refund.payment_id,
      reason: refund.reason,
    },
  };
}

function settlementOf(status: string): BookedEffect['settlement'] {
  switch (status) {
    case 'succeeded':
      return 'final';
    case 'pending':
    case 'requires_action':
      return 'pending';
    case 'failed':
    case 'canceled':
      return 'failed';
    default:
      return 'unrecognised';
  }
}

function grantEffect(grant: Grant): BookedEffect {
  const { run_id, text } = taggedMemo(grant.memo);
  return {
    provider: 'legacy-credits',
    ref: grant.grant_id,
    request_seq: grant.request_seq,
    run_id,
    idempotency_key: null,
    action_digest: null,
    settlement: 'final',
    fields: { customer_id: grant.customer_id, amount_minor: grant.amount, currency: grant.currency, memo: text },
  };
}

/** A memo has our tag when it begins with a run id and a space. */
function taggedMemo(memo: string): { run_id: string | null; text: string } {
  const tagged = /^(run_[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}) (.*)$/s.exec(memo);
  return { run_id: tagged?.[1] ?? null, text: tagged?.[2] ?? memo };
}
