import { setTimeout as delay } from 'node:timers/promises';

/** Milliseconds between two looks. 10 ms: a warm start takes about 100 ms, and a look is one small file. */
const POLL_MS = 10;

/**
 * Looks until `look` returns something other than `undefined`.
 * @param what names what is awaited; it becomes part of the error.
 * @param limitMs bound in milliseconds.
 * @throws {Error} after `limitMs`; whatever `look` throws; the signal's reason when it aborts.
 */
export async function waitFor<T>(
  what: string,
  limitMs: number,
  look: () => Promise<T | undefined> | T | undefined,
  signal?: AbortSignal,
): Promise<T> {
  const endsAt = performance.now() + limitMs;
  for (;;) {
    signal?.throwIfAborted();
    const seen = await look();
    if (seen !== undefined) return seen;
    if (performance.now() > endsAt) throw new Error(`${what} took more than ${limitMs} ms`);
    await delay(POLL_MS);
  }
}
