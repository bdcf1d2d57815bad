import {
  type Environment,
  holdSessionLease,
  openOneShot,
  runService,
  startStageService,
  workerStore,
} from '@counterstamp/stage-runtime';
import { openSystems } from '@counterstamp/workflows';
import { parseConfig } from './config.ts';
import { executorStages } from './stages.ts';

/** Runs the executor until it is told to end: queue execute. The only process that holds a key for effects. */
export async function runExecutor(env: Environment): Promise<void> {
  await runService(
    parseConfig,
    (shell) => {
      const { own, durations } = shell.config;
      const systems = openSystems(own, durations, own.COUNTERSTAMP_PAYMENTS_WRITE_KEY);
      const store = workerStore(shell);
      const { clock, ids, failpoint, log, metrics } = shell;
      return startStageService(shell, {
        store,
        judges: executorStages(systems, {
          store,
          clock,
          ids,
          failpoint,
          durations,
          log,
          metrics,
          open: openOneShot,
          trust: shell.config.trust,
        }),
        lease: holdSessionLease(shell),
      });
    },
    env,
  );
}
