import type { Health, Readiness } from '@counterstamp/api-contract';
import type { ApiDeps } from './deps.ts';

/** Milliseconds that the database may take to answer before the process counts as not ready. */
const READY_MS = 1_000;

export const HEALTH: Health = { status: 'ok' };

/** Whether commands can be taken now. Never rejects. */
export async function readiness({
  store,
  clock,
  pingQueue,
}: Pick<ApiDeps, 'store' | 'clock' | 'pingQueue'>): Promise<Readiness> {
  const [database, queue] = await Promise.all([
    within(
      clock,
      store.ping().then(() => true),
    ),
    pingQueue === undefined
      ? undefined
      : within(
          clock,
          pingQueue().then(({ kind }) => kind === 'ok'),
        ),
  ]);
  return {
    ready: database,
    database: database ? 'ok' : 'unavailable',
    queue: queue === undefined ? 'unknown' : queue ? 'ok' : 'unavailable',
  };
}

/** What `check` says, or false when it fails or takes longer than `READY_MS`. */
function within(clock: ApiDeps['clock'], check: Promise<boolean>): Promise<boolean> {
  return new Promise((resolve) => {
    const cancel = clock.after(READY_MS, () => resolve(false));
    const end = (holds: boolean) => {
      cancel();
      resolve(holds);
    };
    check.then(end, () => end(false));
  });
}
