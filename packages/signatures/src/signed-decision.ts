import { escapeWord, keepText } from '@counterstamp/manifest-core';
import { z } from 'zod';
import { Base64url } from './base64.ts';
import { verifyCredential } from './credential.ts';
import {
  type DecisionPreImage,
  decisionChallengeText,
  parseDecisionPreImage,
  reasonDigest,
} from './decision-pre-image.ts';
import { Instant, isBefore } from './instant.ts';
import type { TrustedKeys } from './keys.ts';

/** A decision with the passkey's assertion over it, as it is stored and published; the last three members are base64url of the authenticator's bytes. */
export const SignedDecision = z.strictObject({
  credential_id: Base64url,
  pre_image: z.string(),
  client_data_json: Base64url,
  authenticator_data: Base64url,
  signature: Base64url,
});
export type SignedDecision = z.infer<typeof SignedDecision>;

/** What the verifier knows from its own side, not from the decision. */
export interface ExpectedDecision {
  approval_id: string;
  decision: DecisionPreImage['decision'];
  /** Principal id. */
  approver: string;
  tenant_id: string;
  approval_digest: string;
  /** When the decision was recorded; ISO, UTC. */
  decided_at: string;
  /** The stored text, which is signed where the glass is broken; undefined: not disclosed, so it is not compared. */
  reason: string | null | undefined;
}

export interface DecisionTrust {
  keys: TrustedKeys;
  /** Origin of the console, `https://host[:port]`; its host name is the passkeys' relying party. */
  origin: string;
}

export const DECISION_FAULTS = [
  'signed_decision_malformed',
  'certificate_invalid',
  'certificate_differs',
  'pre_image_malformed',
  'pre_image_differs',
  'reason_differs',
  'decided_outside_window',
  'challenge_differs',
  'origin_differs',
  'user_not_verified',
  'assertion_invalid',
] as const;
export type DecisionFault = (typeof DECISION_FAULTS)[number];

/** `detail` is an English fragment for a log or a report; what a program decides on is `fault`. */
export type DecisionVerdict =
  | { ok: true; pre_image: DecisionPreImage }
  | { ok: false; fault: DecisionFault; detail: string };

/** UTF-16 units of a detail: room for two digests and a sentence. */
const DETAIL_MAX = 400;

type Refused = Extract<DecisionVerdict, { ok: false }>;

/** What an assertion says of itself, read before its signature is checked, so that each refusal has a code of its own. */
const ClientData = z.looseObject({
  type: z.string(),
  challenge: z.string(),
  origin: z.string(),
  crossOrigin: z.boolean().optional(),
  topOrigin: z.string().optional(),
});

/** Place of the flags in authenticator data, behind the 32 bytes of the relying party's hash, and the bit for "user verified" (WebAuthn 6.1). */
const FLAGS_AT = 32;
const USER_VERIFIED = 0x04;

/**
 * Whether a certified passkey of this approver signed exactly this decision, for this console, within its window. The nonce is the caller's
 * to compare, with its single-use row.
 * @throws {TypeError} for a `trust.origin` that is no URL: a fault of the configuration.
 */
export async function verifySignedDecision(
  signed: SignedDecision,
  certificate: unknown,
  expected: ExpectedDecision,
  trust: DecisionTrust,
): Promise<DecisionVerdict> {
  const parsed = SignedDecision.safeParse(signed);
  if (!parsed.success) {
    return refused('signed_decision_malformed', `${parsed.error.issues[0]?.path.join('.')} is malformed`);
  }
  const certified = verifyCredential(certificate, trust.keys);
  if (!certified.ok) return refused('certificate_invalid', certified.fault);
  const rpId = new URL(trust.origin).hostname;
  const wrongCertificate = firstDifference(certified.record, {
    credential_id: parsed.data.credential_id,
    principal_id: expected.approver,
    tenant_id: expected.tenant_id,
    rp_id: rpId,
  });
  if (wrongCertificate !== undefined) return refused('certificate_differs', wrongCertificate);

  const preImage = parseDecisionPreImage(parsed.data.pre_image);
  if (preImage === undefined) return refused('pre_image_malformed', 'not the canonical text of a decision');
  const wrongPreImage = firstDifference(preImage, {
    approval_id: expected.approval_id,
    decision: expected.decision,
    approver: expected.approver,
    credential: parsed.data.credential_id,
    approval_digest: expected.approval_digest,
  });
  if (wrongPreImage !== undefined) return refused('pre_image_differs', wrongPreImage);
  if (reasonDiffers(preImage, expected.reason)) return refused('reason_differs', 'the signed reason is another');
  const outside = outsideWindow(preImage, expected.decided_at);
  if (outside !== undefined) return refused('decided_outside_window', outside);

  const challenge = decisionChallengeText(parsed.data.pre_image);
  const foreign = judgeClaims(parsed.data, challenge, trust.origin);
  if (foreign !== undefined) return foreign;
  const broken = await assertionFault(parsed.data, certified.record.public_key, challenge, trust.origin, rpId);
  return broken === undefined ? { ok: true, pre_image: preImage } : refused('assertion_invalid', broken);
}

/** The detail may quote what an attacker wrote: it is kept short and in printable ASCII. */
function refused(fault: DecisionFault, detail: string): Refused {
  return { ok: false, fault, detail: keepText(detail, DETAIL_MAX, escapeWord) };
}

/** Names the first member that is not what it should be. */
function firstDifference<T>(found: T, wanted: { readonly [K in keyof T]?: T[K] | string }): string | undefined {
  for (const [name, value] of Object.entries(wanted)) {
    const actual = found[name as keyof T];
    if (actual !== value) return `${name} is ${String(actual)}, expected ${String(value)}`;
  }
  return undefined;
}

/** A reason that is told with any other decision than break_glass is not signed. */
function reasonDiffers({ reason_digest }: DecisionPreImage, reason: ExpectedDecision['reason']): boolean {
  if (reason_digest === null || reason === undefined) return false;
  return reason === null || reasonDigest(reason) !== reason_digest;
}

function outsideWindow({ issued_at, expires_at }: DecisionPreImage, decidedAt: string): string | undefined {
  if (!Instant.safeParse(decidedAt).success) return `decided_at ${decidedAt} is no instant`;
  if (isBefore(decidedAt, issued_at)) return `decided at ${decidedAt}, before it was issued at ${issued_at}`;
  if (!isBefore(decidedAt, expires_at)) return `decided at ${decidedAt}, when it had expired at ${expires_at}`;
  return undefined;
}

/** Judges what browser and authenticator say of this assertion. That they said it is the signature's part. */
function judgeClaims(signed: SignedDecision, challenge: string, origin: string): Refused | undefined {
  const clientData = parseClientData(signed.client_data_json);
  if (clientData === undefined) return refused('assertion_invalid', 'client data is no JSON of a WebAuthn client');
  if (clientData.type !== 'webauthn.get') return refused('assertion_invalid', `client data of type ${clientData.type}`);
  if (clientData.challenge !== challenge) {
    return refused('challenge_differs', 'the passkey signed another challenge than the digest of the pre-image');
  }
  if (clientData.origin !== origin) {
    return refused('origin_differs', `signed at ${clientData.origin}, expected ${origin}`);
  }
  // A page that frames ours can cover what the approver reads. The library lets a framed assertion pass that names no top origin.
  if (clientData.crossOrigin === true || clientData.topOrigin !== undefined) {
    return refused('origin_differs', "signed inside another site's frame");
  }
  const flags = Buffer.from(signed.authenticator_data, 'base64url')[FLAGS_AT];
  if (flags === undefined) return refused('assertion_invalid', 'authenticator data is too short');
  if ((flags & USER_VERIFIED) === 0) return refused('user_not_verified', 'the authenticator did not verify the person');
  return undefined;
}

function parseClientData(clientDataJson: string): z.infer<typeof ClientData> | undefined {
  try {
    return ClientData.safeParse(JSON.parse(Buffer.from(clientDataJson, 'base64url').toString('utf8'))).data;
  } catch {
    return undefined;
  }
}

/** What the WebAuthn library finds wrong with an assertion: everything of the standard's procedure, the signature last. */
async function assertionFault(
  signed: SignedDecision,
  publicKey: string,
  challenge: string,
  origin: string,
  rpId: string,
): Promise<string | undefined> {
  // Loaded here: with its certificate parsers it is by far the heaviest import, and a process without passkey decisions never needs it.
  const { verifyAuthenticationResponse } = await import('@simplewebauthn/server');
  try {
    const { verified } = await verifyAuthenticationResponse({
      response: {
        id: signed.credential_id,
        rawId: signed.credential_id,
        type: 'public-key',
        clientExtensionResults: {},
        response: {
          clientDataJSON: signed.client_data_json,
          authenticatorData: signed.authenticator_data,
          signature: signed.signature,
        },
      },
      // The library compares this text with the client's as it stands; base64url of 32 bytes has one spelling, so the bytes are what is compared.
      expectedChallenge: challenge,
      expectedOrigin: origin,
      expectedRPID: rpId,
      expectedType: 'webauthn.get',
      requireUserVerification: true,
      credential: {
        id: signed.credential_id,
        publicKey: new Uint8Array(Buffer.from(publicKey, 'base64url')),
        // From 0 every counter is accepted. Synced passkeys always report 0, and a verifier of stored decisions meets them in any order:
        // the single-use nonce in the pre-image is what refuses a replay.
        counter: 0,
      },
    });
    return verified ? undefined : 'the signature is not by the certified key over these bytes';
  } catch (error) {
    return error instanceof Error ? error.message : String(error);
  }
}
