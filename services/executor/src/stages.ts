import type { Judge } from '@counterstamp/stage-runtime';
import { type Systems, workflowOf } from '@counterstamp/workflows';
import { decideFromFresh, decideFromRow } from './decide.ts';
import { approvedFacts, gatherFresh } from './facts.ts';
import { type PerformDeps, performDispatch } from './perform.ts';

/** The execute stage: cheap checks, fresh preconditions, then one dispatch. */
export function executorStages(systems: Systems, deps: PerformDeps): { execute: Judge } {
  return {
    execute: async (run) => {
      const workflow = workflowOf(systems, run.manifest);
      const early = decideFromRow(run, workflow, deps.durations);
      if (early.kind !== 'dispatch') return early;
      if (workflow === undefined) throw new Error('unreachable: refused above');
      const fresh = await gatherFresh(run.manifest, workflow, systems);
      const late = decideFromFresh(run, workflow, approvedFacts(run.manifest), fresh, deps.durations);
      return late.kind === 'dispatch' ? await performDispatch(run, workflow, deps) : late;
    },
  };
}
