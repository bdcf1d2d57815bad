import type { EpochMs } from '../clock.ts';
import type { Answer } from '../http/answer.ts';

/** Milliseconds that a key is kept. 24 h: the shortest promise among the providers in connectors.md. */
export const KEY_RETENTION_MS = 24 * 3600 * 1000;

/** One use of a key. `answer` is null while the request that holds it is running. */
export interface KeyUse {
  readonly body_sha256: string;
  readonly first_used_at: EpochMs;
  answer: Answer | null;
}

export type KeyClaim =
  | { readonly kind: 'new'; readonly use: KeyUse }
  | { readonly kind: 'replay'; readonly answer: Answer }
  | { readonly kind: 'body_mismatch' }
  | { readonly kind: 'in_use' };

/** The provider's memory of idempotency keys, for one account. */
export class IdempotencyKeys {
  readonly #uses = new Map<string, KeyUse>();

  /** Claims `key` for a body; `retentionMs` after its first use the same key is new again, and executes again. */
  claim(key: string, bodySha256: string, now: EpochMs, retentionMs: number): KeyClaim {
    const known = this.#uses.get(key);
    if (known !== undefined && (known.answer === null || now < known.first_used_at + retentionMs)) {
      if (known.body_sha256 !== bodySha256) return { kind: 'body_mismatch' };
      return known.answer === null ? { kind: 'in_use' } : { kind: 'replay', answer: known.answer };
    }
    const use: KeyUse = { body_sha256: bodySha256, first_used_at: now, answer: null };
    this.#uses.set(key, use);
    return { kind: 'new', use };
  }

  forget(key: string): void {
    this.#uses.delete(key);
  }

  reset(): void {
    this.#uses.clear();
  }
}
