/** Milliseconds before the first restart; each further one within the window waits twice as long. */
const FIRST_MS = 500;
const LONGEST_MS = 10_000;

/** A process that ended this often within the window is not started again: the cause is not one that time repairs. */
const RESTARTS_MAX = 5;
const WINDOW_MS = 120_000;

/** EX_CONFIG: only a person can correct it. */
const EXIT_CONFIG = 78;

export type AfterEnd = { kind: 'restart'; in_ms: number } | { kind: 'leave'; why: 'configuration' | 'too_often' };

/**
 * What to do with a process that ended by itself. Pure.
 * @param endedAtMs when it ended before, milliseconds of a monotonic clock.
 */
export function afterEnd(code: number | null, endedAtMs: readonly number[], nowMs: number): AfterEnd {
  if (code === EXIT_CONFIG) return { kind: 'leave', why: 'configuration' };
  const recent = endedAtMs.filter((at) => nowMs - at < WINDOW_MS).length;
  if (recent >= RESTARTS_MAX) return { kind: 'leave', why: 'too_often' };
  return { kind: 'restart', in_ms: Math.min(LONGEST_MS, FIRST_MS * 2 ** recent) };
}
