import type { Timers } from './ports/timers.ts';

export type Within<T> = { kind: 'done'; value: T } | { kind: 'late' };

/**
 * The result of `work`, or `late` after `ms` milliseconds. What `work` does after that is ignored, its rejection too.
 * @throws what `work` rejects with, when it does so in time.
 */
export async function within<T>(timers: Timers, ms: number, work: Promise<T>): Promise<Within<T>> {
  let cancel = (): void => {};
  const late = new Promise<Within<T>>((resolve) => {
    cancel = timers.after(ms, () => resolve({ kind: 'late' }));
  });
  try {
    return await Promise.race([work.then((value): Within<T> => ({ kind: 'done', value })), late]);
  } finally {
    cancel();
  }
}

/** Resolves after `ms` milliseconds. */
export function pause(timers: Timers, ms: number): Promise<void> {
  return new Promise((resolve) => {
    timers.after(ms, resolve);
  });
}
