import type { Store } from '@counterstamp/manifest-core';
import type { Metrics } from '@counterstamp/telemetry';

/** The store, with the moves that it commits counted: where every move passes, so that none is forgotten. */
export function meteredStore(store: Store, metrics: Pick<Metrics, 'transition'>): Store {
  return {
    ...store,
    async commitStage(commit) {
      const outcome = await store.commitStage(commit);
      const { from, to, on: trigger, facts } = commit;
      if (outcome.kind === 'committed')
        metrics.transition({ from, to, trigger, stop_reason: facts.stop_reason?.code ?? null });
      return outcome;
    },
    async commitDispatch(commit) {
      const outcome = await store.commitDispatch(commit);
      if (outcome.kind === 'committed')
        metrics.transition({
          ...(commit.retry === null
            ? { from: 'awaiting_approval', trigger: 'dispatched' }
            : { from: 'needs_reconciliation', trigger: 'retry_dispatched' }),
          to: 'executing',
          stop_reason: null,
        });
      return outcome;
    },
    async appendEvidence(late) {
      const kept = await store.appendEvidence(late);
      // From failed, or from a parked doubt: which of them, only the database knows.
      if (kept === 'reopened')
        metrics.transition({
          from: 'other',
          to: 'needs_reconciliation',
          trigger: 'late_effect_found',
          stop_reason: 'late_effect_found',
        });
      return kept;
    },
  };
}
