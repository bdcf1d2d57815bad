import { createHash } from 'node:crypto';
import { canonicalJson, Digest, digestOf, ExternalId } from '@counterstamp/manifest-core';
import { z } from 'zod';
import { Base64url } from './base64.ts';
import { parseCanonicalRecord } from './canonical-record.ts';
import { Instant } from './instant.ts';

export const DECISIONS = ['approve', 'reject', 'break_glass'] as const;

/** 16 bytes as base64url: fewer could be guessed or met twice. */
const NONCE_LENGTH_MIN = 22;

/**
 * What an approver's passkey signs. Its RFC 8785 text is the pre-image of the WebAuthn challenge, so the assertion says who decided what, about
 * which approval, with which credential and until when.
 */
export const DecisionPreImage = z
  .strictObject({
    profile: z.literal('cs.decision.v1'),
    approval_id: ExternalId,
    decision: z.enum(DECISIONS),
    /** Principal id. */
    approver: ExternalId,
    /** Credential id, base64url. */
    credential: Base64url,
    approval_digest: Digest,
    /** Single use: its row, not the authenticator's counter, is what refuses a replay. */
    nonce: Base64url.min(NONCE_LENGTH_MIN),
    issued_at: Instant,
    /** First instant at which the decision no longer counts. */
    expires_at: Instant,
    /** `reasonDigest` of the reason, exactly where the decision breaks the glass. */
    reason_digest: Digest.nullable(),
  })
  .refine(
    ({ decision, reason_digest }) => (decision === 'break_glass') === (reason_digest !== null),
    'a reason belongs to break_glass and to nothing else',
  );
export type DecisionPreImage = z.infer<typeof DecisionPreImage>;

/**
 * The canonical text of a decision.
 * @throws {z.ZodError} for fields that `parseDecisionPreImage` would refuse: a fault of the caller.
 */
export function decisionPreImage(fields: z.input<typeof DecisionPreImage>): string {
  return canonicalJson(DecisionPreImage.parse(fields));
}

/** The fields of a pre-image; `undefined` unless the text is canonical and each member fits. */
export function parseDecisionPreImage(text: string): DecisionPreImage | undefined {
  return parseCanonicalRecord(DecisionPreImage, text);
}

/** The WebAuthn challenge: the 32 bytes of SHA-256 over the pre-image's UTF-8. Pass these bytes on: a library would encode a string again. */
export function decisionChallenge(preImage: string): Uint8Array<ArrayBuffer> {
  return new Uint8Array(createHash('sha256').update(preImage, 'utf8').digest());
}

/** The challenge as client data carries it and the challenge's row keeps it: base64url. */
export function decisionChallengeText(preImage: string): string {
  return Buffer.from(decisionChallenge(preImage)).toString('base64url');
}

/** Digest of the text that a person gave for breaking the glass. */
export function reasonDigest(reason: string): Digest {
  return digestOf('cs.reason.v1', reason);
}
