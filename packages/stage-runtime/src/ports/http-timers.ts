/** The only clock and the only timers of the HTTP clients; tests may pass their own. The `Clock` of manifest-core fits. */
export interface HttpTimers {
  /** Monotonic milliseconds, for durations only. */
  monotonicMs(): number;
  /** Calls back once after `ms` milliseconds; the returned function cancels it. */
  after(ms: number, callback: () => void): () => void;
}

export const systemHttpTimers: HttpTimers = {
  monotonicMs: () => performance.now(),
  after: (ms, callback) => {
    const timer = setTimeout(callback, ms);
    return () => clearTimeout(timer);
  },
};
