/** The only clock and the only timers of this package; tests may pass their own. The `Clock` of manifest-core fits. */
export interface Timers {
  /** Monotonic milliseconds, for durations only. */
  monotonicMs(): number;
  /** Milliseconds since the epoch. */
  wallMs(): number;
  /**
   * Runs `task` once after `ms` milliseconds and keeps the process alive until then: a bounded wait at the end of a
   * process must not be cut short by its exit.
   * @returns a function that cancels it.
   */
  after(ms: number, task: () => void): () => void;
}

export const systemTimers: Timers = {
  monotonicMs: () => performance.now(),
  wallMs: () => Date.now(),
  after: (ms, task) => {
    const timer = setTimeout(task, ms);
    return () => clearTimeout(timer);
  },
};
