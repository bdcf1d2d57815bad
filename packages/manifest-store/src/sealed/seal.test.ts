import { createSecretKey } from 'node:crypto';
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { open, placeOf, SealBroken, seal } from './seal.ts';

const KEY = createSecretKey(Buffer.from(Array.from({ length: 32 }, (_, i) => i)));
const NONCE = Buffer.from(Array.from({ length: 12 }, (_, i) => i));
const PLACE = placeOf('evidence_value', 'evd_1');
const TEXT = '{"facts_canonical":"{}","salt":"00"}';
/** Made with two other implementations: Python's `cryptography` and WebCrypto. */
const SEALED =
  '01000102030405060708090a0b3c20b07aa691b144ee20f9e4df801b0ceff4bd168b067d501a1484e9694b3a9031208c813c0d5f8259743287962f088caea43cef';

test('a sealed value has the bytes that other implementations make', () => {
  expect(seal(TEXT, KEY, PLACE, NONCE).toString('hex')).toBe(SEALED);
  expect(open(Buffer.from(SEALED, 'hex'), KEY, PLACE).toString('utf8')).toBe(TEXT);
});

test('whatever is sealed opens again, and never looks the same twice', () => {
  fc.assert(
    fc.property(fc.string({ unit: 'grapheme' }), (text) => {
      const sealed = seal(text, KEY, PLACE);
      expect(open(sealed, KEY, PLACE).toString('utf8')).toBe(text);
      expect(seal(text, KEY, PLACE)).not.toEqual(sealed);
    }),
  );
});

test('no bit of a sealed value may differ', () => {
  const sealed = Buffer.from(SEALED, 'hex');
  for (let bit = 0; bit < sealed.length * 8; bit++) {
    const changed = Buffer.from(sealed);
    changed[bit >> 3] = (changed[bit >> 3] ?? 0) ^ (1 << (bit & 7));
    expect(() => open(changed, KEY, PLACE), `bit ${bit}`).toThrow(SealBroken);
  }
});

test.each([
  ['another key', createSecretKey(Buffer.alloc(32, 7)), PLACE],
  ['another row of its table', KEY, placeOf('evidence_value', 'evd_2')],
  ['another table', KEY, placeOf('proposal', 'evd_1')],
])('a sealed value does not open in %s', (_, key, place) => {
  expect(() => open(Buffer.from(SEALED, 'hex'), key, place)).toThrow(SealBroken);
});

test.each([0, 1, 12, 13, 28])('%i bytes are no sealed value', (length) => {
  expect(() => open(Buffer.from(SEALED, 'hex').subarray(0, length), KEY, PLACE)).toThrow(SealBroken);
});
