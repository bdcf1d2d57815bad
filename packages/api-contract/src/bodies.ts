import {
  ContextEntry,
  CurrencyCode,
  Digest,
  ExternalId,
  Json,
  type JsonObject,
  MinorUnits,
  Proposer,
  RunId,
} from '@counterstamp/manifest-core';
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

/** Free words of a person about a decision, a cancellation, a hold or a support. */
const Reason = z.string().min(1).max(500);

/** What a person saw and where, in their words; kept with the verdict. */
const SeenText = z.string().min(1).max(2_000);

/** A name that the external system gave: of an effect, of a status. */
const ProviderWord = z.string().min(1).max(200);

/** The earliest year that an instant may name; one before it is a slip, and the database knows no year 0. */
const YEAR_MIN = 2000;

const INSTANT_FORM = 'an instant is written as 2026-01-31T09:30:00Z, in UTC, with six decimals at most';

/** RFC 3339 in UTC. Nothing finer than microseconds: it would be rounded, perhaps to a later time than was said. */
const UtcInstant = z.iso
  .datetime(INSTANT_FORM)
  .regex(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?Z$/, INSTANT_FORM)
  .refine((text) => Number(text.slice(0, 4)) >= YEAR_MIN, INSTANT_FORM);

/** Characters of a decision's pre-image at most: its members are bounded, and this is well above their sum. */
const PRE_IMAGE_MAX = 4_096;

/** Characters of one of an authenticator's texts: WebAuthn credential ids have 1023 bytes at most, attestation objects a few thousand. */
const AUTHENTICATOR_TEXT_MAX = 16_384;
const AuthenticatorText = z.string().min(1).max(AUTHENTICATOR_TEXT_MAX);

/** 1023 bytes as base64url. */
const CREDENTIAL_ID_MAX = 1_364;
export const CredentialId = z
  .string()
  .max(CREDENTIAL_ID_MAX)
  .regex(/^[A-Za-z0-9_-]+$/, 'a credential id is base64url');

/** What every PublicKeyCredential has as JSON. Members that browsers add are left out, not refused: the format is theirs. */
const credential = {
  id: CredentialId,
  rawId: CredentialId,
  type: z.literal('public-key'),
};

/** A `PublicKeyCredential` of `navigator.credentials.create()` as `toJSON` gives it; binary members are base64url. */
export const RegistrationResponse = z.object({
  ...credential,
  response: z.object({
    clientDataJSON: AuthenticatorText,
    attestationObject: AuthenticatorText,
    transports: z.array(z.string().min(1).max(32)).max(16).optional(),
  }),
});
export type RegistrationResponse = z.infer<typeof RegistrationResponse>;

/** A `PublicKeyCredential` of `navigator.credentials.get()` as `toJSON` gives it; binary members are base64url. */
export const AuthenticationResponse = z.object({
  ...credential,
  response: z.object({
    clientDataJSON: AuthenticatorText,
    authenticatorData: AuthenticatorText,
    signature: AuthenticatorText,
    userHandle: z.string().max(AUTHENTICATOR_TEXT_MAX).optional(),
  }),
});
export type AuthenticationResponse = z.infer<typeof AuthenticationResponse>;

/** What a person calls one of their passkeys. */
const PasskeyName = z.string().min(1).max(100);

/** The token of an invitation link, from behind its `#`. */
const InvitationToken = z
  .string()
  .regex(/^[A-Za-z0-9_-]{43}$/, 'an invitation is the 43 characters behind the # of its link');

/** `POST /v1/enrolment/options`. Changes nothing of the invitation. */
export const EnrolmentOptionsBody = z.strictObject({ invitation: InvitationToken });
export type EnrolmentOptionsBody = z.input<typeof EnrolmentOptionsBody>;

/** `POST /v1/enrolment`: uses the invitation up. */
export const EnrolmentBody = z.strictObject({
  invitation: InvitationToken,
  name: PasskeyName,
  response: RegistrationResponse,
});
export type EnrolmentBody = z.input<typeof EnrolmentBody>;

/** Bodies that ask for something and say nothing. */
export const EmptyBody = z.strictObject({});
export type EmptyBody = z.input<typeof EmptyBody>;

/** `POST /v1/session` and `POST /v1/session/step-up`. */
export const PasskeyAnswerBody = z.strictObject({ response: AuthenticationResponse });
export type PasskeyAnswerBody = z.input<typeof PasskeyAnswerBody>;

/** `POST /v1/passkeys`. */
export const AddPasskeyBody = z.strictObject({ name: PasskeyName, response: RegistrationResponse });
export type AddPasskeyBody = z.input<typeof AddPasskeyBody>;

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
  /** Principal id of the person of the tenant for whom the requester acts; may not approve. */
  on_behalf_of: ExternalId.optional(),
  /**
   * Whose personal data the request holds, as an id that says nothing by itself: it stays when they are erased. The request id when absent.
   */
  subject: ExternalId.optional(),
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

const shown = {
  approval_id: ExternalId,
  approval_digest: Digest,
  action_digest: Digest,
  action_revision: z.int().positive().max(REVISION_MAX),
};

/**
 * `POST /v1/runs/{run_id}/decisions`: what was shown, repeated. Who decides is the authenticated principal and nothing in here.
 * `action_revision` is the revision that fixed the action.
 */
export const DecideBody = z.strictObject({
  ...shown,
  decision: z.enum(['approve', 'reject']),
  reason: Reason.optional(),
  /** An approval outside the rule, by two of the people who may break the glass; signed, and with a reason. */
  break_glass: z.boolean().optional(),
  /** The passkey's signature over `pre_image`, as the challenge route gave it. */
  assertion: z.strictObject({ pre_image: z.string().max(PRE_IMAGE_MAX), response: AuthenticationResponse }).optional(),
});
export type DecideBody = z.input<typeof DecideBody>;

/**
 * `POST /v1/runs/{run_id}/decisions/challenge`: what the person is about to sign. `credential_id` names the passkey; the one used last when
 * absent. `reason` is bound by its digest where the glass is broken, and belongs nowhere else.
 */
export const DecisionChallengeBody = z
  .strictObject({
    ...shown,
    decision: z.enum(['approve', 'reject', 'break_glass']),
    credential_id: CredentialId.optional(),
    reason: Reason.optional(),
  })
  .refine(({ decision, reason }) => decision !== 'break_glass' || reason !== undefined, {
    message: 'member_missing',
    path: ['reason'],
  })
  .refine(({ decision, reason }) => decision === 'break_glass' || reason === undefined, {
    message: 'unknown_member',
    path: ['reason'],
  });
export type DecisionChallengeBody = z.input<typeof DecisionChallengeBody>;

/** `PUT /v1/holds/{scope}`. The reason is shown with every run that waits, whosever it is. */
export const HoldBody = z.strictObject({ reason: Reason });
export type HoldBody = z.input<typeof HoldBody>;

/** `POST /v1/runs/{run_id}/cancel`; an absent body counts as `{}`. */
export const CancelBody = z.strictObject({ reason: Reason.optional() });
export type CancelBody = z.input<typeof CancelBody>;

/** The revision that the person looked at. */
const SeenRevision = z.int().positive().max(REVISION_MAX);

/** An effect as a person observed it at the external system, where it is not the approved one. */
export const ObservedEffect = z
  .strictObject({
    /** The external system's name for it. */
    provider_ref: ProviderWord,
    /** Its status there, in the external system's words. */
    status: ProviderWord,
    /** Minor units; with its currency, where it moved money. */
    amount_minor: MinorUnits.optional(),
    currency: CurrencyCode.optional(),
    /** What it acted on (an order, a payment, a customer), where that is the difference. */
    target: ProviderWord.optional(),
  })
  .refine(({ amount_minor, currency }) => amount_minor === undefined || currency !== undefined, {
    message: 'currency_missing',
    path: ['currency'],
  })
  .refine(({ amount_minor, currency }) => currency === undefined || amount_minor !== undefined, {
    message: 'amount_missing',
    path: ['amount_minor'],
  });
export type ObservedEffect = z.infer<typeof ObservedEffect>;

const seen = { revision: SeenRevision, evidence: SeenText };

/** The members of a union differ by this one; where it is missing, that is the fault, and otherwise its value. */
const byMember = (name: string) => ({
  error: ({ code, input }: { code?: string; input: unknown }) =>
    code === 'invalid_union' && typeof input === 'object' && input !== null && !Object.hasOwn(input, name)
      ? 'member_missing'
      : undefined,
});

/**
 * `POST /v1/runs/{run_id}/verdicts`: what an operator saw of an effect in doubt, on the revision that was shown. `observed_at` is the
 * database time right before they looked (`as_of` of the run); only `did_not_land` rests on it.
 */
export const VerdictBody = z.discriminatedUnion(
  'verdict',
  [
    z.strictObject({
      ...seen,
      verdict: z.literal('landed'),
      observed_at: UtcInstant.optional(),
      provider_ref: ProviderWord.optional(),
    }),
    z.strictObject({ ...seen, verdict: z.literal('did_not_land'), observed_at: UtcInstant }),
    z.strictObject({
      ...seen,
      verdict: z.literal('landed_differently'),
      observed_at: UtcInstant.optional(),
      effect: ObservedEffect,
    }),
    z.strictObject({ ...seen, verdict: z.literal('still_unknown'), observed_at: UtcInstant.optional() }),
    z.strictObject({ ...seen, verdict: z.literal('look_again'), observed_at: UtcInstant.optional() }),
  ],
  byMember('verdict'),
);
export type VerdictBody = z.input<typeof VerdictBody>;

/** `POST /v1/runs/{run_id}/supports`: a second operator stands in for a missing fence, or confirms an observed difference by its digest. */
export const SupportBody = z.discriminatedUnion(
  'kind',
  [
    z.strictObject({ revision: SeenRevision, kind: z.literal('waive_fencing'), reason: Reason }),
    z.strictObject({
      revision: SeenRevision,
      kind: z.literal('confirm_difference'),
      effect_digest: Digest,
      reason: Reason,
    }),
  ],
  byMember('kind'),
);
export type SupportBody = z.input<typeof SupportBody>;

/** `POST /v1/instances/{instance_id}/fence`. `evidence`: how the operator knows that the process is gone, or that its credential is. */
export const FenceBody = z.strictObject({ evidence: SeenText, credential_rotated: z.boolean().optional() });
export type FenceBody = z.input<typeof FenceBody>;
