import { isoTime, type SettableClock } from '../clock.ts';

/**
 * What became of one request: `accepted` made an effect, `replayed` got a stored answer, `refused` had none,
 * `cut` was closed by the provider without a byte (`effect_refund_id` says whether it had an effect),
 * `running` is not decided yet.
 */
export type LedgerOutcome = 'running' | 'accepted' | 'replayed' | 'refused' | 'cut';

/** One POST /payments/refunds as it arrived, whatever came of it. */
export interface LedgerEntry {
  readonly seq: number;
  /** ISO 8601 with milliseconds; when the headers were read. */
  readonly received_at: string;
  /** The same by the clock that `/admin/clock` does not move, for a comparison with the times of clients. */
  readonly arrived_at: string;
  payment_id: string | null;
  readonly idempotency_key: string | null;
  /** Hex, over the raw bytes; null when the body did not arrive whole. */
  body_sha256: string | null;
  /** Of the same bytes, under the tag by which a client of ours names what it sends, see `requestDigest`. */
  body_digest: string | null;
  body: string | null;
  run_id: string | null;
  /** Kind of the fault that met this request. */
  fault: string | null;
  outcome: LedgerOutcome;
  /** The refund that this very request made; null for a replay. */
  effect_refund_id: string | null;
  /** The client went away before it had the whole answer. */
  aborted: boolean;
  /** Status and code of the honest answer, null when none was made. */
  http_status: number | null;
  code: string | null;
}

/** Every refund request received, in order. */
export class Ledger {
  readonly #entries: LedgerEntry[] = [];

  open(clock: SettableClock, idempotencyKey: string | null): LedgerEntry {
    const entry: LedgerEntry = {
      seq: this.#entries.length + 1,
      received_at: isoTime(clock.now()),
      arrived_at: isoTime(clock.unmoved()),
      payment_id: null,
      idempotency_key: idempotencyKey,
      body_sha256: null,
      body_digest: null,
      body: null,
      run_id: null,
      fault: null,
      outcome: 'running',
      effect_refund_id: null,
      aborted: false,
      http_status: null,
      code: null,
    };
    this.#entries.push(entry);
    return entry;
  }

  list(filter: { payment_id?: string | undefined; after_seq?: number | undefined }): readonly LedgerEntry[] {
    const rest = this.#entries.slice(filter.after_seq ?? 0);
    return filter.payment_id === undefined ? rest : rest.filter((entry) => entry.payment_id === filter.payment_id);
  }

  reset(): void {
    this.#entries.length = 0;
  }
}
