import { Decision, Digest, ExternalId, Manifest, RunId, SERVICES, STATES } from '@counterstamp/manifest-core';
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
