import { randomBytes } from 'node:crypto';
import { inspect } from 'node:util';
import type { Digest } from '@counterstamp/manifest-core';
import { describe, expect, test } from 'vitest';
import { parseDataKeys } from './data-keys.ts';
import { SealBroken } from './seal.ts';
import { createSealing, DataKeyMissing, type Sealing } from './sealing.ts';

const FIXED = Buffer.from(Array.from({ length: 32 }, (_, i) => i)).toString('base64url');
const OTHER = Buffer.alloc(32, 7).toString('base64url');
const WHOSE = { tenant_id: 'shop_north', subject: 'customer_17' };
const DIGEST = `sha256:${'0'.repeat(64)}` as Digest;

function sealingWith(...keys: string[]): Sealing {
  const parsed = parseDataKeys(keys.join(','));
  if (!parsed.ok) throw new Error(parsed.fault);
  return createSealing(parsed.keys);
}
const raw = (sealing: Sealing, wrapped: Uint8Array, whose = WHOSE) => sealing.unwrap(wrapped, whose).export();

describe('data keys', () => {
  test.each([
    ['nothing', ''],
    ['too short a key', randomBytes(31).toString('base64url')],
    ['too long a key', randomBytes(33).toString('base64url')],
    ['base64 of the other alphabet', Buffer.alloc(32, 0xff).toString('base64')],
    ['a key with something behind it', `${FIXED}!`],
    ['a missing second key', `${FIXED},`],
    ['the same key twice', `${FIXED},${FIXED}`],
  ])('are refused: %s', (_, text) => {
    expect(parseDataKeys(text).ok).toBe(false);
  });

  test('are known by an id that is derived from them, and never show themselves', () => {
    const sealing = sealingWith(FIXED, OTHER);
    expect(sealing.key_ids[0]).toBe('1b96f5b4d02c4603');
    expect(sealing.key_ids).toHaveLength(2);
    const parsed = parseDataKeys(FIXED);
    for (const shown of [inspect(parsed, { depth: 9, showHidden: true }), JSON.stringify(parsed)]) {
      expect(shown).not.toContain(FIXED);
      expect(shown).not.toContain(Buffer.from(FIXED, 'base64url').toString('hex'));
    }
  });
});

describe('a subject’s key', () => {
  test('is fresh each time and opens for its subject alone', () => {
    const sealing = sealingWith(FIXED);
    const wrapped = sealing.freshKey(WHOSE);
    expect(raw(sealing, wrapped)).toHaveLength(32);
    expect(raw(sealing, wrapped)).toEqual(raw(sealing, wrapped));
    expect(raw(sealing, sealing.freshKey(WHOSE))).not.toEqual(raw(sealing, wrapped));
    for (const whose of [
      { ...WHOSE, tenant_id: 'shop_south' },
      { ...WHOSE, subject: 'customer_18' },
    ])
      expect(() => raw(sealing, wrapped, whose)).toThrow(SealBroken);
  });

  test('that was wrapped before the data key was replaced opens as long as the old one is given', () => {
    const before = sealingWith(FIXED);
    const after = sealingWith(OTHER, FIXED);
    const wrapped = before.freshKey(WHOSE);
    expect(raw(after, wrapped)).toEqual(raw(before, wrapped));
    const fresh = after.freshKey(WHOSE);
    expect(raw(sealingWith(OTHER), fresh)).toEqual(raw(after, fresh));
    expect(() => raw(sealingWith(OTHER), wrapped)).toThrow(DataKeyMissing);
    expect(() => raw(sealingWith(OTHER), wrapped)).toThrow('1b96f5b4d02c4603');
  });

  test('with a changed byte does not open', () => {
    const sealing = sealingWith(FIXED);
    const wrapped = sealing.freshKey(WHOSE);
    for (let at = 0; at < wrapped.length; at++) {
      const changed = Buffer.from(wrapped);
      changed[at] = (changed[at] ?? 0) ^ 1;
      // Among them the id of the data key, which then is one that nobody has.
      expect(() => raw(sealing, changed), `byte ${at}`).toThrow(at >= 1 && at <= 8 ? DataKeyMissing : SealBroken);
    }
  });
});

test('a keyed digest is the same for the same text, another for another tenant or data key, and keeps its bytes', () => {
  const [digest] = sealingWith(FIXED).keyedDigests('shop_north', DIGEST);
  // Made with WebCrypto's HKDF and Node's HMAC.
  expect(digest).toBe('sha256:e7ab2ed263f68a04016524f1d3b828e11c750373ac9fb53f04f446e17d64ec21');
  const [south] = sealingWith(FIXED).keyedDigests('shop_south', DIGEST);
  const [other, ...older] = sealingWith(OTHER, FIXED).keyedDigests('shop_north', DIGEST);
  expect(new Set([digest, south, other, DIGEST]).size).toBe(4);
  expect(older).toEqual([digest]);
});
