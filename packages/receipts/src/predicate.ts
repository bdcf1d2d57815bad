import {
  ATTEMPT_STATUSES,
  DECISION_METHODS,
  Digest,
  ExternalId,
  Json,
  Observation,
  RunId,
  STATES,
} from '@counterstamp/manifest-core';
import { Envelope, SignedDecision } from '@counterstamp/signatures';
import { z } from 'zod';
import { CheckpointProof } from './checkpoint.ts';
import { Instant } from './instant.ts';

export const RECEIPT_PAYLOAD_TYPE = 'application/vnd.in-toto+json';
export const STATEMENT_TYPE = 'https://in-toto.io/Statement/v1';
export const RECEIPT_PREDICATE_TYPE = 'urn:counterstamp:receipt:v1';

const Position = z.int().positive();
/** Written instead of what once was there: its data key was destroyed, or the reader may not see it. */
const WITHHELD = ['erased', 'not_disclosed'] as const;

const Run = z.strictObject({
  run_id: RunId,
  tenant_id: ExternalId,
  request_id: ExternalId,
  generation: Position,
  workflow: z.string(),
  workflow_version: Position,
  connector: z.string(),
  connector_version: z.string(),
  requested_by: z.string(),
  on_behalf_of: z.string().nullable(),
  state: z.enum(STATES),
  revision: Position,
  created_at: Instant,
  stop_reason: z.strictObject({ code: z.string(), message: z.string() }).nullable(),
  parked_reason: z.string().nullable(),
});

/** The action that stands: its bytes, and the revision that fixed it. */
const Action = z.strictObject({ canonical: z.string(), digest: Digest, action_revision: Position });

/** Evidence of every round. Round 0 belongs to an attempt: an outcome that came too late to be committed; no event names its facts. */
const Evidence = z.strictObject({
  evidence_id: z.string(),
  round: z.int().nonnegative(),
  kind: z.string(),
  source_ref: z.string(),
  observed_at: Instant,
  version_marker: z.string().nullable(),
  facts_digest: Digest,
  facts: z.union([z.strictObject({ salt: z.string(), canonical: z.string() }), z.enum(WITHHELD)]),
});

/** What was asked of the approvers about the action, and what they were shown. */
const Approval = z.strictObject({ canonical: z.string(), approval_digest: Digest, display_canonical: z.string() });

/** A decision on that approval request; those on an earlier one, which was voided, are events only. */
const Decision = z.strictObject({
  decision_id: z.string(),
  decision: z.enum(['approve', 'reject']),
  break_glass: z.boolean(),
  principal_id: z.string(),
  method: z.enum(DECISION_METHODS),
  decided_at: Instant,
  revision: Position,
  reason: z.union([z.strictObject({ text: z.string() }), z.enum(WITHHELD)]).nullable(),
  signed: SignedDecision.nullable(),
  certificate: Envelope.nullable(),
});

/** One send, without what the other side answered. */
const Attempt = z.strictObject({
  attempt_id: z.string(),
  n: Position,
  action_digest: Digest,
  request_digest: Digest,
  idempotency_key: z.string(),
  started_at: Instant,
  call_deadline: Instant,
  status: z.enum(ATTEMPT_STATUSES),
  provider_ref: z.string().nullable(),
  closed_at: Instant.nullable(),
});

const Outcome = z.strictObject({
  revision: Position,
  kind: Observation.shape.kind,
  at: Instant,
  provider_ref: z.string().nullable(),
  body: Json,
});

/** An event as `StoredEvent`, with its time spelled out. */
const Event = z.strictObject({
  run_id: z.string(),
  revision: Position,
  from: z.enum(STATES).nullable(),
  to: z.enum(STATES),
  trigger: z.string(),
  actor: z.string(),
  at: Instant,
  at_us: z.string().regex(/^\d{1,16}$/),
  payload: z.string(),
  payload_digest: Digest,
  previous_hash: Digest.nullable(),
  hash: Digest,
});

/**
 * What a receipt says of one run: the predicate of an in-toto statement. Strict: a member that this version does not know makes the
 * receipt unreadable to it, since nobody would verify it.
 */
export const ReceiptPredicate = z.strictObject({
  issued_at: Instant,
  run: Run,
  action: Action.nullable(),
  evidence: z.array(Evidence),
  approval: Approval.nullable(),
  decisions: z.array(Decision),
  attempts: z.array(Attempt),
  /** The last observation. */
  outcome: Outcome.nullable(),
  /** All of them, oldest first. */
  events: z.array(Event).min(1),
  chain_head: Digest,
  checkpoint: CheckpointProof.nullable(),
});
export type ReceiptPredicate = z.infer<typeof ReceiptPredicate>;
export type ReceiptDecision = z.infer<typeof Decision>;
export type ReceiptEvent = z.infer<typeof Event>;

/** What the statement is about: the run by name, and the digest of its action, or of its history while it has none. Hex. */
export function subjectOf({ run, action, chain_head }: ReceiptPredicate): { name: string; digest: { sha256: string } } {
  return { name: run.run_id, digest: { sha256: (action?.digest ?? chain_head).slice('sha256:'.length) } };
}

export const ReceiptStatement = z.strictObject({
  _type: z.literal(STATEMENT_TYPE),
  subject: z.tuple([
    z.strictObject({ name: z.string(), digest: z.strictObject({ sha256: z.string().regex(/^[0-9a-f]{64}$/) }) }),
  ]),
  predicateType: z.literal(RECEIPT_PREDICATE_TYPE),
  predicate: ReceiptPredicate,
});

/**
 * What an approval request binds, as far as a receipt is checked against it; the rest is covered by its digest. `method` is the weakest way
 * of deciding that counts.
 */
export const BoundApproval = z.looseObject({
  profile: z.literal('cs.approval.v1'),
  approval_id: z.string(),
  run_id: z.string(),
  tenant_id: z.string(),
  action_digest: Digest,
  action_revision: Position,
  evidence_set_digest: Digest,
  display_digest: Digest,
  approvals_required: Position,
  // The first releases bound less; what they left out asked for nothing.
  groups_required: z.record(z.string(), Position).default({}),
  method: z.enum(['session', 'passkey']).default('session'),
  break_glass: z.boolean().default(false),
  workflow: z.string().optional(),
  workflow_version: Position.optional(),
  connector: z.string(),
  connector_version: z.string(),
  expires_at: z.iso.datetime({ precision: 3 }),
});
export type BoundApproval = z.infer<typeof BoundApproval>;
