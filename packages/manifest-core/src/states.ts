/** Every state a run can be in, in the order of the path (architecture.md section 2). */
export const STATES = [
  'queued',
  'preflight',
  'collecting',
  'proposed',
  'awaiting_approval',
  'executing',
  'verifying',
  'completed',
  'rejected',
  'expired',
  'failed',
  'needs_reconciliation',
] as const;
export type State = (typeof STATES)[number];

/** States in which a run rests. `needs_reconciliation` is a stop, yet not closed: somebody still has to learn what happened. */
export const STOPS = ['completed', 'rejected', 'expired', 'failed', 'needs_reconciliation'] as const satisfies State[];
export type Stop = (typeof STOPS)[number];

/** Stops that are final, except for the listed reopenings. */
export const CLOSED = ['completed', 'rejected', 'expired', 'failed'] as const satisfies State[];
export type Closed = (typeof CLOSED)[number];

/** States that end the run when its deadline passes; after dispatch a deadline ends no effect. */
export const BEFORE_DISPATCH = [
  'queued',
  'preflight',
  'collecting',
  'proposed',
  'awaiting_approval',
] as const satisfies State[];

export function isStop(state: State): state is Stop {
  return (STOPS as readonly State[]).includes(state);
}

export function isClosed(state: State): state is Closed {
  return (CLOSED as readonly State[]).includes(state);
}
