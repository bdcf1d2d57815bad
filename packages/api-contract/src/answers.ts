import {
  Approval,
  Decision,
  Digest,
  DisplayField,
  ExternalId,
  Json,
  Manifest,
  RunId,
  SERVICES,
  STATES,
} from '@counterstamp/manifest-core';
import { z } from 'zod';

/** UTC with microseconds, ISO 8601. */
const Instant = z.string();
const State = z.enum(STATES);

/** Where a run stands after a command. */
export const RunStanding = z.strictObject({ run_id: RunId, state: State, revision: z.int().positive() });
export type RunStanding = z.infer<typeof RunStanding>;

/** Answer of `POST /v1/runs`: 201 when made now, 200 when the same request had made it before. */
export const CreatedRun = RunStanding.extend({ generation: z.int().positive() });
export type CreatedRun = z.infer<typeof CreatedRun>;

/** Answer of `POST …/proposals`; `proposal_id` is the one that is pending now. */
export const ProposedRun = RunStanding.extend({ proposal_id: z.string() });
export type ProposedRun = z.infer<typeof ProposedRun>;

/** A decision as it is recorded. `principal_id` is always the authenticated one. */
export const RecordedDecision = Decision.pick({
  decision_id: true,
  decision: true,
  principal_id: true,
  method: true,
  decided_at: true,
  reason: true,
  break_glass: true,
});
export type RecordedDecision = z.infer<typeof RecordedDecision>;

/**
 * Answer of `POST …/decisions`. `repeated`: this person had decided the same before, and nothing changed.
 * `decision` is this person's; `decisions` are all of this approval, oldest first.
 */
export const DecidedRun = RunStanding.extend({
  result: z.enum(['recorded', 'repeated']),
  decision: RecordedDecision,
  decisions: z.array(RecordedDecision),
});
export type DecidedRun = z.infer<typeof DecidedRun>;

/** One condition of a dispatch, judged on the manifest as it is now. */
export const Guard = z.strictObject({ guard: z.string(), pass: z.boolean(), detail: z.string() });

/**
 * A run's whole record, each condition of its dispatch, and, for a stop, what is safe to do next. `as_of` is the database's clock at this
 * read: the time to give as `observed_at` for what one sees at the external system from now on. `settles_at`: from when on an effect in
 * doubt that cannot be seen counts as absent; null where nothing is in doubt or no attempt may have left.
 */
export const RunView = Manifest.extend({
  guards: z.array(Guard),
  next: z.string().nullable(),
  as_of: Instant,
  settles_at: Instant.nullable(),
});
export type RunView = z.infer<typeof RunView>;

/** Why a caller's approval would not be recorded, as `POST …/decisions` would answer it. */
export const WHY_NOT = [
  'not_an_approver',
  'approvals_need_development',
  'already_decided',
  'not_awaiting_approval',
  'approval_expired',
  'self_approval',
] as const;

/**
 * A text that a model, a customer or a caller wrote: to be read after the facts, labelled, and never as one of them. Whole, and in the form
 * of `displayText`. `member`: where it stood in what was sent; null for an entry of the context.
 */
export const UntrustedText = z.strictObject({
  label: z.enum(['request', 'proposal', 'context']),
  /** Who wrote it: a principal id, a proposer, or what the context names. */
  source: z.string(),
  member: z.string().nullable(),
  text: z.string(),
  flagged: z.boolean(),
});
export type UntrustedText = z.infer<typeof UntrustedText>;

/**
 * What an approver has to see before a decision, and nothing that is not bound: `facts` are the lines that the approval's `display_digest`
 * is of, and `rule` and `expires_at` stand in the approval's own text. The digests are those to send with the decision.
 */
export const ApprovalCard = RunStanding.extend({
  tenant_id: ExternalId,
  /** The database's clock at this read. */
  as_of: Instant,
  approval_id: z.string(),
  approval_digest: Digest,
  action_digest: Digest,
  action_revision: z.int().positive(),
  expires_at: Instant,
  facts: z.array(DisplayField),
  /** Whether any of the facts holds characters that could have deceived. */
  flagged: z.boolean(),
  rule: Approval.pick({
    policy: true,
    policy_version: true,
    policy_rule: true,
    approvals_required: true,
    groups_required: true,
    method: true,
    break_glass: true,
  }),
  /** Oldest first. `obstacle`: why it does not count as an approval now; null when it does. Reasons are in the form of `displayText`. */
  decisions: z.array(RecordedDecision.extend({ obstacle: z.string().nullable() })),
  standing: z.strictObject({ suffices: z.boolean(), detail: z.string() }),
  /** Whether the caller may approve, the broken glass aside. With `self_approval` a rejection is still theirs to make. */
  mine: z.strictObject({ may_decide: z.boolean(), why_not: z.enum(WHY_NOT).nullable() }),
  untrusted: z.array(UntrustedText),
});
export type ApprovalCard = z.infer<typeof ApprovalCard>;

/** One line of a list. */
export const RunSummary = z.strictObject({
  run_id: RunId,
  request_id: ExternalId,
  generation: z.int().positive(),
  workflow: z.string(),
  state: State,
  state_since: Instant,
  revision: z.int().positive(),
  created_at: Instant,
  stop_reason: Manifest.shape.stop_reason,
  parked_reason: z.string().nullable(),
});
export type RunSummary = z.infer<typeof RunSummary>;

/** Newest first. `next_cursor` is null on the last page. */
export const RunPage = z.strictObject({ runs: z.array(RunSummary), next_cursor: z.string().nullable() });
export type RunPage = z.infer<typeof RunPage>;

/**
 * One event of a run's history. `payload` is the stored text that `payload_digest` is of; `hash` covers the lines of `cs.event.v1`,
 * which name the instant as `at_us`: microseconds since the epoch, as decimal digits.
 */
export const RunEvent = z.strictObject({
  run_id: RunId,
  revision: z.int().positive(),
  from: State.nullable(),
  to: State,
  trigger: z.string(),
  actor: z.string(),
  at: Instant,
  at_us: z.string().regex(/^\d+$/),
  payload: z.string(),
  payload_digest: Digest,
  previous_hash: Digest.nullable(),
  hash: Digest,
});
export type RunEvent = z.infer<typeof RunEvent>;

/** Oldest first, one per revision. */
export const RunEvents = z.strictObject({ events: z.array(RunEvent) });
export type RunEvents = z.infer<typeof RunEvents>;

/** A signed statement: DSSE's JSON envelope, `payload` and `sig` in base64. `counterstamp verify-receipt` opens it. */
export const SignedEnvelope = z.strictObject({
  payloadType: z.string(),
  payload: z.base64(),
  signatures: z.array(z.strictObject({ keyid: z.string(), sig: z.base64() })).min(1),
});
export type SignedEnvelope = z.infer<typeof SignedEnvelope>;

/** Checkpoints as they were signed, oldest first. `next_after` is what to give as `after` to go on from here, now or later. */
export const Checkpoints = z.strictObject({
  checkpoints: z.array(SignedEnvelope),
  next_after: z.int().nonnegative(),
});
export type Checkpoints = z.infer<typeof Checkpoints>;

/** The installation's public Ed25519 keys as a JWK set, each with what it may vouch for. */
export const PublicKeys = z.strictObject({
  keys: z.array(
    z.strictObject({
      kty: z.literal('OKP'),
      crv: z.literal('Ed25519'),
      x: z.base64url(),
      kid: z.string(),
      purposes: z.array(z.string()),
    }),
  ),
});
export type PublicKeys = z.infer<typeof PublicKeys>;

/** Something that somebody must look at: a sign of tampering, or a broken glass. `detail` depends on the code. */
export const Alarm = z.strictObject({
  alarm_id: z.int().positive(),
  at: Instant,
  /** Who raised it. */
  service: z.string(),
  code: z.string(),
  run_id: RunId.nullable(),
  /** Whose decision raised it; null where no person did anything. */
  principal_id: z.string().nullable(),
  detail: z.record(z.string(), Json),
});
export type Alarm = z.infer<typeof Alarm>;

/** The tenant's alarms, newest first. `next_after` is what to give as `after` for the older ones; null on the last page. */
export const Alarms = z.strictObject({ alarms: z.array(Alarm), next_after: z.int().positive().nullable() });
export type Alarms = z.infer<typeof Alarms>;

/**
 * Dispatches that are switched off: all of them (`scope` is `all`) or those of one connector. Whoever's runs wait reads the reason.
 * `set_by` is null to another tenant than that of who set it.
 */
export const Hold = z.strictObject({
  scope: z.string(),
  reason: z.string(),
  set_by: z.string().nullable(),
  set_at: Instant,
});
export type Hold = z.infer<typeof Hold>;

/** Everything that is on hold now. Answer of `GET /v1/holds` and of `PUT /v1/holds/{scope}`. */
export const Holds = z.strictObject({ holds: z.array(Hold) });
export type Holds = z.infer<typeof Holds>;

/** Answer of `DELETE /v1/holds/{scope}`. `released` is false when there was no hold on that scope. */
export const ReleasedHold = Holds.extend({ released: z.boolean() });
export type ReleasedHold = z.infer<typeof ReleasedHold>;

/** Answer of `POST …/supports`. */
export const SupportedVerdict = z.strictObject({ run_id: RunId, result: z.literal('recorded') });
export type SupportedVerdict = z.infer<typeof SupportedVerdict>;

/**
 * One process life. `lease` is the executors' session lease: `held` by a living session, `free` once it is gone, `none` where none was ever
 * taken. `fenced_from`: from when on it counts as unable to send; null while it has not ended or its lease is held.
 */
export const Instance = z.strictObject({
  instance_id: z.string(),
  service: z.enum(SERVICES),
  host: z.string().nullable(),
  pid: z.int().nullable(),
  started_at: Instant,
  /** Last heartbeat. */
  beat_at: Instant,
  lease: z.enum(['held', 'free', 'none']),
  ended_at: Instant.nullable(),
  ended_by: z.enum(['self', 'supervisor', 'operator']).nullable(),
  credential_rotated: z.boolean(),
  /** Attempts of it whose outcome is not recorded yet. */
  open_attempts: z.int().nonnegative(),
  fenced_from: Instant.nullable(),
});
export type Instance = z.infer<typeof Instance>;

/** Newest first. They belong to the installation, not to a tenant. */
export const Instances = z.strictObject({ instances: z.array(Instance) });
export type Instances = z.infer<typeof Instances>;

/** Answer of `POST /v1/instances/{instance_id}/fence`. `already_ended`: its end was recorded before, and nothing changed. */
export const FencedInstance = z.strictObject({ instance_id: z.string(), result: z.enum(['ended', 'already_ended']) });
export type FencedInstance = z.infer<typeof FencedInstance>;

/** Answer of `GET /healthz`: the process lives. */
export const Health = z.strictObject({ status: z.literal('ok') });
export type Health = z.infer<typeof Health>;

/**
 * Answer of `GET /readyz`: 200 when the database answered within 1 s, else 503. A queue that is away is reported and no more: commits
 * and answers do not need it.
 */
export const Readiness = z.strictObject({
  ready: z.boolean(),
  database: z.enum(['ok', 'unavailable']),
  queue: z.enum(['ok', 'unavailable', 'unknown']),
});
export type Readiness = z.infer<typeof Readiness>;

/** A JSON object whose members another standard defines: WebAuthn's options, as `navigator.credentials` reads them. */
const WebAuthnOptions = z.record(z.string(), z.unknown());

/** Options for `PublicKeyCredential.parseCreationOptionsFromJSON`. Whose passkey it will be is `name`. */
export const CreationOptions = z.strictObject({ name: z.string(), options: WebAuthnOptions, expires_at: Instant });
export type CreationOptions = z.infer<typeof CreationOptions>;

/** Options for `PublicKeyCredential.parseRequestOptionsFromJSON`. */
export const RequestOptions = z.strictObject({ options: WebAuthnOptions, expires_at: Instant });
export type RequestOptions = z.infer<typeof RequestOptions>;

/**
 * Answer of `POST …/decisions/challenge`: the canonical text that is signed, its SHA-256 (base64url), and the options that carry it as the
 * challenge. Signed or not, it is over at `expires_at`.
 */
export const DecisionChallenge = RequestOptions.extend({ pre_image: z.string(), challenge: z.string() });
export type DecisionChallenge = z.infer<typeof DecisionChallenge>;

/** Who is signed in. Every request of this session that changes something repeats `csrf_token` in the header `x-csrf-token`. */
export const SessionView = z.strictObject({
  principal_id: z.string(),
  tenant_id: z.string(),
  name: z.string(),
  roles: z.array(z.string()),
  groups: z.array(z.string()),
  method: z.enum(['passkey', 'oidc']),
  /** When the person last proved who they are. */
  authenticated_at: Instant,
  /** Until when that counts as fresh: adding or revoking a passkey, and approvals without a signature, ask for it. */
  fresh_until: Instant,
  /** When the session ends at the latest. */
  expires_at: Instant,
  csrf_token: z.string(),
});
export type SessionView = z.infer<typeof SessionView>;

/** Answer of `DELETE /v1/session`. */
export const EndedSession = z.strictObject({ ended: z.literal(true) });
export type EndedSession = z.infer<typeof EndedSession>;

/** One of the person's own passkeys. */
export const Passkey = z.strictObject({
  credential_id: z.string(),
  name: z.string(),
  transports: z.array(z.string()),
  /** Whether its key is copied to the maker's cloud. */
  backed_up: z.boolean(),
  created_at: Instant,
  last_used_at: Instant.nullable(),
  revoked_at: Instant.nullable(),
});
export type Passkey = z.infer<typeof Passkey>;

/** Oldest first, revoked ones too. */
export const Passkeys = z.strictObject({ passkeys: z.array(Passkey) });
export type Passkeys = z.infer<typeof Passkeys>;
