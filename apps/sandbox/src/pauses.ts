/** How a pause ended: its time was over, or the sandbox closed or was reset meanwhile. */
export type PauseEnd = 'elapsed' | 'cancelled';

/** The only timers of the sandbox: every one is known here, so that closing leaves none behind. */
export class Pauses {
  readonly #cancels = new Set<() => void>();

  /** Waits `ms` milliseconds of real time; 0 does not yield. */
  async pause(ms: number): Promise<PauseEnd> {
    if (ms <= 0) return 'elapsed';
    return new Promise((resolve) => {
      const end = (how: PauseEnd): void => {
        clearTimeout(timer);
        this.#cancels.delete(cancel);
        resolve(how);
      };
      const cancel = (): void => end('cancelled');
      const timer = setTimeout(end, ms, 'elapsed');
      this.#cancels.add(cancel);
    });
  }

  cancelAll(): void {
    for (const cancel of [...this.#cancels]) cancel();
  }
}
