import type { JsonObject, JsonValue } from './canonical-json.ts';
import type { Digest, IdKind, RunId } from './ids.ts';
import type { Lane } from './lanes.ts';
import type { Attempt, ContextEntry, Manifest, Observation } from './manifest.ts';
import type { Stage, StageRow } from './stages.ts';
import type { State } from './states.ts';
import type { StopReason, StopReasonCode } from './stop-reasons.ts';
import type { Trigger } from './transitions.ts';

/** Time and waiting. The database's clock decides; this one only measures durations and paces a worker. */
export interface Clock {
  /** Monotonic milliseconds, for durations only. */
  monotonicMs(): number;
  /** Wall time in milliseconds since the epoch. */
  wallMs(): number;
  /** Resolves after `ms`, or at once when `signal` aborts. Never rejects. */
  sleep(ms: number, signal?: AbortSignal): Promise<void>;
  /** Calls back once after `ms`; the returned function cancels it. */
  after(ms: number, callback: () => void): () => void;
}

/** Fresh identifiers and random salts. */
export interface Ids {
  /** UUIDv7, lower case. */
  uuid(): string;
  /** `<prefix>_<uuid>`. */
  id(kind: IdKind): string;
  /** 128 random bits as hex. */
  salt(): string;
}

/** Named places where a test may stop, kill or delay a process. Does nothing in production. */
export const FAILPOINTS = [
  'create.committed.before-hint',
  'stage.loaded',
  'stage.before-commit',
  'stage.committed.before-hint',
  'decision.committed.before-hint',
  'dispatch.loaded',
  'dispatch.t0.before-begin',
  'dispatch.row-locked',
  'dispatch.call-sent',
  'dispatch.commit-sent.before-ack',
  'dispatch.acked.before-check',
  'dispatch.checked.before-write',
  'dispatch.written.before-response',
  'dispatch.response.before-outcome',
  'retry.committed.before-write',
  'outcome.committed.before-hint',
  'sweep.selected.before-commit',
  'sweep.wake-moved.before-hint',
  'reconcile.observed-at.before-read',
  'reconcile.read.before-commit',
  'verify.read.before-commit',
  'person.read.before-commit',
  'evidence.before-insert',
] as const;
export type FailpointName = (typeof FAILPOINTS)[number];

export interface Failpoint {
  reach(name: FailpointName, run_id?: RunId): Promise<void>;
  /** For the places between which nothing may be awaited. */
  reachSync(name: FailpointName, run_id?: RunId): void;
}

/** Carries hints. A hint may be lost, doubled or late; it never decides anything. */
export interface Queue {
  /** Never throws and never takes longer than a second. */
  hint(stage: Stage, hint: { run_id: RunId; revision: number }, lane: Lane): Promise<void>;
}

export interface HttpRequest {
  method: 'GET' | 'POST' | 'PUT' | 'DELETE';
  url: string;
  headers: Readonly<Record<string, string>>;
}
export interface HttpReply {
  kind: 'reply';
  status: number;
  headers: Readonly<Record<string, string>>;
  body: Uint8Array;
}
/** Reads only: safe to repeat, never with an effect. */
export interface ReadHttp {
  get(
    url: string,
    options: { headers?: Readonly<Record<string, string>>; timeoutMs: number; maxBytes?: number },
  ): Promise<HttpReply | { kind: 'unreachable'; reason: string; detail: string }>;
}
export type SendResult =
  | HttpReply
  | { kind: 'not_sent'; reason: string; detail?: string }
  | { kind: 'no_reply'; reason: string; detail?: string };
/** One connected, unused connection: at most one physical request ever leaves through it. */
export interface OneShot {
  send(bytes: Uint8Array): Promise<SendResult>;
}

export interface LoadedRun {
  manifest: Manifest;
  /** The database's clock at the load, milliseconds since the epoch, rounded down. */
  nowMs: number;
  /** The same instant with microseconds, as text; the time that a read made after this load counts from. */
  now: string;
}

/** The row's steering columns right after a commit, enough to find the next stage. */
export type HotRow = StageRow & {
  run_id: RunId;
  revision: number;
  /** Runs of its tenant that the fleet has to carry on now, counted to 1,025: what the lane of its next hint rests on. */
  tenant_in_line: number;
};

export interface EvidenceDraft {
  evidence_id: string;
  kind: string;
  source_ref: string;
  /** Database time taken before the read. */
  observed_at: string;
  version_marker: string | null;
  trusted: boolean;
  salt: string;
  facts_canonical: string;
  facts_digest: Digest;
}
export interface ProposalDraft {
  proposal_id: string;
  author: string;
  author_kind: 'rules' | 'model' | 'external';
  body_canonical: string;
  body_digest: Digest;
}
export interface ApprovalDraft {
  approval_id: string;
  canonical: string;
  approval_digest: Digest;
  /** RFC 8785 text of the display fields; its digest is among what is bound. */
  display_canonical: string;
  resource_key: string;
}
export interface ObservationDraft {
  kind: Observation['kind'];
  provider_ref: string | null;
  body: JsonValue;
}
export interface AttemptOutcomeDraft {
  attempt_id: string;
  status: Exclude<Attempt['status'], 'started'>;
  provider_ref: string | null;
  response: JsonValue;
}

/** What a commit may carry; which of them a move may write is the transition table's `facts`. */
export interface CommitFacts {
  evidence?: EvidenceDraft[];
  evidence_complete?: boolean;
  proposal?: ProposalDraft;
  proposal_id?: string;
  proposal_refusal?: { proposal_id: string; code: string; message: string };
  read_failure?: { operation: string; reason: string };
  action?: { canonical: string; digest: Digest };
  approval_request?: ApprovalDraft;
  attempt_outcome?: AttemptOutcomeDraft;
  observation?: ObservationDraft;
  retry_grounds?: RetryGrounds;
  parked_reason?: StopReasonCode | null;
  stop_reason?: StopReason;
}

/** On what a retry is recorded (protocol rules 8, 17 to 19); the database judges it again with its own clock, attempts and evidence. */
export interface RetryGrounds {
  /** Database time taken before the read that found nothing; null after attempts of which no byte left. */
  observed_at: string | null;
  settle_ms: number;
  /** The target's key retention with body check; null when it has none. */
  retention_ms: number | null;
  /** D + Z + P + ε. */
  reserve_ms: number;
  expiry_margin_ms: number;
  not_sent_retries_max: number;
}

export interface StageCommit {
  run_id: RunId;
  expected: number;
  from: State;
  on: Trigger;
  to: State;
  facts: CommitFacts;
  /** Milliseconds until the fleet must look again; null for none. An approval's wait is its expiry, whatever is asked here. */
  wake_in_ms: number | null;
}
export type CommitOutcome = { kind: 'committed'; row: HotRow } | { kind: 'stale_revision' };

export interface DispatchCommit {
  run_id: RunId;
  expected: number;
  attempt_id: string;
  idempotency_key: string;
  action_digest: Digest;
  /** The exact bytes that will be sent. */
  request_bytes: Uint8Array;
  request_digest: Digest;
  operation: string;
  call_deadline_ms: number;
  /** Expiry must be further away than this: ε + 1 s. */
  expiry_margin_ms: number;
  sweep_grace_ms: number;
  /** Whether approvals by development keys count. Never in production. */
  count_dev_keys: boolean;
  /** The decisions that the executor verified itself, and the approval that they are about; no other counts. */
  decision_ids: readonly string[];
  approval_digest: Digest;
  /** A dispatch from needs_reconciliation (protocol rule 19): what the key contract grants; null for the first dispatch. */
  retry: { retention_ms: number | null; reserve_ms: number } | null;
}
export const DISPATCH_REFUSALS = [
  'digest_mismatch',
  'approval_invalid',
  'decisions_insufficient',
  'operation_unavailable',
  'other_generation_open',
  'approval_expired',
  'expires_too_soon',
  'on_hold',
  'resource_busy',
  'deadline_exceeded',
  'retry_invalid',
] as const;
export type DispatchRefusal = (typeof DISPATCH_REFUSALS)[number];
export type DispatchOutcome =
  | { kind: 'committed'; row: HotRow; attempt_n: number; started_at: string; budget_ms: number }
  | { kind: 'refused'; code: DispatchRefusal; detail: string }
  | { kind: 'stale_revision' };

export interface DueRun {
  row: HotRow;
  /** What the sweeper commits itself; null: only a hint is needed. */
  overdue: 'attempt' | 'approval' | 'run' | null;
  attempt_id: string | null;
}

/**
 * What the workers need of the truth. Each call is one transaction and one round trip; where personal data is sealed, one more before it for a
 * call that carries evidence or a proposal, to ask for the run's key.
 */
export interface Store {
  load(run_id: RunId): Promise<LoadedRun | undefined>;
  /** @throws {StoreUnavailable} while committing the outcome is unknown: reload before acting. */
  commitStage(commit: StageCommit): Promise<CommitOutcome>;
  commitDispatch(commit: DispatchCommit): Promise<DispatchOutcome>;
  /** Keeps an outcome whose swap was lost (protocol rule 14); reopens and parks a run that was closed without it. */
  appendEvidence(late: {
    run_id: RunId;
    attempt_id: string;
    applied: boolean;
    /** The target's name for the effect, when it gave one: a run whose outcome records it already is not reopened. */
    provider_ref: string | null;
    body: JsonValue;
  }): Promise<'appended' | 'reopened' | 'known'>;
  /** Moves `wake_at` of an unchanged revision, without an event. Null: nothing is left to look at (closed runs only). */
  defer(run_id: RunId, expected: number, wake_in_ms: number | null): Promise<boolean>;
  /** Claims due runs and moves their `wake_at` on, so that the next sweep leaves them alone for a while. */
  claimDue(claim: {
    limit: number;
    rehint_min_ms: number;
    rehint_max_ms: number;
    sweep_grace_ms: number;
    lease_loss_ms: number;
  }): Promise<{ due: DueRun[] /** Due, and locked by somebody: left to a later sweep. */; skipped: number }>;
  audit(entry: AuditEntry): Promise<void>;
  beat(): Promise<void>;
  /** Records that this instance ended by itself: no send of its own is under way any more (protocol rule 20). */
  endInstance(): Promise<void>;
}

export interface AuditEntry {
  tenant_id: string | null;
  principal_id: string | null;
  run_id: RunId | null;
  what: string;
  code: string;
  detail: JsonObject;
}

export interface NewRun {
  run_id: RunId;
  tenant_id: string;
  principal_id: string;
  /** The person of the tenant for whom the requester acts. */
  on_behalf_of: string | null;
  request_id: string;
  supersedes: RunId | null;
  workflow: string;
  workflow_version: number;
  connector: string;
  connector_version: string;
  proposer: 'rules' | 'external';
  /** Whose personal data the run holds; erasing it erases them. Never a name or an address: the id itself stays. */
  subject: string;
  input_canonical: string;
  body_digest: Digest;
  allowed_operations: string[];
  context: ContextEntry[];
  proposal: ProposalDraft | null;
  run_life_ms: number;
  /** At most the installation's approval life; the database holds every approval of the run to it. */
  approval_life_ms: number | null;
  wake_in_ms: number;
  /** How long after a call deadline a superseded run's attempts must have settled. */
  settle_ms: number;
  /** Runs of the tenant that may be open at once; null: any number. */
  open_runs_max: number | null;
  trace_context: string | null;
}
