import type { Stop } from './states.ts';

interface StopReasonEntry {
  /** Shown to operators as it stands. */
  readonly message: string;
  /** What is safe to do next. */
  readonly next: string;
  readonly states: readonly Exclude<Stop, 'completed'>[];
}

/** The closed catalogue: why a run stopped, in words an operator can act on. A code never changes its meaning. */
export const STOP_REASONS = {
  invalid_input: {
    message: 'The request has a value that the workflow does not accept.',
    next: 'Correct the request and create a new run; nothing was sent.',
    states: ['failed'],
  },
  scope_mismatch: {
    message: 'The request or its order does not belong to this tenant.',
    next: 'Check which tenant owns the order. Never move the run to another tenant: create a new one there.',
    states: ['failed'],
  },
  request_closed: {
    message: 'The business request behind this run is no longer open.',
    next: 'Reopen the request at its source if it still stands, then create a successor run.',
    states: ['failed'],
  },
  operation_unavailable: {
    message:
      'An operation that the run needs is not among its allowed operations, or the system behind it does not offer it.',
    next: 'Allow the operation in a new run, or wait until the system offers it again.',
    states: ['failed'],
  },
  policy_denied: {
    message: 'The policy of the workflow does not permit this action.',
    next: 'Change the request to what the policy permits, or have the policy changed by its owner; then create a successor run.',
    states: ['failed'],
  },
  evidence_conflict: {
    message: 'Two authoritative records disagree about a fact that the action depends on.',
    next: 'Compare the recorded evidence, correct the wrong record at its source, then create a successor run.',
    states: ['failed'],
  },
  proposal_invalid: {
    message: 'No proposal passed the checks within the permitted cycles.',
    next: 'Read why each proposal was refused, correct the proposer, then create a successor run.',
    states: ['failed'],
  },
  attempt_limit: {
    message: 'A bounded retry was used up.',
    next: 'Find out why the reads or proposals kept failing, then create a successor run; nothing was sent.',
    states: ['failed'],
  },
  deadline_exceeded: {
    message: 'The deadline of the whole run passed.',
    next: 'Before a dispatch nothing was sent: create a successor run. After one, look the effect up first.',
    states: ['failed', 'needs_reconciliation'],
  },
  approval_rejected: {
    message: 'An approver rejected the action.',
    next: 'Read the rejection. A different action needs a successor run and a fresh approval.',
    states: ['rejected'],
  },
  cancelled: {
    message: 'The run was cancelled before anything was sent.',
    next: 'Create a successor run if the action is wanted after all.',
    states: ['rejected'],
  },
  approval_expired: {
    message: 'The approval was missing or not used before it expired.',
    next: 'Create a successor run; a late approval is never used.',
    states: ['expired'],
  },
  digest_mismatch: {
    message: 'The stored action is not byte for byte what was approved.',
    next: 'Treat it as tampering until explained: compare action, approval and event history; nothing was sent.',
    states: ['failed'],
  },
  approval_invalid: {
    message: 'The recorded decisions do not suffice for this action.',
    next: 'Check who decided and whether they were entitled, then create a successor run; nothing was sent.',
    states: ['failed'],
  },
  approval_forged: {
    message: 'A recorded approval is not what its approver signed.',
    next: 'Treat it as tampering: keep the database as it is, compare the decision with its signature, revoke what was used; nothing was sent.',
    states: ['failed'],
  },
  evidence_altered: {
    message: 'Recorded evidence is no longer what its digest says.',
    next: 'Treat it as tampering: keep the database as it is and compare the evidence with its source; nothing was sent.',
    states: ['failed'],
  },
  precondition_failed: {
    message: 'The facts that the approval was based on no longer hold.',
    next: 'Read the failed precondition, then create a successor run on fresh evidence; nothing was sent.',
    states: ['failed'],
  },
  personal_data_erased: {
    message: 'The personal data that the run needs was erased.',
    next: 'Nothing was sent. If the action is still wanted, create a new run under another subject.',
    states: ['failed'],
  },
  effect_rejected: {
    message: 'The external system clearly refused the action; it had no effect.',
    next: 'Read the recorded answer. A corrected action needs a successor run and a fresh approval.',
    states: ['failed'],
  },
  settlement_failed: {
    message: 'The external system accepted the action, and it failed definitely afterwards.',
    next: 'Find out why it failed at the external system; another try needs a successor run and a fresh approval.',
    states: ['failed'],
  },
  not_sent: {
    message: 'No byte of the request ever left, and no retry is left.',
    next: 'Check the connection to the external system, then create a successor run.',
    states: ['failed', 'needs_reconciliation'],
  },
  external_result_uncertain: {
    message: 'The request may have been applied: the answer is missing or not understood. It is being looked up.',
    next: 'Wait for the look-up. Do not repeat the action elsewhere.',
    states: ['needs_reconciliation'],
  },
  effect_not_found: {
    message: 'The effect was not found, which proves nothing yet for this external system.',
    next: 'A person looks at the external system and records what is there. Do not repeat the action.',
    states: ['needs_reconciliation'],
  },
  effect_differs: {
    message: 'An effect with our reference exists, but it is not what was approved.',
    next: 'Compare the differing fields at the external system and correct it there; a person settles the run.',
    states: ['needs_reconciliation'],
  },
  effect_ambiguous: {
    message: 'Several effects, or one without our reference, could be this one.',
    next: 'A person decides at the external system which effect, if any, belongs to the run.',
    states: ['needs_reconciliation'],
  },
  verification_mismatch: {
    message: 'The accepted effect differs from the approved action.',
    next: 'Compare the differing fields at the external system and correct it there; a person settles the run.',
    states: ['needs_reconciliation'],
  },
  verification_not_found: {
    message: 'The accepted effect could not be seen by an independent read.',
    next: 'A person looks at the external system and records what is there. Do not repeat the action.',
    states: ['needs_reconciliation'],
  },
  late_effect_found: {
    message: 'An effect turned up after the run had been closed without one.',
    next: 'A person compares the effect with the approved action and settles the run.',
    states: ['needs_reconciliation'],
  },
  effect_reversed: {
    message: 'The external system undid the effect after the run had completed.',
    next: 'A person decides with the requester whether a successor run is wanted.',
    states: ['needs_reconciliation'],
  },
  person_absent: {
    message: 'A person recorded, with evidence, that the effect did not happen.',
    next: 'Create a successor run if the action is still wanted.',
    states: ['failed'],
  },
  settled_with_difference: {
    message: 'A person recorded that the effect happened differently from what was approved.',
    next: 'The outcome holds the observed effect; correct the rest at the external system.',
    states: ['failed'],
  },
} as const satisfies Record<string, StopReasonEntry>;

export type StopReasonCode = keyof typeof STOP_REASONS;

export interface StopReason {
  code: StopReasonCode;
  /** The catalogue's sentence, followed by what is particular to this run. */
  message: string;
}

/** Builds a stop reason; `detail` adds what is particular to this run (no personal data, at most 500 characters). */
export function stopReason(code: StopReasonCode, detail?: string): StopReason {
  const { message } = STOP_REASONS[code];
  // Half of a surrogate pair, cut at the limit, could not be stored: the stop would never be recorded.
  return { code, message: detail === undefined ? message : `${message} ${detail.slice(0, 500).toWellFormed()}` };
}
