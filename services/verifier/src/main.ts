import { type Environment, runService, startStageService, workerStore } from '@counterstamp/stage-runtime';
import { openSystems } from '@counterstamp/workflows';
import { parseConfig } from './config.ts';
import { verifierStages } from './stages.ts';

/** Runs the verifier until it is told to end: queue verify. Holds a read-only key. */
export async function runVerifier(env: Environment): Promise<void> {
  await runService(
    parseConfig,
    (shell) => {
      const { own, durations, limits } = shell.config;
      const systems = openSystems(own, durations);
      return startStageService(shell, {
        store: workerStore(shell),
        judges: verifierStages(systems, { durations, limits, failpoint: shell.failpoint, metrics: shell.metrics }),
      });
    },
    env,
  );
}
