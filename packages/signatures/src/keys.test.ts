import { createPublicKey, verify } from 'node:crypto';
import { describe, expect, test } from 'vitest';
import {
  generateSigningKey,
  type KeyPurpose,
  parseSigningKey,
  parseTrustedKeys,
  publicJwk,
  trustedKeysText,
} from './keys.ts';

/** RFC 8037 appendix A: key, thumbprint (A.3) and signature (A.4). */
const RFC_8037 = {
  jwk: {
    kty: 'OKP',
    crv: 'Ed25519',
    d: 'nWGxne_9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A',
    x: '11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo',
  },
  thumbprint: 'kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k',
  signingInput: 'eyJhbGciOiJFZERTQSJ9.RXhhbXBsZSBvZiBFZDI1NTE5IHNpZ25pbmc',
  signature: 'hgyY0il_MGCjP0JzlnLWG1PPOt7-09PGcvMg3AIbQR6dWbhijcNR4ki4iylGjg5BhVsPt9g7sVvpAr_MuM0KAg',
};
const OTHER = parseSigningKey(generateSigningKey());
const PRIVATE = RFC_8037.jwk;

function messageOf(action: () => unknown): string {
  try {
    action();
  } catch (error) {
    if (error instanceof RangeError) return error.message;
    throw error;
  }
  return 'accepted';
}

describe('a signing key', () => {
  const key = parseSigningKey(JSON.stringify(PRIVATE));

  test("has RFC 8037's thumbprint as its id and makes RFC 8037's signature", () => {
    expect(key.key_id).toBe(RFC_8037.thumbprint);
    expect(Buffer.from(key.sign(Buffer.from(RFC_8037.signingInput))).toString('base64url')).toBe(RFC_8037.signature);
  });
  test('shows nothing of its private part', () => {
    expect(JSON.stringify(key)).not.toContain(PRIVATE.d);
    expect(Object.keys(key.public_jwk).sort()).toEqual(['crv', 'kty', 'x']);
  });
  test('that was generated is read again, signs for its public key and is never the same twice', () => {
    const text = generateSigningKey();
    const read = parseSigningKey(text);
    const publicKey = createPublicKey({ key: read.public_jwk, format: 'jwk' });
    expect(verify(null, Buffer.from('a'), publicKey, read.sign(Buffer.from('a')))).toBe(true);
    expect(text).not.toContain('\n');
    expect(generateSigningKey()).not.toBe(text);
  });
  test.each([
    ['text that is no JSON', `${JSON.stringify(PRIVATE)}}`, /not well-formed JSON/],
    ['no text', '', /not well-formed JSON/],
    ['a duplicate member', `{"d":"${PRIVATE.d}",${JSON.stringify(PRIVATE).slice(1)}`, /not well-formed JSON/],
    ['a public key', JSON.stringify({ ...PRIVATE, d: undefined }), /at fault: d$/],
    ['another curve', JSON.stringify({ ...PRIVATE, crv: 'X25519' }), /at fault: crv$/],
    ['a short private part', JSON.stringify({ ...PRIVATE, d: PRIVATE.d.slice(0, -1) }), /at fault: d$/],
    ['a private part in another spelling', JSON.stringify({ ...PRIVATE, d: `${PRIVATE.d.slice(0, -1)}B` }), /: d$/],
    ['a member that it does not know', JSON.stringify({ ...PRIVATE, password: PRIVATE.d }), /at fault: password$/],
    [
      'the public part of another key',
      JSON.stringify({ ...PRIVATE, x: OTHER.public_jwk.x }),
      /x is not the public key/,
    ],
    ['a kid that differs', JSON.stringify({ ...PRIVATE, kid: PRIVATE.d }), /kid is not its RFC 7638 thumbprint/],
    ['a list', JSON.stringify([PRIVATE]), /at fault: the whole$/],
  ])('is refused for %s, in a sentence that does not show it', (_, text, sentence) => {
    const message = messageOf(() => parseSigningKey(text));
    expect(message).toMatch(sentence);
    expect(message).not.toContain(PRIVATE.d.slice(0, 8));
  });
});

describe('trusted keys', () => {
  const first = parseSigningKey(JSON.stringify(PRIVATE));
  const listed = publicJwk(first, ['credential', 'receipt']);
  const setOf = (...keys: readonly object[]) => JSON.stringify({ keys });

  test('find a key for its purposes and for no other', () => {
    const keys = parseTrustedKeys(trustedKeysText([listed]));
    const found = (purpose: KeyPurpose) => keys.find(first.key_id, purpose)?.export({ format: 'jwk' });
    expect(keys.published).toEqual({ keys: [listed] });
    expect(found('credential')).toEqual(first.public_jwk);
    expect(found('receipt')).toEqual(first.public_jwk);
    expect(found('checkpoint')).toBeUndefined();
    expect(keys.find(OTHER.key_id, 'credential')).toBeUndefined();
  });
  test('hold the old key beside the new one during a rotation', () => {
    const keys = parseTrustedKeys(trustedKeysText([listed, publicJwk(OTHER, ['credential'])]));
    expect(keys.find(first.key_id, 'credential')).toBeDefined();
    expect(keys.find(OTHER.key_id, 'credential')).toBeDefined();
  });
  test.each([
    ['text that is no JSON', `{"keys":[${JSON.stringify(PRIVATE)}`, /not well-formed JSON/],
    ['a private key', setOf({ ...listed, d: PRIVATE.d }), /hold a private key \(member d\)/],
    ['a lone private key in place of a set', JSON.stringify(PRIVATE), /hold a private key \(member d\)/],
    ['no key', setOf(), /at fault: keys$/],
    ['a key without purposes', setOf({ ...listed, purposes: undefined }), /at fault: keys\.0\.purposes$/],
    ['empty purposes', setOf({ ...listed, purposes: [] }), /at fault: keys\.0\.purposes$/],
    ['an unknown purpose', setOf({ ...listed, purposes: ['all'] }), /at fault: keys\.0\.purposes\.0$/],
    ['a key without kid', setOf({ ...listed, kid: undefined }), /at fault: keys\.0\.kid$/],
    ["another key's kid", setOf({ ...listed, kid: OTHER.key_id }), /kid of trusted key 0 is not its RFC 7638/],
    ['a member that it does not know', setOf({ ...listed, use: 'sig' }), /at fault: keys\.0\.use$/],
    ['one key twice', setOf(listed, { ...listed, purposes: ['checkpoint'] }), /twice$/],
  ])('are refused for %s, in a sentence that shows no private key', (_, text, sentence) => {
    const message = messageOf(() => parseTrustedKeys(text));
    expect(message).toMatch(sentence);
    expect(message).not.toContain(PRIVATE.d.slice(0, 8));
  });
});
