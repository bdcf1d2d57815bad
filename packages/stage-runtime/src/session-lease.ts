import { connectForLease, takeLease } from '@counterstamp/manifest-store';
import type { ServiceConfig } from './config.ts';
import type { Shell } from './process-shell.ts';

/** A lease that was lost is asked for again this often, in milliseconds; well within `lease_loss_ms`. */
const RETRY_MS = 200;

/** The session lease of an executor (protocol rule 15). */
export interface SessionLease {
  readonly held: boolean;
  /** Gives the lease up: after this nothing of the instance may be under way. */
  release(): Promise<void>;
}

/**
 * Holds this instance's session lease until it is released: an advisory lock on a connection that does nothing else, so that a killed process
 * frees it at once. A connection that breaks is opened again and the lease taken anew, before sweepers believe in the loss.
 */
export function holdSessionLease(
  shell: Pick<Shell<ServiceConfig>, 'config' | 'instance_id' | 'process' | 'clock' | 'log'>,
): SessionLease {
  const { config, instance_id, clock, log } = shell;
  const ending = new AbortController();
  let held = false;
  let noticeLoss = (): void => undefined;
  const sql = connectForLease(config.database_url, {
    applicationName: `counterstamp-${config.service}-lease`,
    onClose: () => {
      if (held && !ending.signal.aborted) log.warn('the session lease is lost; taking it again');
      held = false;
      noticeLoss();
    },
  });
  const released = new Promise<void>((resolve) => ending.signal.addEventListener('abort', () => resolve()));

  const holding = (async () => {
    while (!ending.signal.aborted) {
      const lost = new Promise<void>((resolve) => {
        noticeLoss = resolve;
      });
      try {
        held = await takeLease(sql, instance_id, shell.process);
        if (held) await Promise.race([lost, released]);
        else log.error('the session lease is refused: this instance counts as ended; restart the process');
      } catch (error) {
        log.warn({ reason: error instanceof Error ? error.message : String(error) }, 'the session lease is not held');
      }
      if (!held) await clock.sleep(RETRY_MS, ending.signal);
    }
  })();

  return {
    get held() {
      return held;
    },
    async release() {
      ending.abort();
      await Promise.race([sql.end({ timeout: 1 }), clock.sleep(2_000)]);
      await Promise.race([holding, clock.sleep(1_000)]);
    },
  };
}
