import { census, checkpointDue, commitCheckpoint, listCheckpoints } from '@counterstamp/manifest-store';
import { type Environment, runService, startStageService, workerStore } from '@counterstamp/stage-runtime';
import { CENSUS_TERMS } from '@counterstamp/telemetry';
import { openSystems } from '@counterstamp/workflows';
import { keepCheckpoints } from './checkpoints.ts';
import { parseConfig } from './config.ts';
import { reconcilerStages } from './stages.ts';
import { sweep } from './sweeper.ts';

/** Runs the reconciler until it is told to end: queue reconcile, the sweeper, the census, and, with a key for them, checkpoints of all histories. Any number of them may run. */
export async function runReconciler(env: Environment): Promise<void> {
  await runService(
    parseConfig,
    (shell) => {
      const { own, durations, limits } = shell.config;
      const { clock, failpoint, log, metrics } = shell;
      const systems = openSystems(own, durations);
      metrics.onCensus(() => census(shell.sql, CENSUS_TERMS));
      metrics.onBacklog(() => shell.queue.backlog());
      const store = workerStore(shell);
      return startStageService(shell, {
        store,
        judges: reconcilerStages(systems, { store, durations, limits, failpoint, metrics }),
        background: async (signal) => {
          const sweeping = sweep({ store, queue: shell.hints, clock, failpoint, durations, log, metrics }, signal);
          const { checkpoints } = shell.config;
          if (checkpoints === undefined) {
            log.warn('no checkpoints are signed: COUNTERSTAMP_CHECKPOINT_KEY is not set');
            return await sweeping;
          }
          const keeping = keepCheckpoints(
            checkpoints,
            {
              due: (wanted) => checkpointDue(shell.sql, wanted),
              commit: (due, envelope) => commitCheckpoint(shell.sql, due, envelope),
              stored: (after, limit) => listCheckpoints(shell.sql, after, limit),
              clock,
              durations,
              log,
            },
            signal,
          );
          await Promise.all([sweeping, keeping]);
        },
      });
    },
    env,
  );
}
