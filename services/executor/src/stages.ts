import type { LoadedRun } from '@counterstamp/manifest-core';
import type { Judge } from '@counterstamp/stage-runtime';
import { inDecideSpan } from '@counterstamp/telemetry';
import { type Systems, workflowOf } from '@counterstamp/workflows';
import { verifyDecisions } from './approvals.ts';
import { type Alarm, decideFromFresh, decideFromRow, decideSigned, type Refusable } from './decide.ts';
import { approvedFacts, gatherFresh } from './facts.ts';
import { type PerformDeps, performDispatch } from './perform.ts';

/** The execute stage: cheap checks, signatures, fresh preconditions, then one dispatch. */
export function executorStages(systems: Systems, deps: PerformDeps): { execute: Judge } {
  return {
    execute: async (run) => {
      const { alarm, ...decision } = await judge(run, systems, deps);
      if (alarm !== undefined) await raise(run, alarm, deps);
      return decision;
    },
  };
}

async function judge(run: LoadedRun, systems: Systems, deps: PerformDeps): Promise<Refusable> {
  const { durations } = deps;
  const workflow = workflowOf(systems, run.manifest);
  const early = inDecideSpan(() => decideFromRow(run, workflow, durations));
  if (early.kind !== 'dispatch') return early;
  if (workflow === undefined) throw new Error('unreachable: refused above');
  const { verified, ...judged } = await verifyDecisions(run.manifest, deps.trust);
  const refused = inDecideSpan(() => decideSigned(run, judged, durations));
  if (refused !== undefined) return refused;
  const fresh = await gatherFresh(run.manifest, workflow, systems);
  const late = inDecideSpan(() => decideFromFresh(run, workflow, approvedFacts(run.manifest), fresh, durations));
  return late.kind === 'dispatch' ? await performDispatch(run, workflow, verified, deps) : late;
}

/** Somebody must look: recorded, counted and logged before the run's own stop is committed, so that no crash keeps it quiet. */
async function raise(
  { manifest }: LoadedRun,
  { code, detail }: Alarm,
  { store, metrics, log }: PerformDeps,
): Promise<void> {
  const { run_id, tenant_id, revision } = manifest;
  log.error({ run_id, revision, code, detail }, 'alarm: what was approved is not what is stored');
  metrics.alarm(code);
  await store.audit({ tenant_id, principal_id: null, run_id, what: 'alarm', code, detail: { revision, detail } });
}
