import type { Durations, Failpoint, Limits } from '@counterstamp/manifest-core';
import type { Judge } from '@counterstamp/stage-runtime';
import { observeEffect, type Systems, workflowOf } from '@counterstamp/workflows';
import { decideLook } from './decide.ts';

/** The reconcile stage: one look, one judgement. Looks at once, never sends. */
export function reconcilerStages(
  systems: Systems,
  deps: { durations: Durations; limits: Limits; failpoint: Failpoint },
): { reconcile: Judge } {
  return {
    reconcile: async (run) => {
      const { run_id } = run.manifest;
      const workflow = workflowOf(systems, run.manifest);
      await deps.failpoint.reach('reconcile.observed-at.before-read', run_id);
      const observation = await observeEffect(run.manifest, workflow);
      await deps.failpoint.reach('reconcile.read.before-commit', run_id);
      return decideLook(run, observation, { ...deps, visibilityMs: workflow?.visibilityMs ?? 0 });
    },
  };
}
