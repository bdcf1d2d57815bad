import { type Environment, runService, startStageService, workerStore } from '@counterstamp/stage-runtime';
import { openSystems } from '@counterstamp/workflows';
import { parseConfig } from './config.ts';
import { preflightStages } from './stages.ts';

/** Runs the preflight service until it is told to end: queues preflight, collect and propose. */
export async function runPreflight(env: Environment): Promise<void> {
  await runService(
    parseConfig,
    (shell) => {
      const { own, durations, limits } = shell.config;
      const systems = openSystems(own, durations);
      return startStageService(shell, {
        store: workerStore(shell),
        judges: preflightStages({ systems, ids: shell.ids, durations, limits }),
      });
    },
    env,
  );
}
