import type { Durations, Failpoint, Limits } from '@counterstamp/manifest-core';
import type { Judge } from '@counterstamp/stage-runtime';
import { inDecideSpan, type Metrics } from '@counterstamp/telemetry';
import { lookResult, observeEffect, type Systems, workflowOf } from '@counterstamp/workflows';
import { decideVerification } from './decide.ts';

/** The verify stage: one look at the business record, one judgement. */
export function verifierStages(
  systems: Systems,
  deps: { durations: Durations; limits: Limits; failpoint: Failpoint; metrics: Pick<Metrics, 'look'> },
): { verify: Judge } {
  return {
    verify: async (run) => {
      const workflow = workflowOf(systems, run.manifest);
      const observation = await observeEffect(run.manifest, workflow);
      deps.metrics.look('verify', lookResult(observation));
      await deps.failpoint.reach('verify.read.before-commit', run.manifest.run_id);
      return inDecideSpan(() => decideVerification(run, observation, { ...deps, contract: workflow?.contract }));
    },
  };
}
