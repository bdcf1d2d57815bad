import type { Clock } from '@counterstamp/manifest-core';

/** What was last read from somewhere that may be slow or away, and how old it is. */
export interface Latest<T> {
  /** Undefined before the first read that succeeded. */
  value: T | undefined;
  /** Milliseconds since that read began; before the first one, since the reading exists. */
  age_ms: number;
  /** Unix milliseconds of that read; 0: none yet. */
  at_ms: number;
  /** How long it took. */
  took_ms: number;
  /** Reads that failed. */
  failures: number;
}

export interface Reading<T> {
  /** Reads anew when what is known is older than `fresh_ms`, and answers within `wait_ms` whatever happens to the read. Never rejects. */
  latest(): Promise<Latest<T>>;
}

/**
 * One read at a time, however many ask: a scrape costs at most one query in `fresh_ms`, ten scrapes at once cost one, and while a read hangs there is no
 * second. What is known stays, with its age, so that a dead source never looks healthy.
 */
export function createReading<T>(
  read: () => Promise<T>,
  options: {
    clock: Pick<Clock, 'monotonicMs' | 'wallMs' | 'sleep'>;
    fresh_ms: number;
    wait_ms: number;
    /** Told of the first failure of a row: the others say the same. */
    onFailure?: (error: unknown) => void;
  },
): Reading<T> {
  const { clock, fresh_ms, wait_ms } = options;
  const createdMs = clock.monotonicMs();
  let known: { value: T; beganMs: number; at_ms: number; took_ms: number } | undefined;
  let failures = 0;
  let failing = false;
  let beganMs = Number.NEGATIVE_INFINITY;
  let under: Promise<void> | undefined;

  async function readOnce(): Promise<void> {
    const began = clock.monotonicMs();
    const at_ms = clock.wallMs();
    try {
      const value = await read();
      known = { value, beganMs: began, at_ms, took_ms: clock.monotonicMs() - began };
      failing = false;
    } catch (error) {
      failures += 1;
      if (!failing) options.onFailure?.(error);
      failing = true;
    } finally {
      under = undefined;
    }
  }

  return {
    async latest() {
      if (under === undefined && clock.monotonicMs() - beganMs >= fresh_ms) {
        beganMs = clock.monotonicMs();
        under = readOnce();
      }
      const leftMs = beganMs + wait_ms - clock.monotonicMs();
      if (under !== undefined && leftMs > 0) {
        const answered = new AbortController();
        await Promise.race([under, clock.sleep(leftMs, answered.signal)]);
        answered.abort();
      }
      return {
        value: known?.value,
        age_ms: clock.monotonicMs() - (known?.beganMs ?? createdMs),
        at_ms: known?.at_ms ?? 0,
        took_ms: known?.took_ms ?? 0,
        failures,
      };
    },
  };
}
