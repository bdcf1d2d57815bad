import { ContextEntry, Digest, ExternalId, Json, type JsonObject, Proposer, RunId } from '@counterstamp/manifest-core';
import { z } from 'zod';

/** A raw body may hold this many bytes; a run's own limits are far below. */
export const BODY_BYTES_MAX = 256 * 1024;

/** Entries of untrusted context that a request may carry. */
const CONTEXT_ENTRIES_MAX = 8;

/** Operations that one run may name; no workflow comes near. */
const OPERATIONS_MAX = 32;

/** A run that lives shorter could not even be read before its deadline. */
const RUN_LIFE_MS_MIN = 1_000;

/** Largest revision that the database's integer holds. */
const REVISION_MAX = 2_147_483_647;

/** Free words of a person about a decision, a cancellation or a hold. */
const Reason = z.string().min(1).max(500);

/** An object whose members are the workflow's question; the api checks it against the workflow's own schema. */
const WorkflowObject: z.ZodType<JsonObject> = z.record(z.string(), Json);

/**
 * `POST /v1/runs`. Idempotent by tenant, `request_id`, `supersedes` and the digest of the whole body.
 * `proposer` is `external` when a proposal comes along and `rules` otherwise, unless it is given.
 */
export const CreateRunBody = z.strictObject({
  /** Name of a workflow; `refund` when absent. */
  workflow: z.string().min(1).max(64).optional(),
  request_id: ExternalId,
  input: WorkflowObject,
  /** What the run may do at most; every operation of the workflow when absent. */
  allowed_operations: z.array(z.string()).min(1).max(OPERATIONS_MAX).optional(),
  proposer: Proposer.optional(),
  /** An action proposed from outside: stored as untrusted, checked before anybody is asked. */
  proposal: WorkflowObject.optional(),
  context: z.array(ContextEntry).max(CONTEXT_ENTRIES_MAX).optional(),
  /** Milliseconds that the approval lives: shorter than the installation's, never longer. */
  approval_life_ms: z.int().positive().optional(),
  /** Milliseconds until the whole run's deadline: shorter than the installation's, never longer. */
  run_life_ms: z.int().min(RUN_LIFE_MS_MIN).optional(),
  /** The stopped run that this one replaces as its next generation. */
  supersedes: RunId.optional(),
});
export type CreateRunBody = z.input<typeof CreateRunBody>;

/** `POST /v1/runs/{run_id}/proposals`. */
export const ProposeBody = z.strictObject({ proposal: WorkflowObject });
export type ProposeBody = z.input<typeof ProposeBody>;

/**
 * `POST /v1/runs/{run_id}/decisions`: what was shown, repeated. Who decides is the authenticated principal and nothing in here.
 * `action_revision` is the revision that fixed the action.
 */
export const DecideBody = z.strictObject({
  approval_id: ExternalId,
  decision: z.enum(['approve', 'reject']),
  approval_digest: Digest,
  action_digest: Digest,
  action_revision: z.int().positive().max(REVISION_MAX),
  reason: Reason.optional(),
});
export type DecideBody = z.input<typeof DecideBody>;

/** `PUT /v1/holds/{scope}`. The reason is shown with every run that waits, whosever it is. */
export const HoldBody = z.strictObject({ reason: Reason });
export type HoldBody = z.input<typeof HoldBody>;

/** `POST /v1/runs/{run_id}/cancel`; an absent body counts as `{}`. */
export const CancelBody = z.strictObject({ reason: Reason.optional() });
export type CancelBody = z.input<typeof CancelBody>;
