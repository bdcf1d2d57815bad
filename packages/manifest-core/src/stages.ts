import type { State } from './states.ts';

/** One queue per stage; the names are the queues' names. */
export const STAGES = ['preflight', 'collect', 'propose', 'execute', 'verify', 'reconcile'] as const;
export type Stage = (typeof STAGES)[number];

/** The columns of a run that steer its hints. */
export interface StageRow {
  state: State;
  evidence_complete: boolean;
  decisions_sufficient: boolean;
  retry_allowed: boolean;
  parked_reason: string | null;
  /** ISO time at which the fleet must look again; null when nothing is left to look at. */
  wake_at: string | null;
}

/**
 * The stage that has work for this row, or `null` when nobody has (a person, a clock or nothing at all comes next).
 * The flags only steer hints: a dispatch counts the decisions again.
 */
export function stageOf(row: StageRow): Stage | null {
  switch (row.state) {
    case 'queued':
    case 'preflight':
      return 'preflight';
    case 'collecting':
      return row.evidence_complete ? 'propose' : 'collect';
    case 'proposed':
      return 'propose';
    case 'awaiting_approval':
      return row.decisions_sufficient ? 'execute' : null;
    case 'executing':
      return null;
    case 'verifying':
      return 'verify';
    case 'needs_reconciliation':
      if (row.parked_reason !== null) return null;
      return row.retry_allowed ? 'execute' : 'reconcile';
    case 'failed':
    case 'completed':
      return row.wake_at === null ? null : 'reconcile';
    case 'rejected':
    case 'expired':
      return null;
  }
}
