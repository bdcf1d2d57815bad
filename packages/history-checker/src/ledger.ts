import type { JsonValue, Settlement } from '@counterstamp/manifest-core';
import { microseconds, type RunHistory } from './history.ts';

/** One request for an effect as it arrived at a provider, whatever came of it. */
export interface LedgerRequest {
  /** The connector's name for the system that it arrived at. */
  provider: string;
  /** Numbers the provider's requests in the order of their arrival. */
  seq: number;
  /** When it arrived, by a real clock. */
  arrived_at: string;
  /** Our tag in the body; null when it has none, or did not arrive whole. */
  run_id: string | null;
  idempotency_key: string | null;
  /** `cs.request-bytes.v1` digest of the raw body, as an attempt's `request_digest`; null when it did not arrive whole. */
  body_digest: string | null;
}

/** One effect in a provider's books as it stands now, hidden from reads or not. */
export interface LedgerEffect {
  provider: string;
  /** The provider's own name for it. */
  ref: string;
  /** The request that made it; null when a person made it there by hand. */
  request_seq: number | null;
  /** Our tag; null when the record carries none. */
  run_id: string | null;
  idempotency_key: string | null;
  /** Digest of the action, where the record carries that as well. */
  action_digest: string | null;
  settlement: Settlement;
  /** What the books hold, by the names that the action has for it. */
  fields: Readonly<Record<string, JsonValue>>;
}

export interface Ledger {
  /** Since when it is kept; a run that was dispatched before is judged without it. Null: it holds everything. */
  since: string | null;
  requests: readonly LedgerRequest[];
  effects: readonly LedgerEffect[];
}

/** An effect that made its mark: final, or not settled yet. One that failed definitely left nothing. */
export function stands(effect: LedgerEffect): boolean {
  return effect.settlement !== 'failed';
}

/** What a ledger holds of one run. */
export type LedgerShare = Pick<Ledger, 'requests' | 'effects'>;

/** Whether a run was dispatched before the ledger began: then it is no witness of all that the run did. */
export function predates({ attempts }: RunHistory, { since }: Ledger): boolean {
  return since !== null && attempts.some((attempt) => microseconds(attempt.started_at) < microseconds(since));
}

export interface AttributedLedger {
  /** A run's part of the ledger. */
  of(run_id: string): LedgerShare;
  /** What belongs to none of the runs. */
  strays: LedgerShare;
}

/**
 * Divides a ledger among runs. A request is its run's by tag, else by the key of an attempt, else by the digest of an attempt's bytes. An
 * effect is its request's, else its run's by tag, else by key. A body that did not arrive whole and came without a key cannot be told apart
 * from anybody else's; it has had no effect, and is left out.
 */
export function attributeLedger(histories: readonly RunHistory[], ledger: Ledger): AttributedLedger {
  const known = new Set<string>();
  const byKey = new Map<string, string>();
  const byDigest = new Map<string, string>();
  for (const { run, attempts } of histories) {
    known.add(run.run_id);
    for (const attempt of attempts) {
      byKey.set(attempt.idempotency_key, run.run_id);
      byDigest.set(attempt.request_digest, run.run_id);
    }
  }
  const ofKey = (key: string | null) => (key === null ? undefined : byKey.get(key));
  const ofTag = (tag: string | null) => (tag !== null && known.has(tag) ? tag : undefined);

  const shares = new Map<string, { requests: LedgerRequest[]; effects: LedgerEffect[] }>();
  const strays = { requests: [] as LedgerRequest[], effects: [] as LedgerEffect[] };
  const shareOf = (run_id: string | undefined) => {
    if (run_id === undefined) return strays;
    const share = shares.get(run_id) ?? { requests: [], effects: [] };
    shares.set(run_id, share);
    return share;
  };
  const ofRequest = new Map<string, string>();
  for (const request of ledger.requests) {
    const run_id =
      ofTag(request.run_id) ??
      ofKey(request.idempotency_key) ??
      (request.body_digest === null ? undefined : byDigest.get(request.body_digest));
    const traceless = request.body_digest === null && request.idempotency_key === null;
    if (run_id === undefined && traceless) continue;
    if (run_id !== undefined) ofRequest.set(`${request.provider} ${request.seq}`, run_id);
    shareOf(run_id).requests.push(request);
  }
  for (const effect of ledger.effects) {
    const run_id =
      (effect.request_seq === null ? undefined : ofRequest.get(`${effect.provider} ${effect.request_seq}`)) ??
      ofTag(effect.run_id) ??
      ofKey(effect.idempotency_key);
    shareOf(run_id).effects.push(effect);
  }
  return { of: (run_id) => shares.get(run_id) ?? { requests: [], effects: [] }, strays };
}

/** The part of a ledger that speaks of these runs, for a look at some runs of many. */
export function ledgerOf(histories: readonly RunHistory[], ledger: Ledger): Ledger {
  const attributed = attributeLedger(histories, ledger);
  const shares = histories.map(({ run }) => attributed.of(run.run_id));
  return {
    since: ledger.since,
    requests: shares.flatMap((share) => share.requests),
    effects: shares.flatMap((share) => share.effects),
  };
}
