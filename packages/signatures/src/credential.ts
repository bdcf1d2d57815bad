import { canonicalJson, ExternalId } from '@counterstamp/manifest-core';
import { z } from 'zod';
import { Base64url } from './base64.ts';
import { parseCanonicalRecord } from './canonical-record.ts';
import { type Envelope, type EnvelopeFault, openEnvelope, sealEnvelope } from './envelope.ts';
import { Instant } from './instant.ts';
import type { SigningKey, TrustedKeys } from './keys.ts';

const PAYLOAD_TYPE = 'application/vnd.counterstamp.credential+json';

/**
 * What the installation certifies at enrolment: this passkey is that person's. The key that certifies lives outside the database, so a
 * credential row that somebody wrote there has no certificate.
 */
export const CredentialRecord = z.strictObject({
  profile: z.literal('cs.credential.v1'),
  credential_id: Base64url,
  principal_id: ExternalId,
  tenant_id: ExternalId,
  /** The COSE public key as the authenticator gave it. */
  public_key: Base64url,
  /** Host name that the passkey is bound to. */
  rp_id: z.string().min(1).max(253),
  certified_at: Instant,
});
export type CredentialRecord = z.infer<typeof CredentialRecord>;

export type CredentialFault = EnvelopeFault | 'credential_malformed';
export type VerifiedCredential = { ok: true; record: CredentialRecord } | { ok: false; fault: CredentialFault };

/** @throws {z.ZodError} for a record that `verifyCredential` would refuse: a fault of the caller. */
export function certifyCredential(record: CredentialRecord, key: SigningKey): Envelope {
  return sealEnvelope(PAYLOAD_TYPE, canonicalJson(CredentialRecord.parse(record)), key);
}

/** The record of a certificate that a key trusted for `credential` signed. */
export function verifyCredential(envelope: unknown, keys: TrustedKeys): VerifiedCredential {
  const opened = openEnvelope(envelope, PAYLOAD_TYPE, keys, 'credential');
  if (!opened.ok) return opened;
  const record = parseCanonicalRecord(CredentialRecord, opened.payload);
  return record === undefined ? { ok: false, fault: 'credential_malformed' } : { ok: true, record };
}
