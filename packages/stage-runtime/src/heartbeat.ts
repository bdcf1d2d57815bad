import type { ServiceConfig } from './config.ts';
import type { Shell } from './process-shell.ts';

/** A live instance says so this often, in milliseconds. */
const BEAT_MS = 5_000;

/** Records that this instance lives, until stopped. A beat that fails is logged; the next one tries again. */
export function startBeating(
  shell: Pick<Shell<ServiceConfig>, 'clock' | 'log'>,
  beat: () => Promise<void>,
): { stop(): Promise<void> } {
  const ending = new AbortController();
  const beating = (async () => {
    while (!ending.signal.aborted) {
      try {
        await beat();
      } catch (error) {
        shell.log.warn({ reason: error instanceof Error ? error.message : String(error) }, 'heartbeat not recorded');
      }
      await shell.clock.sleep(BEAT_MS, ending.signal);
    }
  })();
  return {
    stop() {
      ending.abort();
      return beating;
    },
  };
}
