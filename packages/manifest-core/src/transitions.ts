import type { Service } from './services.ts';
import { BEFORE_DISPATCH, STATES, type State } from './states.ts';

/** What a commit may write beside the state. One name per fact; docs/reference/field-authority.md is rendered from here. */
export const FACTS = [
  'input',
  'evidence',
  'evidence_complete',
  'proposal',
  'proposal_id',
  'proposal_refusal',
  'read_failure',
  'action',
  'approval_request',
  'decision',
  'attempt',
  'attempt_outcome',
  'observation',
  'retry_grounds',
  'parked_reason',
  'stop_reason',
] as const;
export type Fact = (typeof FACTS)[number];

/** Durable counters of the automatic loops (protocol rule 24). Only the database increments them. */
export const COUNTERS = [
  'read_failures',
  'proposal_cycles',
  'verification_waits',
  'look_ups',
  'attempts',
  'not_sent_retries',
  'retries_refused',
] as const;
export type Counter = (typeof COUNTERS)[number];

/** Named conditions that the committing worker (and, where it matters, the database again) checks before the move. */
export type Guard = 'cyclesRemain' | 'mayDispatch' | 'mayRetry' | 'mayCloseAbsent' | 'mayCloseNotSent';

export interface TransitionRule {
  /** `null`: the run does not exist yet. */
  readonly from: State | null;
  readonly on: string;
  readonly to: State;
  readonly by: readonly Service[];
  readonly facts: readonly Fact[];
  readonly counts?: Counter;
  /** Facts without which the move is refused. */
  readonly requires?: readonly Fact[];
  /** The status that the attempt closed by this move gets, and no other. */
  readonly attempt?: 'succeeded' | 'rejected' | 'not_sent' | 'uncertain';
  /** What the observation that justifies the move says. */
  readonly observation?: 'matched' | 'settlement_failed' | 'found' | 'absent' | 'person';
  readonly guard?: Guard;
}

// biome-ignore format: a table reads best as a table
const RULES = [
  { from: null, on: 'request_accepted', to: 'queued', by: ['api'], facts: ['input', 'proposal'] },

  { from: 'queued', on: 'request_loaded', to: 'preflight', by: ['preflight'], facts: ['evidence'], requires: ['evidence'] },
  { from: 'queued', on: 'checks_failed', to: 'failed', by: ['preflight'], facts: ['stop_reason'], requires: ['stop_reason'] },

  { from: 'preflight', on: 'read_failed', to: 'preflight', by: ['preflight'], facts: ['read_failure'], counts: 'read_failures', requires: ['read_failure'] },
  { from: 'preflight', on: 'checks_failed', to: 'failed', by: ['preflight'], facts: ['stop_reason'], requires: ['stop_reason'] },
  { from: 'preflight', on: 'checks_passed', to: 'collecting', by: ['preflight'], facts: [] },

  { from: 'collecting', on: 'read_failed', to: 'collecting', by: ['preflight'], facts: ['read_failure'], counts: 'read_failures', requires: ['read_failure'] },
  { from: 'collecting', on: 'evidence_recorded', to: 'collecting', by: ['preflight'], facts: ['evidence', 'evidence_complete'], requires: ['evidence', 'evidence_complete'] },
  { from: 'collecting', on: 'proposal_asked_again', to: 'collecting', by: ['preflight'], facts: ['read_failure'], counts: 'proposal_cycles' },
  { from: 'collecting', on: 'proposal_received', to: 'proposed', by: ['preflight', 'api'], facts: ['proposal', 'proposal_id'] },
  { from: 'collecting', on: 'checks_failed', to: 'failed', by: ['preflight'], facts: ['evidence', 'stop_reason'], requires: ['stop_reason'] },

  { from: 'proposed', on: 'proposal_refused', to: 'collecting', by: ['preflight'], facts: ['proposal_refusal'], counts: 'proposal_cycles', guard: 'cyclesRemain', requires: ['proposal_refusal'] },
  { from: 'proposed', on: 'checks_failed', to: 'failed', by: ['preflight'], facts: ['proposal_refusal', 'stop_reason'], requires: ['stop_reason'] },
  { from: 'proposed', on: 'action_fixed', to: 'awaiting_approval', by: ['preflight'], facts: ['action', 'approval_request'], requires: ['action', 'approval_request'] },

  { from: 'awaiting_approval', on: 'decision_recorded', to: 'awaiting_approval', by: ['api'], facts: ['decision'] },
  { from: 'awaiting_approval', on: 'decision_voided', to: 'awaiting_approval', by: ['executor'], facts: [] },
  { from: 'awaiting_approval', on: 'proposal_superseded', to: 'collecting', by: ['api'], facts: ['proposal'], counts: 'proposal_cycles', guard: 'cyclesRemain' },
  { from: 'awaiting_approval', on: 'evidence_changed', to: 'collecting', by: ['executor'], facts: [], counts: 'proposal_cycles', guard: 'cyclesRemain' },
  { from: 'awaiting_approval', on: 'approval_rejected', to: 'rejected', by: ['api'], facts: ['decision', 'stop_reason'] },
  { from: 'awaiting_approval', on: 'approval_expired', to: 'expired', by: ['api', 'executor', 'reconciler'], facts: ['stop_reason'] },
  { from: 'awaiting_approval', on: 'dispatch_refused', to: 'failed', by: ['executor'], facts: ['stop_reason'] },
  { from: 'awaiting_approval', on: 'dispatched', to: 'executing', by: ['executor'], facts: ['attempt'], counts: 'attempts', guard: 'mayDispatch' },

  { from: 'executing', on: 'effect_accepted', to: 'verifying', by: ['executor'], facts: ['attempt_outcome'], requires: ['attempt_outcome'], attempt: 'succeeded' },
  { from: 'executing', on: 'effect_rejected', to: 'failed', by: ['executor'], facts: ['attempt_outcome', 'stop_reason'], requires: ['attempt_outcome', 'stop_reason'], attempt: 'rejected' },
  { from: 'executing', on: 'outcome_uncertain', to: 'needs_reconciliation', by: ['executor'], facts: ['attempt_outcome', 'stop_reason', 'parked_reason'], requires: ['attempt_outcome', 'stop_reason'], attempt: 'uncertain' },
  { from: 'executing', on: 'nothing_sent', to: 'needs_reconciliation', by: ['executor'], facts: ['attempt_outcome', 'stop_reason'], requires: ['attempt_outcome', 'stop_reason'], attempt: 'not_sent' },
  { from: 'executing', on: 'attempt_overdue', to: 'needs_reconciliation', by: ['reconciler'], facts: ['attempt_outcome', 'stop_reason'], requires: ['attempt_outcome', 'stop_reason'], attempt: 'uncertain' },

  { from: 'verifying', on: 'verification_pending', to: 'verifying', by: ['verifier'], facts: ['observation'], counts: 'verification_waits' },
  { from: 'verifying', on: 'effect_verified', to: 'completed', by: ['verifier'], facts: ['observation'], requires: ['observation'], observation: 'matched' },
  { from: 'verifying', on: 'settlement_failed', to: 'failed', by: ['verifier'], facts: ['observation', 'stop_reason'], requires: ['observation', 'stop_reason'], observation: 'settlement_failed' },
  { from: 'verifying', on: 'verification_failed', to: 'needs_reconciliation', by: ['verifier'], facts: ['observation', 'stop_reason', 'parked_reason'], requires: ['observation', 'stop_reason'] },
  { from: 'verifying', on: 'deadline_passed', to: 'needs_reconciliation', by: ['verifier', 'reconciler'], facts: ['stop_reason', 'parked_reason'] },

  { from: 'needs_reconciliation', on: 'look_inconclusive', to: 'needs_reconciliation', by: ['reconciler'], facts: ['observation'], counts: 'look_ups' },
  { from: 'needs_reconciliation', on: 'retry_recorded', to: 'needs_reconciliation', by: ['reconciler'], facts: ['observation', 'retry_grounds'], counts: 'look_ups', requires: ['observation', 'retry_grounds'], observation: 'absent', guard: 'mayRetry' },
  { from: 'needs_reconciliation', on: 'resend_recorded', to: 'needs_reconciliation', by: ['reconciler'], facts: ['retry_grounds'], counts: 'not_sent_retries', requires: ['retry_grounds'], guard: 'mayRetry' },
  { from: 'needs_reconciliation', on: 'retry_refused', to: 'needs_reconciliation', by: ['executor'], facts: ['stop_reason'], counts: 'retries_refused', requires: ['stop_reason'] },
  { from: 'needs_reconciliation', on: 'parked', to: 'needs_reconciliation', by: ['reconciler'], facts: ['observation', 'stop_reason', 'parked_reason'], requires: ['parked_reason', 'stop_reason'] },
  { from: 'needs_reconciliation', on: 'person_unsure', to: 'needs_reconciliation', by: ['api'], facts: ['observation', 'parked_reason'], requires: ['observation'], observation: 'person' },
  { from: 'needs_reconciliation', on: 'effect_found', to: 'verifying', by: ['reconciler'], facts: ['observation'], counts: 'look_ups', requires: ['observation'], observation: 'found' },
  { from: 'needs_reconciliation', on: 'person_landed', to: 'verifying', by: ['api'], facts: ['observation'], requires: ['observation'], observation: 'person' },
  { from: 'needs_reconciliation', on: 'retry_dispatched', to: 'executing', by: ['executor'], facts: ['attempt'], counts: 'attempts', guard: 'mayDispatch' },
  { from: 'needs_reconciliation', on: 'never_sent', to: 'failed', by: ['reconciler'], facts: ['stop_reason'], guard: 'mayCloseNotSent' },
  { from: 'needs_reconciliation', on: 'person_absent', to: 'failed', by: ['api'], facts: ['observation', 'stop_reason'], requires: ['observation', 'stop_reason'], observation: 'person', guard: 'mayCloseAbsent' },
  { from: 'needs_reconciliation', on: 'person_settled_with_difference', to: 'failed', by: ['api'], facts: ['observation', 'stop_reason'], requires: ['observation', 'stop_reason'], observation: 'person' },

  { from: 'needs_reconciliation', on: 'late_effect_found', to: 'needs_reconciliation', by: ['executor', 'reconciler'], facts: ['stop_reason', 'parked_reason'] },

  { from: 'failed', on: 'late_effect_found', to: 'needs_reconciliation', by: ['executor', 'reconciler'], facts: ['observation', 'stop_reason', 'parked_reason'], requires: ['stop_reason', 'parked_reason'] },
  { from: 'completed', on: 'effect_reversed', to: 'needs_reconciliation', by: ['verifier', 'reconciler'], facts: ['observation', 'stop_reason', 'parked_reason'], requires: ['observation', 'stop_reason', 'parked_reason'] },
] as const satisfies readonly TransitionRule[];

type BeforeDispatch = (typeof BEFORE_DISPATCH)[number];
type Cancelled = {
  [S in BeforeDispatch]: {
    from: S;
    on: 'cancelled';
    to: 'rejected';
    by: readonly ['api'];
    facts: readonly ['stop_reason'];
  };
}[BeforeDispatch];
type Overdue = {
  [S in BeforeDispatch]: {
    from: S;
    on: 'deadline_passed';
    to: 'failed';
    by: readonly ['preflight', 'executor', 'reconciler'];
    facts: readonly ['stop_reason'];
  };
}[BeforeDispatch];

/**
 * The legal moves: one row each. A pair that is not listed is illegal, here and in Postgres (a test walks both).
 * `(from, on)` names exactly one row. Source: architecture.md section 2.
 */
export const TRANSITIONS = [
  ...RULES,
  ...BEFORE_DISPATCH.map(
    (from) => ({ from, on: 'cancelled', to: 'rejected', by: ['api'], facts: ['stop_reason'] }) as Cancelled,
  ),
  ...BEFORE_DISPATCH.map(
    (from) =>
      ({
        from,
        on: 'deadline_passed',
        to: 'failed',
        by: ['preflight', 'executor', 'reconciler'],
        facts: ['stop_reason'],
      }) as Overdue,
  ),
] as const satisfies readonly TransitionRule[];

type Rule = (typeof TRANSITIONS)[number];
export type Trigger = Rule['on'];

/** Triggers that state `S` accepts; an illegal pair does not compile. */
export type TriggerFrom<S extends State | null> = Extract<Rule, { from: S }>['on'];

export const TRIGGERS: readonly Trigger[] = [...new Set(TRANSITIONS.map((rule) => rule.on))];

const BY_PAIR = new Map<string, TransitionRule>(TRANSITIONS.map((rule) => [`${rule.from}/${rule.on}`, rule]));

/** The one rule for a pair, or `undefined` when the move is illegal. */
export function transitionRule(from: State | null, on: string): TransitionRule | undefined {
  return BY_PAIR.get(`${from}/${on}`);
}

/** States that a run in `from` can reach in one move. */
export function reachableFrom(from: State): readonly State[] {
  return STATES.filter((to) => TRANSITIONS.some((rule) => rule.from === from && rule.to === to));
}
