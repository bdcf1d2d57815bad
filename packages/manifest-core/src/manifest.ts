import { z } from 'zod';
import type { JsonObject, JsonValue } from './canonical-json.ts';
import { Digest, ExternalId, Revision, RunId } from './ids.ts';
import { STATES } from './states.ts';
import { STOP_REASONS, type StopReasonCode } from './stop-reasons.ts';
import { COUNTERS } from './transitions.ts';

/** Came out of JSON.parse of text that we stored: JSON by construction, and walking it again on every load is what a load would cost most. */
const StoredJson: z.ZodType<JsonValue> = z.any();
const JsonObjectSchema: z.ZodType<JsonObject> = z.record(z.string(), StoredJson);
/** UTC with microseconds, as the database writes it. */
const Instant = z.string();
const Count = z.int().nonnegative();

export const PROPOSERS = ['rules', 'external'] as const;
export const Proposer = z.enum(PROPOSERS);
export type Proposer = z.infer<typeof Proposer>;

/** Text from outside that came with the request: kept, shown as quoted, never trusted. */
export const ContextEntry = z.strictObject({ source: ExternalId, text: z.string().min(1).max(4_000) });
export type ContextEntry = z.infer<typeof ContextEntry>;

/** One recorded fact with its provenance. `facts` is null once the personal values were erased; the digest stays. */
export const Evidence = z.strictObject({
  evidence_id: z.string(),
  revision: Revision,
  round: Count,
  kind: z.string(),
  source_ref: z.string(),
  observed_at: Instant,
  version_marker: z.string().nullable(),
  trusted: z.boolean(),
  facts_digest: Digest,
  facts: StoredJson.nullable(),
  /** The stored facts are not those that `facts_digest` was made of, or cannot be unsealed; then `facts` is null. */
  altered: z.literal(true).optional(),
});
export type Evidence = z.infer<typeof Evidence>;

export const Proposal = z.strictObject({
  proposal_id: z.string(),
  revision: Revision,
  author: z.string(),
  author_kind: z.enum(['rules', 'model', 'external']),
  /** Null once the personal data of the run was erased. */
  body: StoredJson,
  refusal: z.strictObject({ code: z.string(), message: z.string() }).nullable(),
});
export type Proposal = z.infer<typeof Proposal>;

export const DisplayField = z.strictObject({
  field: z.string(),
  label: z.string(),
  value: z.string(),
  /** Whether the value holds characters that could have deceived and stand as visible escapes (`displayText`). */
  flagged: z.boolean().default(false),
});
/** One line of what the approver sees; made from the canonical bytes alone. */
export type DisplayField = z.infer<typeof DisplayField>;

/** How a decision was made: by a development key, in a signed-in session, or signed with a passkey. */
export const DECISION_METHODS = ['dev_key', 'session', 'passkey'] as const;

/** A WebAuthn assertion as it is stored; bytes as base64url. The challenge is SHA-256 of `pre_image`. */
export const Assertion = z.strictObject({
  credential_id: z.string(),
  pre_image: z.string(),
  client_data_json: z.string(),
  authenticator_data: z.string(),
  signature: z.string(),
  /** DSSE envelope by the installation's key; null when the credential's row is gone. */
  certificate: StoredJson.nullable(),
});
export type Assertion = z.infer<typeof Assertion>;

export const Decision = z.strictObject({
  decision_id: z.string(),
  revision: Revision,
  decision: z.enum(['approve', 'reject']),
  principal_id: z.string(),
  method: z.enum(DECISION_METHODS),
  /** A signed decision of a break-glass holder, which may stand in for the rule together with another one. */
  break_glass: z.boolean(),
  action_digest: Digest,
  action_revision: Revision,
  decided_at: Instant,
  reason: z.string().nullable(),
  /** Groups of the approver, and why the decision does not count (null: it does), both as of this load. */
  groups: z.array(z.string()),
  obstacle: z.string().nullable(),
  /** What the approver's passkey signed, and the certificate of that passkey; null: not signed. */
  assertion: Assertion.nullable(),
});
export type Decision = z.infer<typeof Decision>;
/** What is recorded of a decision; whether it would count today is not part of a history. */
export type DecisionRecord = Omit<Decision, 'groups' | 'obstacle' | 'assertion'>;

export const Approval = z.strictObject({
  approval_id: z.string(),
  approval_digest: Digest,
  /** RFC 8785 text of everything that is bound. */
  canonical: z.string(),
  action_digest: Digest,
  action_revision: Revision,
  approvals_required: z.int().positive(),
  /** Members that approve at least, per group. */
  groups_required: z.record(z.string(), z.int().positive()),
  /** The weakest way of deciding that counts (a development key counts in development only). */
  method: z.enum(['session', 'passkey']),
  break_glass: z.boolean(),
  policy: z.string(),
  policy_version: z.int().positive(),
  policy_rule: z.string(),
  display: z.array(DisplayField),
  expires_at: Instant,
  decisions: z.array(Decision),
});
export type Approval = z.infer<typeof Approval>;

export const ATTEMPT_STATUSES = ['started', 'succeeded', 'rejected', 'not_sent', 'uncertain'] as const;
export const Attempt = z.strictObject({
  attempt_id: z.string(),
  n: z.int().positive(),
  revision: Revision,
  action_digest: Digest,
  request_digest: Digest,
  idempotency_key: z.string(),
  instance_id: z.string(),
  started_at: Instant,
  call_deadline: Instant,
  status: z.enum(ATTEMPT_STATUSES),
  provider_ref: z.string().nullable(),
  response: StoredJson.nullable(),
  closed_at: Instant.nullable(),
});
export type Attempt = z.infer<typeof Attempt>;

/** What an own read of the business record showed. */
export const Observation = z.strictObject({
  revision: Revision,
  at: Instant,
  kind: z.enum([
    'pending',
    'matched',
    'mismatched',
    'not_found',
    'settlement_failed',
    'found',
    'inconclusive',
    'absent',
    'person',
  ]),
  provider_ref: z.string().nullable(),
  body: StoredJson,
});
export type Observation = z.infer<typeof Observation>;

const stopCodes = Object.keys(STOP_REASONS) as [StopReasonCode, ...StopReasonCode[]];

/** The run's whole record as API, CLI and pages show it and as every worker loads it. Bodies of actions are parsed from their canonical text. */
export const Manifest = z.strictObject({
  run_id: RunId,
  tenant_id: ExternalId,
  request_id: ExternalId,
  generation: z.int().positive(),
  supersedes: RunId.nullable(),
  workflow: z.string(),
  workflow_version: z.int().positive(),
  connector: z.string(),
  connector_version: z.string(),
  proposer: Proposer,
  requested_by: z.string(),
  /** The person for whom the requester acts; may not approve, like everybody in the request chain. */
  on_behalf_of: z.string().nullable(),
  created_at: Instant,
  state: z.enum(STATES),
  state_since: Instant,
  /** When the present revision was committed; waits for something outside count from here. */
  committed_at: Instant,
  revision: Revision,
  action_revision: Revision.nullable(),
  counters: z.strictObject(
    Object.fromEntries(COUNTERS.map((name) => [name, Count])) as Record<(typeof COUNTERS)[number], typeof Count>,
  ),
  evidence_round: Count,
  evidence_complete: z.boolean(),
  decisions_sufficient: z.boolean(),
  retry_allowed: z.boolean(),
  /** The request's own, shorter approval life in milliseconds; null: the installation's. */
  approval_life_ms: z.int().positive().nullable(),
  deadlines: z.strictObject({ run: Instant, approval: Instant.nullable() }),
  wake_at: Instant.nullable(),
  parked_reason: z.enum(stopCodes).nullable(),
  stop_reason: z.strictObject({ code: z.enum(stopCodes), message: z.string() }).nullable(),
  resource_key: z.string().nullable(),
  in_flight_key: z.string().nullable(),
  chain_head: Digest,
  trace_context: z.string().nullable(),
  /** When the key of the personal values was destroyed: since then `input` and `context` are empty, and bodies and facts are null. */
  erased_at: Instant.nullable(),
  input: JsonObjectSchema,
  allowed_operations: z.array(z.string()),
  context: z.array(ContextEntry),
  evidence: z.array(Evidence),
  proposals: z.array(Proposal),
  action: z.strictObject({ canonical: z.string(), digest: Digest, fields: JsonObjectSchema }).nullable(),
  approval: Approval.nullable(),
  attempts: z.array(Attempt),
  observations: z.array(Observation),
  outcome: Observation.nullable(),
});
export type Manifest = z.infer<typeof Manifest>;

/** Milliseconds since the epoch of an instant as the database writes it. Microseconds are cut off: rounded down. */
export function epochMs(instant: string): number {
  const ms = Date.parse(instant);
  if (Number.isNaN(ms)) throw new RangeError(`not an instant: ${instant}`);
  return ms;
}

/** The newest proposal, unless it was refused: what the propose stage works on. An older one was superseded and never comes back. */
export function pendingProposal(manifest: Manifest): Proposal | undefined {
  const newest = manifest.proposals.at(-1);
  return newest?.refusal === null ? newest : undefined;
}

/** The evidence of the current round: what the current action was or will be checked against. */
export function currentEvidence(manifest: Manifest): Evidence[] {
  return manifest.evidence.filter((item) => item.round === manifest.evidence_round);
}
