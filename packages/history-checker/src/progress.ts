import { isClosed } from '@counterstamp/manifest-core';
import type { Finding } from './checks.ts';
import { microseconds, type RunHistory } from './history.ts';

/** What to expect of a fleet that was given time to heal. */
export interface Healed {
  /** The database's clock at the read. */
  now: string;
  /** How long past its `wake_at` a run may still wait for somebody, in milliseconds. */
  overdue_ms: number;
}

/**
 * H11: every run that is not closed is due at some time or parked with a reason. In a healed fleet, moreover, nothing is due since long, looks
 * at closed runs included.
 * @param healed null: the fleet is at work, or down; then a late `wake_at` says nothing.
 */
export function dueOrParked({ run }: RunHistory, healed: Healed | null): Finding<'H11'>[] {
  if (run.parked_reason !== null) return [];
  if (run.wake_at === null)
    return isClosed(run.state)
      ? []
      : [{ code: 'stuck', message: `the run is ${run.state}, and neither due nor parked` }];
  if (healed === null || microseconds(run.wake_at) + healed.overdue_ms * 1_000 >= microseconds(healed.now)) return [];
  return [
    {
      code: 'overdue',
      message: `the run is ${run.state} and was due at ${run.wake_at}; at ${healed.now} nobody had come`,
    },
  ];
}
