import { createPublicKey, verify } from 'node:crypto';
import { describe, expect, test } from 'vitest';
import { type Envelope, openEnvelope, preAuthenticationEncoding, sealEnvelope } from './envelope.ts';
import { generateSigningKey, parseSigningKey, parseTrustedKeys, publicJwk, trustedKeysText } from './keys.ts';

const TYPE = 'application/vnd.example+json';
const KEY = parseSigningKey(generateSigningKey());
const NEXT_KEY = parseSigningKey(generateSigningKey());
const STRANGER = parseSigningKey(generateSigningKey());
const KEYS = parseTrustedKeys(trustedKeysText([publicJwk(KEY, ['receipt']), publicJwk(NEXT_KEY, ['receipt'])]));
const PAYLOAD = '{"name":"Zoë","text":"\ufeff"}';
const SEALED = sealEnvelope(TYPE, PAYLOAD, KEY);
const SIGNATURE = { keyid: KEY.key_id, sig: SEALED.signatures[0]?.sig ?? '' };

const open = (envelope: unknown, type = TYPE) => openEnvelope(envelope, type, KEYS, 'receipt');
const base64 = (text: string | Uint8Array) => Buffer.from(text).toString('base64');

describe("DSSE's own test vector", () => {
  const encoded = preAuthenticationEncoding('http://example.com/HelloWorld', Buffer.from('hello world'));

  test('has the published encoding', () => {
    expect(Buffer.from(encoded).toString()).toBe('DSSEv1 29 http://example.com/HelloWorld 11 hello world');
  });
  test('has the published signature over that encoding', () => {
    const coordinate = (decimal: string) =>
      Buffer.from(BigInt(decimal).toString(16).padStart(64, '0'), 'hex').toString('base64url');
    const jwk = {
      kty: 'EC',
      crv: 'P-256',
      x: coordinate('46950820868899156662930047687818585632848591499744589407958293238635476079160'),
      y: coordinate('5640078356564379163099075877009565129882514886557779369047442380624545832820'),
    };
    const signature = 'A3JqsQGtVsJ2O2xqrI5IcnXip5GToJ3F+FnZ+O88SjtR6rDAajabZKciJTfUiHqJPcIAriEGAHTVeCUjW2JIZA==';
    const key = createPublicKey({ key: jwk, format: 'jwk' });
    expect(verify('sha256', encoded, { key, dsaEncoding: 'ieee-p1363' }, Buffer.from(signature, 'base64'))).toBe(true);
  });
});

test('lengths in the encoding are in bytes', () => {
  expect(Buffer.from(preAuthenticationEncoding('ë', Buffer.from('é!'))).toString()).toBe('DSSEv1 2 ë 3 é!');
});

describe('an envelope', () => {
  test('gives back the payload that was sealed, and the key that signed it', () => {
    expect(open(SEALED)).toEqual({ ok: true, payload: PAYLOAD, key_id: KEY.key_id });
  });
  test('opens in either base64 alphabet, with or without padding', () => {
    const urlSafe = (text: string) => Buffer.from(text, 'base64').toString('base64url');
    const spelled = {
      ...SEALED,
      payload: urlSafe(SEALED.payload),
      signatures: [{ ...SIGNATURE, sig: urlSafe(SIGNATURE.sig) }],
    };
    expect(open(spelled).ok).toBe(true);
  });
  test('opens by one trusted signature beside others that count for nothing', () => {
    const foreign = sealEnvelope(TYPE, PAYLOAD, STRANGER).signatures[0];
    const next = sealEnvelope(TYPE, PAYLOAD, NEXT_KEY).signatures[0];
    const broken = { ...SIGNATURE, sig: base64('x') };
    expect(open({ ...SEALED, signatures: [foreign, broken, next] })).toMatchObject({
      ok: true,
      key_id: NEXT_KEY.key_id,
    });
  });
  test('is not made of half a surrogate pair', () => {
    expect(() => sealEnvelope(TYPE, '\ud800', KEY)).toThrow(RangeError);
  });
  test.each<[string, unknown, string]>([
    ['nothing', undefined, 'envelope_malformed'],
    ['its text in place of the object', JSON.stringify(SEALED), 'envelope_malformed'],
    ['a member beside the three', { ...SEALED, note: 'approved' }, 'envelope_malformed'],
    ['no signature', { ...SEALED, signatures: [] }, 'envelope_malformed'],
    ['nine signatures', { ...SEALED, signatures: Array.from({ length: 9 }, () => SIGNATURE) }, 'envelope_malformed'],
    ['a signature without keyid', { ...SEALED, signatures: [{ sig: SIGNATURE.sig }] }, 'envelope_malformed'],
    ['a payload that is no base64', { ...SEALED, payload: `${SEALED.payload}!` }, 'envelope_malformed'],
    ['a payload that is no UTF-8', { ...SEALED, payload: base64(Uint8Array.of(0xff)) }, 'envelope_malformed'],
    ['another type', { ...SEALED, payloadType: 'application/json' }, 'payload_type_differs'],
    ['a key that nobody trusts', sealEnvelope(TYPE, PAYLOAD, STRANGER), 'key_unknown'],
    [
      'the id of another trusted key',
      { ...SEALED, signatures: [{ ...SIGNATURE, keyid: NEXT_KEY.key_id }] },
      'signature_invalid',
    ],
    ['another payload', { ...SEALED, payload: base64(`${PAYLOAD} `) }, 'signature_invalid'],
    [
      'a signature of another length',
      { ...SEALED, signatures: [{ ...SIGNATURE, sig: base64('x') }] },
      'signature_invalid',
    ],
    ['a signature that is no base64', { ...SEALED, signatures: [{ ...SIGNATURE, sig: '*' }] }, 'signature_invalid'],
    ['a signature over another type', resealed('application/json'), 'signature_invalid'],
  ])('with %s stays shut', (_, envelope, fault) => {
    expect(open(envelope)).toEqual({ ok: false, fault });
  });
  test('stays shut when any bit of its signature is flipped', () => {
    for (let bit = 0; bit < 512; bit++) {
      const sig = Buffer.from(SIGNATURE.sig, 'base64');
      sig[bit >> 3] = (sig[bit >> 3] ?? 0) ^ (1 << (bit & 7));
      expect(open({ ...SEALED, signatures: [{ ...SIGNATURE, sig: base64(sig) }] })).toEqual({
        ok: false,
        fault: 'signature_invalid',
      });
    }
  });
  test('stays shut for a purpose that its key does not have', () => {
    expect(openEnvelope(SEALED, TYPE, KEYS, 'checkpoint')).toEqual({ ok: false, fault: 'key_unknown' });
  });
});

/** Signed as another type, shown as ours. */
function resealed(type: string): Envelope {
  return { ...sealEnvelope(type, PAYLOAD, KEY), payloadType: TYPE };
}
