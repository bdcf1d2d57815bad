import type { ApiStore, VerdictKind } from '@counterstamp/manifest-store';
import type { Metrics } from '@counterstamp/telemetry';

/** The moves that a person's verdict makes. */
const VERDICT_MOVES = {
  landed: { trigger: 'person_landed', to: 'verifying' },
  did_not_land: { trigger: 'person_absent', to: 'failed' },
  landed_differently: { trigger: 'person_settled_with_difference', to: 'failed' },
  still_unknown: { trigger: 'person_unsure', to: 'needs_reconciliation' },
  look_again: { trigger: 'person_unsure', to: 'needs_reconciliation' },
} as const satisfies Record<VerdictKind, unknown>;

/**
 * The api's store, with the moves that it commits counted: where every move passes. Not counted is an expiry that a late decision finds and commits: its
 * answer is the same as that of one that was found closed.
 */
export function meteredApiStore(store: ApiStore, metrics: Pick<Metrics, 'transition' | 'decision'>): ApiStore {
  return {
    ...store,
    async createRun(created) {
      const outcome = await store.createRun(created);
      if (outcome.kind === 'created')
        metrics.transition({ from: null, to: 'queued', trigger: 'request_accepted', stop_reason: null });
      return outcome;
    },
    async commit(who, commit) {
      const outcome = await store.commit(who, commit);
      const { from, to, on: trigger, facts } = commit;
      if (outcome.kind === 'committed')
        metrics.transition({ from, to, trigger, stop_reason: facts.stop_reason?.code ?? null });
      return outcome;
    },
    async decide(who, decision, leaseMs) {
      const outcome = await store.decide(who, decision, leaseMs);
      if (outcome.result !== 'recorded') return outcome;
      metrics.decision(decision.decision, outcome.waited_ms);
      metrics.transition({
        from: 'awaiting_approval',
        ...(decision.decision === 'approve'
          ? { to: 'awaiting_approval', trigger: 'decision_recorded', stop_reason: null }
          : { to: 'rejected', trigger: 'approval_rejected', stop_reason: 'approval_rejected' }),
      });
      return outcome;
    },
    async verdict(who, verdict) {
      const outcome = await store.verdict(who, verdict);
      if (outcome.result === 'recorded')
        metrics.transition({
          from: 'needs_reconciliation',
          ...VERDICT_MOVES[verdict.verdict],
          stop_reason: verdict.stop_reason?.code ?? null,
        });
      return outcome;
    },
  };
}
