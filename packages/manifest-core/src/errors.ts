interface ErrorEntry {
  /** HTTP status. */
  readonly status: 400 | 401 | 403 | 404 | 405 | 409 | 410 | 413 | 415 | 422 | 429 | 500 | 503;
  /** A sentence for people: what is wrong and, where it is not plain, what to do. */
  readonly title: string;
}

/** Every code that a door of the product answers with. A code never changes its meaning; docs/reference/errors.md is rendered from here. */
export const ERRORS = {
  json_syntax: { status: 400, title: 'The body is not JSON.' },
  body_missing: { status: 400, title: 'The request needs a JSON body.' },
  body_incomplete: { status: 400, title: 'The body ended before it was complete.' },
  body_too_large: { status: 413, title: 'The body is larger than the limit.' },
  content_type_unsupported: { status: 415, title: 'Send the body as application/json.' },
  text_not_utf8: { status: 400, title: 'The body is not well-formed UTF-8.' },
  duplicate_member: { status: 400, title: 'A member is written twice in one object, so its value is ambiguous.' },
  unknown_member: { status: 400, title: 'The object has a member that is not part of its schema.' },
  text_not_well_formed: { status: 400, title: 'A text holds half of a surrogate pair and has no canonical form.' },
  text_has_nul: { status: 400, title: 'A text holds the character U+0000, which cannot be stored.' },
  number_not_safe: { status: 400, title: 'A number is beyond 2^53 − 1 and would be rounded; send it as a string.' },
  number_not_integer: { status: 400, title: 'An integer belongs here: digits only, without fraction or exponent.' },
  nesting_too_deep: { status: 400, title: 'The value is nested deeper than the limit.' },
  member_missing: { status: 400, title: 'A required member is missing.' },
  value_invalid: { status: 400, title: 'A value is not of the form that its member needs.' },
  value_too_large: { status: 400, title: 'A value is larger than its limit.' },
  amount_missing: { status: 400, title: 'The amount is missing; spell out the exact amount in minor units.' },
  amount_not_integer: { status: 400, title: 'The amount must be a JSON integer in minor units; nothing is rounded.' },
  amount_not_positive: { status: 400, title: 'The amount must be above zero.' },
  amount_not_representable: {
    status: 400,
    title: 'The external system cannot carry this amount exactly in this currency.',
  },
  currency_missing: { status: 400, title: 'The currency is missing.' },
  currency_invalid: { status: 400, title: 'The currency must be three capital letters (ISO 4217).' },
  currency_unsupported: { status: 400, title: 'The external system does not carry this currency.' },
  identifier_charset: {
    status: 400,
    title: 'An identifier must start with an ASCII letter or digit and hold only letters, digits and . _ - : @ #.',
  },
  identifier_too_long: { status: 400, title: 'An identifier has more than 128 characters.' },
  run_id_malformed: { status: 400, title: 'A run id is run_ followed by a lower-case UUID.' },
  digest_malformed: { status: 400, title: 'A digest is sha256: followed by 64 lower-case hex digits.' },
  cursor_malformed: { status: 400, title: 'The cursor was not made by this list.' },
  idempotency_conflict: { status: 409, title: 'This request id was already used with another body.' },
  subject_erased: {
    status: 409,
    title: 'The personal data of this subject was erased; a new request needs another subject.',
  },
  workflow_unknown: { status: 400, title: 'There is no workflow of this name.' },
  supersedes_invalid: { status: 409, title: 'The superseded run is not one that a successor may replace.' },
  unauthenticated: { status: 401, title: 'Send a valid API key as a bearer token, or sign in.' },
  role_missing: { status: 403, title: 'The key has no role that may do this.' },
  not_an_approver: { status: 403, title: 'Only an approver may decide.' },
  self_approval: { status: 403, title: 'Who requested the run may not approve it.' },
  approvals_need_development: {
    status: 403,
    title: 'Keys may decide only in development (COUNTERSTAMP_DEV=1); elsewhere a person signs.',
  },
  on_behalf_unknown: { status: 400, title: 'The tenant has no such person.' },
  open_runs_limit: {
    status: 429,
    title: 'The tenant has as many open runs as it may have; wait until some have ended.',
  },
  rate_limited: { status: 429, title: 'Too many requests; try again after the time that Retry-After names.' },
  signature_required: {
    status: 403,
    title: 'This approval counts only when it is signed with a passkey: ask for a challenge and sign it.',
  },
  challenge_invalid: {
    status: 409,
    title: 'The signed challenge is unknown, used up, expired or for something else; ask for a new one.',
  },
  credential_revoked: { status: 403, title: 'The passkey is not one of yours, or was revoked.' },
  break_glass_not_allowed: { status: 403, title: 'The policy of this approval has no glass to break.' },
  assertion_invalid: {
    status: 403,
    title: 'What the passkey answered does not hold; the detail says why. Ask for new options and sign again.',
  },
  credentials_ambiguous: { status: 400, title: 'Send either an API key or a session cookie, not both.' },
  session_required: { status: 403, title: 'Only a signed-in person may do this; a key may not.' },
  step_up_required: {
    status: 403,
    title: 'You signed in too long ago for this: confirm with your passkey, then repeat the request.',
  },
  csrf_refused: {
    status: 403,
    title: 'The request did not come from our own pages: its origin or its x-csrf-token is missing or wrong.',
  },
  sign_in_unavailable: {
    status: 503,
    title:
      'Neither sign-in nor receipts are set up here: COUNTERSTAMP_ORIGIN, COUNTERSTAMP_INSTALLATION_KEY and COUNTERSTAMP_TRUSTED_KEYS are missing.',
  },
  identity_unknown: {
    status: 403,
    title: 'Nobody here is linked to this identity, or they may not sign in; ask for `counterstamp person link`.',
  },
  identity_refused: {
    status: 403,
    title:
      'The identity provider’s answer does not hold, was used before or is not to a question of ours: sign in again.',
  },
  identity_provider_unavailable: { status: 503, title: 'The identity provider does not answer; try again later.' },
  invitation_invalid: { status: 410, title: 'The invitation is unknown, used up or expired; ask for a new one.' },
  passkey_known: { status: 409, title: 'This passkey is enrolled already.' },
  passkey_not_found: { status: 404, title: 'You have no such passkey.' },
  passkey_last: {
    status: 409,
    title: 'This is your last passkey: enrol another first, or have it revoked by `counterstamp passkey revoke`.',
  },
  run_not_found: { status: 404, title: 'There is no such run.' },
  approval_not_found: { status: 404, title: 'There is no such approval for this run.' },
  route_not_found: { status: 404, title: 'There is nothing at this address.' },
  method_not_allowed: { status: 405, title: 'This address does not take this method.' },
  already_decided: { status: 409, title: 'This approval was decided already.' },
  digest_mismatch: {
    status: 409,
    title: 'The digest is not that of the action that waits; load the run again and decide on what it shows.',
  },
  card_not_bound: {
    status: 409,
    title:
      'What would be shown is not what the approval binds, so nobody is shown it. Treat it as tampering: see docs/operations/alarms.md.',
  },
  stale_revision: { status: 409, title: 'The run changed meanwhile; load it again.' },
  approval_expired: { status: 410, title: 'The approval expired; a late decision is never used.' },
  not_awaiting_approval: { status: 409, title: 'The run is not waiting for an approval.' },
  not_awaiting_proposal: { status: 409, title: 'The run is not waiting for a proposal.' },
  proposal_limit: { status: 409, title: 'The run has used up its proposal cycles.' },
  not_cancellable: { status: 409, title: 'The run can no longer be cancelled.' },
  not_in_doubt: { status: 409, title: 'The run has no effect in doubt that a person could judge.' },
  not_settled: {
    status: 409,
    title: 'It is too early to say that nothing happened: the effect could still appear. Look again later.',
  },
  evidence_stands: {
    status: 409,
    title:
      'The external system once said that it applied the action, or a look showed the effect; while that stands, nobody may record its absence.',
  },
  instance_not_fenced: {
    status: 409,
    title: 'An executor that sent for this run may still be alive; end it first.',
  },
  second_person_needed: {
    status: 409,
    title: 'The action needed two approvals, so a second person has to confirm what was observed.',
  },
  instance_not_found: { status: 404, title: 'There is no such instance.' },
  instance_alive: { status: 409, title: 'The instance still shows signs of life; end its process first.' },
  store_unavailable: {
    status: 503,
    title: 'The database does not answer. Repeat the request unchanged: it is recorded at most once.',
  },
  internal_error: { status: 500, title: 'Something failed on our side; the trace id is in the log.' },
} as const satisfies Record<string, ErrorEntry>;

export type ErrorCode = keyof typeof ERRORS;

export function isErrorCode(code: string): code is ErrorCode {
  return Object.hasOwn(ERRORS, code);
}

/** A refused input: the stable code, where in the document (RFC 6901 pointer, "" for the whole) and what about it. */
export interface Refusal {
  code: ErrorCode;
  path: string;
  detail: string;
}
