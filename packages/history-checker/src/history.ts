import type {
  Approval,
  Attempt,
  DecisionRecord,
  Evidence,
  Manifest,
  Observation,
  StoredEvent,
} from '@counterstamp/manifest-core';

/** The row's columns that a judgement needs, under the names that the events' payloads set them by. */
export type RunRow = Pick<
  Manifest,
  | 'run_id'
  | 'tenant_id'
  | 'request_id'
  | 'generation'
  | 'connector'
  | 'requested_by'
  | 'state'
  | 'revision'
  | 'action_revision'
  | 'decisions_sufficient'
  | 'retry_allowed'
  | 'wake_at'
  | 'parked_reason'
  | 'stop_reason'
  | 'chain_head'
>;

/** One action that the run fixed; an earlier one was superseded. */
export interface FixedAction {
  action_revision: number;
  /** RFC 8785 text: what the digest is over. */
  canonical: string;
  digest: string;
}

export type ApprovalRecord = Pick<
  Approval,
  | 'approval_id'
  | 'approval_digest'
  | 'canonical'
  | 'action_digest'
  | 'action_revision'
  | 'approvals_required'
  | 'expires_at'
> & { decisions: DecisionRecord[] };

/** An outcome whose swap was lost, kept with its attempt (protocol rule 14). `late_effect`: the provider said that it was applied. */
export interface LateEvidence extends Pick<Evidence, 'evidence_id' | 'observed_at'> {
  kind: 'late_outcome' | 'late_effect';
  attempt_id: string;
  /** The run's revision when it was kept: every later event came after it. */
  revision: number;
}

/** Everything that is recorded of one run, as plain data. Lists are in the order in which they were written. Instants are ISO 8601 in UTC. */
export interface RunHistory {
  run: RunRow;
  events: readonly StoredEvent[];
  actions: readonly FixedAction[];
  approvals: readonly ApprovalRecord[];
  attempts: readonly Attempt[];
  late_evidence: readonly LateEvidence[];
  observations: readonly Observation[];
}

/** Microseconds since the epoch of an instant, exactly: a number holds them until the year 2255. */
export function microseconds(instant: string): number {
  const fraction = /\.(\d+)/.exec(instant)?.[1] ?? '';
  const ms = Date.parse(instant.replace(/\.\d+/, ''));
  if (Number.isNaN(ms)) throw new RangeError(`not an instant: ${instant}`);
  return ms * 1_000 + Number(fraction.slice(0, 6).padEnd(6, '0'));
}

/** What an event's payload says: the columns that it set, and what else was written with it. */
export function payloadOf(event: StoredEvent): { set: Record<string, unknown>; refs: Record<string, unknown> } {
  const { set, refs } = recordIn(event.payload);
  return { set: record(set), refs: record(refs) };
}

/** The members of the JSON object that a text holds; none when it holds another thing. Where that matters, a digest is compared as well. */
export function recordIn(text: string): Record<string, unknown> {
  try {
    return record(JSON.parse(text));
  } catch {
    return {};
  }
}

/** The members of a JSON object; none of anything else. */
export function record(value: unknown): Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value) ? { ...value } : {};
}

/** The approval request under which an attempt was dispatched: the newest that was asked before it. */
export function approvalOf(history: RunHistory, attempt: Attempt): ApprovalRecord | undefined {
  return history.approvals.findLast((approval) => approval.action_revision < attempt.revision);
}

/** Attempts of which a byte may have left. */
export function sendable(history: RunHistory): Attempt[] {
  return history.attempts.filter((attempt) => attempt.status !== 'not_sent');
}

/** Whether somebody said that an effect happened, before a revision was committed (default: ever). */
export function positiveEvidence(history: RunHistory, before = Number.POSITIVE_INFINITY): string | undefined {
  const late = history.late_evidence.find((item) => item.kind === 'late_effect' && item.revision < before);
  if (late !== undefined) return `${late.evidence_id} (late_effect) of revision ${late.revision}`;
  for (const attempt of history.attempts) {
    if (attempt.status !== 'succeeded') continue;
    const closing = history.events.find(
      (event) => record(payloadOf(event).refs.attempt).attempt_id === attempt.attempt_id,
    );
    const revision = closing?.revision ?? attempt.revision;
    if (revision < before) return `attempt ${attempt.n}, which succeeded at revision ${revision}`;
  }
  return undefined;
}
