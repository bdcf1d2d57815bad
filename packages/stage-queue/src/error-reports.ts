import type { Timers } from './ports/timers.ts';

/**
 * Where errors of the queue go. `where` is a short stable place such as `redis.hints`, `execute.worker`,
 * `execute.handler` or `execute.malformed_hint`. `suppressed` counts equal reports that were held back since the last.
 */
export type OnError = (error: Error, where: string, suppressed: number) => void;

/** Milliseconds during which equal reports are held back. 10 s: an outage reports itself about six times a minute per place. */
const QUIET_MS = 10_000;

/** Distinct reports remembered. The oldest is forgotten first, so that changing messages cannot fill the memory. */
const REMEMBERED_MAX = 200;

export type Report = (error: unknown, where: string) => void;

/**
 * A reporter that passes on the first report of its kind (place and code or message) and at most one per 10 s after it:
 * while a backend is away, every client and loop fails several times a second. It never throws.
 */
export function rateLimitedReport(onError: OnError, timers: Timers): Report {
  const seen = new Map<string, { until: number; suppressed: number }>();
  return (thrown, where) => {
    const error = thrown instanceof Error ? thrown : new Error(String(thrown));
    const code = 'code' in error && typeof error.code === 'string' ? error.code : error.message;
    const kind = `${where} ${code}`;
    const now = timers.monotonicMs();
    const known = seen.get(kind);
    if (known !== undefined && now < known.until) {
      known.suppressed += 1;
      return;
    }
    seen.delete(kind);
    seen.set(kind, { until: now + QUIET_MS, suppressed: 0 });
    if (seen.size > REMEMBERED_MAX) {
      for (const oldest of seen.keys()) {
        seen.delete(oldest);
        break;
      }
    }
    try {
      onError(error, where, known?.suppressed ?? 0);
    } catch {
      // A reporter that fails must not stop a consumer: there is nobody left to tell.
    }
  };
}
