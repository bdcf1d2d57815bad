import { setTimeout as delay } from 'node:timers/promises';
import type { Clock } from '@counterstamp/manifest-core';

/** The machine's clocks. */
export const systemClock: Clock = {
  monotonicMs: () => performance.now(),
  wallMs: () => Date.now(),
  async sleep(ms, signal) {
    // An aborted wait is simply over: the caller looks at the signal if it matters.
    await delay(ms, undefined, signal === undefined ? {} : { signal }).catch(() => undefined);
  },
  after(ms, callback) {
    const timer = setTimeout(callback, ms);
    return () => clearTimeout(timer);
  },
};
