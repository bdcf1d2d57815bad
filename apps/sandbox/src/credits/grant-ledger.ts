import { isoTime, type SettableClock } from '../clock.ts';
import type { LedgerOutcome } from '../provider/ledger.ts';

/** One POST /credits/grants as it arrived, whatever came of it. */
export interface GrantLedgerEntry {
  readonly seq: number;
  /** ISO 8601 with milliseconds; when the headers were read. */
  readonly received_at: string;
  /** The same by the clock that `/admin/clock` does not move, for a comparison with the times of clients. */
  readonly arrived_at: string;
  customer_id: string | null;
  /** Hex, over the raw bytes; null when the body did not arrive whole. */
  body_sha256: string | null;
  /** Of the same bytes, under the tag by which a client of ours names what it sends, see `requestDigest`. */
  body_digest: string | null;
  body: string | null;
  memo: string | null;
  /** Kind of the fault that met this request. */
  fault: string | null;
  /** As in the payments' ledger; there are no replays. */
  outcome: Exclude<LedgerOutcome, 'replayed'>;
  /** The first grant that this request made. */
  effect_grant_id: string | null;
  /** The client went away before it had the whole answer. */
  aborted: boolean;
  /** Status and code of the honest answer, null when none was made. */
  http_status: number | null;
  code: string | null;
}

/** Every request for a grant received, in order. */
export class GrantLedger {
  readonly #entries: GrantLedgerEntry[] = [];

  open(clock: SettableClock): GrantLedgerEntry {
    const entry: GrantLedgerEntry = {
      seq: this.#entries.length + 1,
      received_at: isoTime(clock.now()),
      arrived_at: isoTime(clock.unmoved()),
      customer_id: null,
      body_sha256: null,
      body_digest: null,
      body: null,
      memo: null,
      fault: null,
      outcome: 'running',
      effect_grant_id: null,
      aborted: false,
      http_status: null,
      code: null,
    };
    this.#entries.push(entry);
    return entry;
  }

  list(filter: { customer_id?: string | undefined; after_seq?: number | undefined }): readonly GrantLedgerEntry[] {
    const rest = this.#entries.slice(filter.after_seq ?? 0);
    return filter.customer_id === undefined ? rest : rest.filter((entry) => entry.customer_id === filter.customer_id);
  }

  reset(): void {
    this.#entries.length = 0;
  }
}
