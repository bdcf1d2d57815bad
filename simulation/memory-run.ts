import type {
  CommitFacts,
  Digest,
  HotRow,
  JsonObject,
  JsonValue,
  Manifest,
  NewRun,
  ProposalDraft,
  State,
  StopReason,
  StoredEvent,
} from '@counterstamp/manifest-core';

export type Attempt = Manifest['attempts'][number];
export type StoredAttempt = Attempt & {
  request_bytes: Uint8Array;
  startedMs: number;
  deadlineMs: number;
  closedMs: number;
};
export type Evidence = Manifest['evidence'][number];
export type StoredEvidence = Evidence & { attempt_id: string | null };
export type Approval = NonNullable<Manifest['approval']>;
export type StoredApproval = Approval & { bound: JsonObject; expiresMs: number; display_canonical: string };
export type Decision = Approval['decisions'][number];
export type StoredDecision = Decision & { approval_digest: string };
export interface StoredAction {
  canonical: string;
  digest: Digest;
  fields: JsonObject;
}

/** The columns that a commit changes. */
export interface Row {
  state: State;
  stateSinceMs: number;
  committedMs: number;
  revision: number;
  action_revision: number | null;
  read_failures: number;
  proposal_cycles: number;
  verification_waits: number;
  look_ups: number;
  attempts: number;
  not_sent_retries: number;
  retries_refused: number;
  evidence_round: number;
  evidence_complete: boolean;
  decisions_sufficient: boolean;
  retry_allowed: boolean;
  approval_id: string | null;
  approvalExpiresMs: number | null;
  wakeMs: number | null;
  parked_reason: StopReason['code'] | null;
  stop_reason: StopReason | null;
  resource_key: string | null;
  in_flight_key: string | null;
  chain_head: Digest;
}

/** One run with everything that is recorded about it. */
export interface MemoryRun extends Row {
  readonly made: NewRun;
  readonly generation: number;
  readonly createdMs: number;
  readonly deadlineMs: number;
  readonly input: JsonObject;
  readonly evidence: StoredEvidence[];
  readonly proposals: Manifest['proposals'];
  readonly actions: Map<number, StoredAction>;
  readonly approvals: Map<string, StoredApproval>;
  readonly decisions: Map<string, StoredDecision[]>;
  readonly attemptRows: StoredAttempt[];
  readonly observations: Manifest['observations'];
  readonly supports: { principal_id: string; kind: string; attempts: number; subject_digest: string }[];
  readonly events: StoredEvent[];
}

const isoCache = { ms: Number.NaN, text: '' };
/** As `cs.iso` writes it; this clock counts whole milliseconds. */
export function iso(ms: number): string {
  if (ms !== isoCache.ms) {
    isoCache.ms = ms;
    isoCache.text = new Date(ms).toISOString().replace('Z', '000Z');
  }
  return isoCache.text;
}

/** Positive evidence is a veto on every conclusion that there is no effect (protocol rule 14). */
export function evidenceOfEffect(run: MemoryRun): boolean {
  return (
    run.evidence.some((item) => item.kind === 'late_effect') ||
    run.attemptRows.some((attempt) => attempt.status === 'succeeded')
  );
}

/** The last call deadline of an attempt that may have left; `-Infinity` when no byte ever did. */
export function lastDeadlineMs(run: MemoryRun): number {
  return Math.max(
    ...run.attemptRows.filter((attempt) => attempt.status !== 'not_sent').map((attempt) => attempt.deadlineMs),
  );
}

export function retrySafeIn(attempt: StoredAttempt, now: number): number | null {
  const { response } = attempt;
  if (typeof response !== 'object' || response === null || !('class' in response) || response.class !== 'retry_safe')
    return null;
  const afterMs = 'afterMs' in response && typeof response.afterMs === 'number' ? response.afterMs : 0;
  return attempt.closedMs + afterMs - now;
}

export function addProposal(run: MemoryRun, revision: number, draft: ProposalDraft): void {
  run.proposals.push({
    proposal_id: draft.proposal_id,
    revision: revision as Manifest['proposals'][number]['revision'],
    author: draft.author,
    author_kind: draft.author_kind,
    body: JSON.parse(draft.body_canonical) as JsonValue,
    refusal: null,
  });
}

export function observation(
  revision: number,
  now: number,
  draft: NonNullable<CommitFacts['observation']>,
): Manifest['observations'][number] {
  return {
    revision: revision as Manifest['observations'][number]['revision'],
    at: iso(now),
    kind: draft.kind,
    provider_ref: draft.provider_ref,
    body: draft.body,
  };
}

export function hotRow(run: MemoryRun, tenant_in_line: number): HotRow {
  return {
    run_id: run.made.run_id,
    revision: run.revision,
    state: run.state,
    evidence_complete: run.evidence_complete,
    decisions_sufficient: run.decisions_sufficient,
    retry_allowed: run.retry_allowed,
    parked_reason: run.parked_reason,
    wake_at: run.wakeMs === null ? null : iso(run.wakeMs),
    tenant_in_line,
  };
}

export function manifestOf(run: MemoryRun): Manifest {
  const { made } = run;
  const action = run.action_revision === null ? undefined : run.actions.get(run.action_revision);
  const approval = run.approval_id === null ? undefined : run.approvals.get(run.approval_id);
  return {
    run_id: made.run_id,
    tenant_id: made.tenant_id,
    request_id: made.request_id,
    generation: run.generation,
    supersedes: made.supersedes,
    workflow: made.workflow,
    workflow_version: made.workflow_version,
    connector: made.connector,
    connector_version: made.connector_version,
    proposer: made.proposer,
    requested_by: made.principal_id,
    created_at: iso(run.createdMs),
    state: run.state,
    state_since: iso(run.stateSinceMs),
    committed_at: iso(run.committedMs),
    revision: run.revision as Manifest['revision'],
    action_revision: run.action_revision as Manifest['action_revision'],
    counters: {
      read_failures: run.read_failures,
      proposal_cycles: run.proposal_cycles,
      verification_waits: run.verification_waits,
      look_ups: run.look_ups,
      attempts: run.attempts,
      not_sent_retries: run.not_sent_retries,
      retries_refused: run.retries_refused,
    },
    evidence_round: run.evidence_round,
    evidence_complete: run.evidence_complete,
    decisions_sufficient: run.decisions_sufficient,
    retry_allowed: run.retry_allowed,
    approval_life_ms: made.approval_life_ms,
    deadlines: {
      run: iso(run.deadlineMs),
      approval: run.approvalExpiresMs === null ? null : iso(run.approvalExpiresMs),
    },
    wake_at: run.wakeMs === null ? null : iso(run.wakeMs),
    parked_reason: run.parked_reason,
    stop_reason: run.stop_reason,
    resource_key: run.resource_key,
    in_flight_key: run.in_flight_key,
    chain_head: run.chain_head,
    trace_context: made.trace_context,
    erased_at: null,
    input: run.input,
    allowed_operations: made.allowed_operations,
    on_behalf_of: made.on_behalf_of,
    context: made.context,
    evidence: run.evidence.map(({ attempt_id: _attempt, ...item }) => item),
    proposals: [...run.proposals],
    action: action === undefined ? null : { ...action },
    approval: approval === undefined ? null : approvalOf(run, approval),
    attempts: run.attemptRows.map(
      ({ request_bytes: _b, startedMs: _s, deadlineMs: _d, closedMs: _c, ...attempt }) => attempt,
    ),
    observations: [...run.observations],
    outcome: run.observations.at(-1) ?? null,
  };
}

export function approvalOf(run: MemoryRun, approval: StoredApproval): Approval {
  const { bound: _b, expiresMs: _e, display_canonical: _d, ...shown } = approval;
  const decisions = (run.decisions.get(approval.approval_id) ?? []).map(
    ({ approval_digest: _digest, ...decision }) => decision,
  );
  return { ...shown, decisions };
}
