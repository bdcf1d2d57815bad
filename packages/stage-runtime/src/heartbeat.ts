import { databaseClock } from '@counterstamp/manifest-store';
import type { ServiceConfig } from './config.ts';
import type { Shell } from './process-shell.ts';

/** A live instance says so this often, in milliseconds. */
const BEAT_MS = 5_000;

/**
 * Records that this instance lives, and measures how far its clock is from the database's, until stopped. A beat that fails is logged; the next
 * one tries again.
 */
export function startBeating(
  shell: Pick<Shell<ServiceConfig>, 'clock' | 'log' | 'metrics' | 'sql'>,
  beat: () => Promise<void>,
): { stop(): Promise<void> } {
  const { clock, log, metrics, sql } = shell;
  const ending = new AbortController();
  const beating = (async () => {
    while (!ending.signal.aborted) {
      try {
        await beat();
        const began = clock.wallMs();
        const database = await databaseClock(sql);
        metrics.clockOffset((began + clock.wallMs()) / 2 - database);
      } catch (error) {
        log.warn({ reason: error instanceof Error ? error.message : String(error) }, 'heartbeat not recorded');
      }
      await clock.sleep(BEAT_MS, ending.signal);
    }
  })();
  return {
    stop() {
      ending.abort();
      return beating;
    },
  };
}
