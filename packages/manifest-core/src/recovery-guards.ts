import type { DispatchRefusal } from './ports.ts';

/*
 * The decisions of dispatch and recovery as functions of plain facts (protocol.md). Workers build the facts from the row, formal/ from its
 * model's state, and the database asks the same again under the row lock. Times are spans in one unit: milliseconds here, ticks in the model.
 */

/** How final an effect's own status is at its target. */
export type Settlement = 'final' | 'pending' | 'failed' | 'unrecognised';

/** What rule 5c asks, as one look under the row lock shows it. */
export interface DispatchFacts {
  /** The approval request is what its own digest says, and is for this action. */
  approval_bound: boolean;
  /** Digest of the stored bytes = the approved digest = what is about to be sent. */
  digest_matches: boolean;
  /** An entitled approver rejected. */
  rejected: boolean;
  approvals: number;
  approvals_required: number;
  /** Among the run's allowed operations and the workflow's. */
  operation_allowed: boolean;
  until_expiry: number;
  until_run_deadline: number;
  /** ε + 1 s: how far away the expiry must be. */
  expiry_margin: number;
  /** Another generation of the same request may have had its effect. */
  other_generation_open: boolean;
  on_hold: boolean;
  /** Another run has an effect in doubt on the same resource. */
  resource_busy: boolean;
}

/** Whether an effect may be dispatched (rule 5c): `null`, or the first reason why not. The order is that of `cs.commit_dispatch`. */
export function mayDispatch(facts: DispatchFacts): DispatchRefusal | null {
  if (!facts.approval_bound) return 'approval_invalid';
  if (!facts.digest_matches) return 'digest_mismatch';
  if (facts.rejected) return 'approval_invalid';
  if (facts.approvals < facts.approvals_required) return 'decisions_insufficient';
  if (!facts.operation_allowed) return 'operation_unavailable';
  if (facts.until_expiry <= 0) return 'approval_expired';
  if (facts.until_run_deadline <= 0) return 'deadline_exceeded';
  if (facts.until_expiry <= facts.expiry_margin) return 'expires_too_soon';
  if (facts.other_generation_open) return 'other_generation_open';
  if (facts.on_hold) return 'on_hold';
  if (facts.resource_busy) return 'resource_busy';
  return null;
}

/** The read that found nothing, and how long after the last moment at which the effect could still begin (rule 17). */
export interface AbsenceFacts {
  /** From the latest call deadline of the attempts that may have left, to the database time taken before the read. */
  since_deadline: number;
  /** Z + P + V + ε. */
  settle: number;
}

/** Whether an absence proves anything (rule 17). */
export function absenceCounts(absence: AbsenceFacts): boolean {
  return absence.since_deadline >= absence.settle;
}

export type AttemptFact =
  | { status: 'started' | 'succeeded' | 'rejected' | 'not_sent' }
  /** `retry_safe_in`: the answer permits the same request again after this span from now (rule 8); `null` when it does not. */
  | { status: 'uncertain'; retry_safe_in: number | null };

/** Whether every attempt ended before any byte left: then neither settle nor the key contract matter (rule 8). */
export function nothingLeft(attempts: readonly { status: AttemptFact['status'] }[]): boolean {
  return attempts.length > 0 && attempts.every((attempt) => attempt.status === 'not_sent');
}

/** Attempts that may have left, of one run, at most (rule 19). */
export const SENDS_MAX = 2;

/** What a retry asks beside the facts of a dispatch. */
export interface RetryFacts {
  attempts: readonly AttemptFact[];
  /** The provider said that it was applied: a veto (rule 14). */
  evidence_of_effect: boolean;
  /** Retries that the executor refused for good before (rule 19). */
  retries_refused: number;
  /** Until the approval expires, and the margin that a dispatch keeps from it. */
  until_expiry: number;
  expiry_margin: number;
  /** Retries of the kind that follows `not_sent`, and their own limit (rule 8). */
  not_sent_retries: number;
  not_sent_retries_max: number;
  /** `null`: nothing was looked up, or something other than absence was seen. */
  absence: AbsenceFacts | null;
  /** The target's key contract; `null` when it has none or does not check the body (rule 18). */
  key: { retention: number } | null;
  /** Since the first attempt that may have left began: the key's age at the target. */
  since_first_send: number;
  /** D + Z + P + ε: how long a retry begun now may still reach the target. */
  reserve: number;
}

export type RetryRefusal =
  | 'evidence_stands'
  | 'refused_before'
  | 'approval_expired'
  | 'retries_used_up'
  | 'not_settled'
  | 'no_key'
  | 'key_too_old';

/** Whether the same request may be sent again (rules 8, 18, 19), and as what kind; otherwise the first reason why not. */
export function mayRetry(facts: RetryFacts): 'after_not_sent' | 'after_absence' | 'after_retry_safe' | RetryRefusal {
  if (facts.evidence_of_effect) return 'evidence_stands';
  if (facts.retries_refused > 0) return 'refused_before';
  if (facts.until_expiry <= facts.expiry_margin) return 'approval_expired';
  if (nothingLeft(facts.attempts))
    return facts.not_sent_retries < facts.not_sent_retries_max ? 'after_not_sent' : 'retries_used_up';
  if (facts.attempts.filter((attempt) => attempt.status !== 'not_sent').length >= SENDS_MAX) return 'retries_used_up';
  if (facts.key === null) return 'no_key';
  if (!keyStillKnown({ ...facts, retention: facts.key.retention })) return 'key_too_old';
  if (facts.absence === null) return 'not_settled';
  if (absenceCounts(facts.absence)) return 'after_absence';
  const left = facts.attempts.filter((attempt) => attempt.status !== 'not_sent');
  return left.every(
    (attempt) => attempt.status === 'uncertain' && attempt.retry_safe_in !== null && attempt.retry_safe_in <= 0,
  )
    ? 'after_retry_safe'
    : 'not_settled';
}

/** Whether a retry begun now reaches the target while it still knows the key (A4): counted from the first send, with a reserve for this one. */
export function keyStillKnown(facts: { since_first_send: number; reserve: number; retention: number }): boolean {
  return facts.since_first_send + facts.reserve < facts.retention;
}

/** What closing a run as "the effect did not happen" asks (rules 17 and 20). */
export interface CloseAbsentFacts {
  absence: AbsenceFacts;
  evidence_of_effect: boolean;
  /** Each attempt's executor instance is fenced, or the credential was rotated. */
  instances_fenced: boolean;
  /** A second person took the missing fence on themselves. */
  fencing_waived: boolean;
}
/** Why a run is parked when a look showed our effect: before a person may say that there is none, a look has to find none. */
const SEEN: readonly (string | null)[] = ['late_effect_found', 'effect_differs'];

/** Whether the last word of the fleet's own looks is that the run's effect is there. */
export function effectWasSeen(parked_reason: string | null): boolean {
  return SEEN.includes(parked_reason);
}

export type CloseAbsentRefusal = 'evidence_stands' | 'not_settled' | 'instance_not_fenced';

/** Whether a person may close the run as absent: `null`, or why not. The most dangerous act in the product. */
export function mayCloseAbsent(facts: CloseAbsentFacts): CloseAbsentRefusal | null {
  if (facts.evidence_of_effect) return 'evidence_stands';
  if (!absenceCounts(facts.absence)) return 'not_settled';
  return facts.instances_fenced || facts.fencing_waived ? null : 'instance_not_fenced';
}

/** Whether the run may be closed by itself as never sent (rule 8): every attempt ended before a byte left, nothing speaks for an effect. */
export function mayCloseNotSent(facts: Pick<RetryFacts, 'attempts' | 'evidence_of_effect'>): boolean {
  return !facts.evidence_of_effect && nothingLeft(facts.attempts);
}

/** One effect that a read showed, as far as the comparison goes. */
export interface SeenEffect {
  settlement: Settlement;
  /** Declared fields that are not as approved, our own reference among them. */
  differing: readonly unknown[];
}

/** What an effect that carries our reference proves (rule 21): only a final one that equals in every field is a match. */
export function compareEffect(effect: SeenEffect): 'match' | 'different' | 'pending' | 'failed' {
  if (effect.differing.length > 0) return 'different';
  switch (effect.settlement) {
    case 'final':
      return 'match';
    case 'failed':
      return 'failed';
    case 'pending':
    case 'unrecognised':
      return 'pending';
  }
}

/** What a look for an effect in doubt showed: effects with our reference, an effect like it without one, nothing, or no answer. */
export type Look =
  | { seen: 'ours'; effects: readonly SeenEffect[] }
  | { seen: 'lookalike' }
  | { seen: 'absent' }
  | { seen: 'unknown' };

export interface NextLookFacts extends RetryFacts {
  look: Look;
  /** The verifier would send a run whose effect is not final straight back. */
  verifier_gave_up: boolean;
}

/** Where a look leads (rules 16 to 18). `wait`: look again, counted. `park`: a person is needed. */
export type NextLook =
  | { to: 'verifying' }
  | { to: 'not_sent' }
  | { to: 'retry'; kind: 'after_not_sent' | 'after_absence' | 'after_retry_safe' }
  | { to: 'wait' }
  | { to: 'park'; why: 'different' | 'multiple' | 'lookalike' | 'absent' | 'evidence_stands' };

/** Presence is concluded at once; absence only once settled; nothing else is concluded at all. */
export function nextLook(facts: NextLookFacts): NextLook {
  const { look } = facts;
  switch (look.seen) {
    case 'ours': {
      const [effect, second] = look.effects;
      if (effect === undefined) return { to: 'wait' };
      if (second !== undefined) return { to: 'park', why: 'multiple' };
      const compared = compareEffect(effect);
      if (compared === 'different') return { to: 'park', why: 'different' };
      return compared === 'pending' && facts.verifier_gave_up ? { to: 'wait' } : { to: 'verifying' };
    }
    case 'lookalike':
      return { to: 'park', why: 'lookalike' };
    case 'unknown':
    case 'absent':
      break;
  }
  const retry = mayRetry(look.seen === 'absent' ? facts : { ...facts, absence: null });
  if (retry === 'after_not_sent' || retry === 'after_absence' || retry === 'after_retry_safe')
    return { to: 'retry', kind: retry };
  if (mayCloseNotSent(facts)) return { to: 'not_sent' };
  if (look.seen === 'unknown' || facts.absence === null || !absenceCounts(facts.absence)) return { to: 'wait' };
  return { to: 'park', why: facts.evidence_of_effect ? 'evidence_stands' : 'absent' };
}

/** What a sweeper knows of a run in `executing`. */
export interface OverdueFacts {
  since_deadline: number;
  grace: number;
  /** The instance of the attempt has lost its session lease and had time to take it again: its process is gone, or stopped, or cut off. */
  lease_lost: boolean;
}

/** Whether an attempt's outcome is taken over from its worker (rule 15). Early only concludes presence: absence stays anchored on the deadline. */
export function attemptOverdue(facts: OverdueFacts): boolean {
  return facts.lease_lost || facts.since_deadline >= facts.grace;
}
