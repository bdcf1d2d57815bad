import { canonicalJson } from '@counterstamp/manifest-core';
import { expect, test } from 'vitest';
import { type CredentialRecord, certifyCredential, verifyCredential } from './credential.ts';
import { sealEnvelope } from './envelope.ts';
import { generateSigningKey, parseSigningKey, parseTrustedKeys, publicJwk, trustedKeysText } from './keys.ts';

const TYPE = 'application/vnd.counterstamp.credential+json';
const KEY = parseSigningKey(generateSigningKey());
const STRANGER = parseSigningKey(generateSigningKey());
const KEYS = parseTrustedKeys(trustedKeysText([publicJwk(KEY, ['credential'])]));
const RECORD: CredentialRecord = {
  profile: 'cs.credential.v1',
  credential_id: 'AAECAwQFBgcICQoLDA0ODw',
  principal_id: 'prn_1',
  tenant_id: 'acme',
  public_key: 'pQECAyYgASFYIA',
  rp_id: 'localhost',
  certified_at: '2026-11-30T12:00:00.000000Z',
};

test('a certified credential gives back its record', () => {
  expect(verifyCredential(certifyCredential(RECORD, KEY), KEYS)).toEqual({ ok: true, record: RECORD });
});
test('a certificate does not depend on the order of members', () => {
  const reversed = Object.fromEntries(Object.entries(RECORD).reverse()) as CredentialRecord;
  expect(certifyCredential(reversed, KEY)).toEqual(certifyCredential(RECORD, KEY));
});
test('a record that would not verify is not certified', () => {
  expect(() => certifyCredential({ ...RECORD, credential_id: 'AAECAw==' }, KEY)).toThrow();
});
test.each([
  ['by a key that nobody trusts', certifyCredential(RECORD, STRANGER), 'key_unknown'],
  ['of another type', sealEnvelope('text/plain', canonicalJson(RECORD), KEY), 'payload_type_differs'],
  ['that is not canonical', sealEnvelope(TYPE, JSON.stringify(RECORD), KEY), 'credential_malformed'],
  ['that is no JSON', sealEnvelope(TYPE, 'yes', KEY), 'credential_malformed'],
  ['of another profile', seal({ ...RECORD, profile: 'cs.credential.v2' }), 'credential_malformed'],
  ['with a member too many', seal({ ...RECORD, admin: true }), 'credential_malformed'],
  ['with a local time', seal({ ...RECORD, certified_at: '2026-11-30T12:00:00+01:00' }), 'credential_malformed'],
])('a certificate %s is refused', (_, envelope, fault) => {
  expect(verifyCredential(envelope, KEYS)).toEqual({ ok: false, fault });
});

function seal(record: Record<string, string | boolean>) {
  return sealEnvelope(TYPE, canonicalJson(record), KEY);
}
