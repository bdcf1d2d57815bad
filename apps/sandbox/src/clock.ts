/** Milliseconds since 1970-01-01T00:00:00Z. */
export type EpochMs = number;

/** Tells the time. The sandbox reads no other clock. */
export type Clock = () => EpochMs;

/**
 * A clock that a test may push forward, so that "two hours later" or "the key has expired" costs no waiting.
 * Waits on the wire (latency, holds) are real time and do not follow it.
 */
export class SettableClock {
  readonly #base: Clock;
  #offsetMs = 0;

  constructor(base: Clock) {
    this.#base = base;
  }

  now(): EpochMs {
    return this.#base() + this.#offsetMs;
  }

  /** The time without what was advanced: that of the clients, whose clocks nobody moved. */
  unmoved(): EpochMs {
    return this.#base();
  }

  /** Moves the time forward by `ms` milliseconds; it never moves back, versions would shrink. */
  advance(ms: number): EpochMs {
    this.#offsetMs += ms;
    return this.now();
  }

  reset(): void {
    this.#offsetMs = 0;
  }
}

/** ISO 8601 in UTC with milliseconds, the form of every time on the wire. */
export function isoTime(at: EpochMs): string {
  return new Date(at).toISOString();
}
