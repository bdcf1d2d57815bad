import type { Durations, Failpoint, Limits, LoadedRun, Store } from '@counterstamp/manifest-core';
import type { Judge, StageDecision } from '@counterstamp/stage-runtime';
import { type ClosureResult, inDecideSpan, inSpan, type Metrics } from '@counterstamp/telemetry';
import { lookResult, observeEffect, type Systems, workflowOf } from '@counterstamp/workflows';
import { type AuditDecision, decideClosureAudit, decideLook, type Terms } from './decide.ts';

export interface ReconcilerDeps {
  store: Pick<Store, 'audit'>;
  durations: Durations;
  limits: Limits;
  failpoint: Failpoint;
  metrics: Pick<Metrics, 'look' | 'closureAudit'>;
}

/** The reconcile stage: one look, one judgement; of runs in doubt, and of closed ones whose effect may still turn up or turn. Never sends. */
export function reconcilerStages(systems: Systems, deps: ReconcilerDeps): { reconcile: Judge } {
  return {
    reconcile: async (run) => {
      const { run_id, state } = run.manifest;
      const workflow = workflowOf(systems, run.manifest);
      await deps.failpoint.reach('reconcile.observed-at.before-read', run_id);
      const observation = await observeEffect(run.manifest, workflow);
      deps.metrics.look(state === 'needs_reconciliation' ? 'reconcile' : 'closure_audit', lookResult(observation));
      await deps.failpoint.reach('reconcile.read.before-commit', run_id);
      const terms: Terms = {
        durations: deps.durations,
        limits: deps.limits,
        visibilityMs: workflow?.visibilityMs ?? 0,
        contract: workflow?.contract,
      };
      if (state === 'needs_reconciliation') return inDecideSpan(() => decideLook(run, observation, terms));
      const audit = inSpan('decide', {}, (span) => {
        const judged = decideClosureAudit(run, observation, terms);
        const { decision } = judged;
        span.set({ result: decision.kind, trigger: decision.kind === 'commit' ? decision.on : undefined });
        return judged;
      });
      deps.metrics.closureAudit(closureResult(audit));
      return await closureAudit(run, audit, deps.store);
    },
  };
}

function closureResult({ decision, looked }: AuditDecision): ClosureResult {
  if (decision.kind === 'commit') return decision.on === 'effect_reversed' ? 'effect_reversed' : 'effect_found';
  if (looked === 'given_up') return 'given_up';
  return decision.kind === 'defer' && decision.code === 'closure_unanswered' ? 'unanswered' : 'nothing_new';
}

/** A look at a failed run that found nothing is on record: a successor may rest on it. No transition, so no revision. */
async function closureAudit(
  run: LoadedRun,
  { decision, looked }: AuditDecision,
  store: Pick<Store, 'audit'>,
): Promise<StageDecision> {
  if (looked !== null && decision.kind === 'defer') {
    const { run_id, tenant_id } = run.manifest;
    await store.audit({
      tenant_id,
      principal_id: null,
      run_id,
      what: 'closure_audit',
      code: looked,
      detail: { observed_at: run.now },
    });
  }
  return decision;
}
