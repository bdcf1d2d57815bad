import { createHash } from 'node:crypto';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { idempotencyKey } from './action-identity.ts';
import { canonicalJson, type JsonValue } from './canonical-json.ts';
import { DOMAINS, digestOf } from './digest.ts';
import type { Digest } from './ids.ts';

const sha256 = (text: string) => createHash('sha256').update(text).digest('hex');
/** JSON values that have a canonical form: no lone surrogates, no negative zero spelled differently. */
const json = fc
  .jsonValue({ noUnicodeString: false, maxDepth: 4 })
  .map((value) => JSON.parse(JSON.stringify(value)) as JsonValue)
  .filter((value) => isWellFormed(value));
function isWellFormed(value: JsonValue): boolean {
  return JSON.stringify(value).isWellFormed() && !/\\ud[89a-f]/i.test(JSON.stringify(value));
}
/** The same value with its members in another order. */
function shuffled(value: JsonValue): JsonValue {
  if (Array.isArray(value)) return value.map(shuffled);
  if (value === null || typeof value !== 'object') return value;
  return Object.fromEntries(
    Object.entries(value)
      .reverse()
      .map(([name, member]) => [name, shuffled(member)]),
  );
}

describe('canonical bytes', () => {
  test('do not depend on the order of members', () => {
    fc.assert(fc.property(json, (value) => canonicalJson(shuffled(value)) === canonicalJson(value)));
  });
  test('say the same value, and are their own canonical form', () => {
    fc.assert(
      fc.property(json, (value) => {
        const text = canonicalJson(value);
        expect(JSON.parse(text)).toEqual(value);
        expect(canonicalJson(JSON.parse(text) as JsonValue)).toBe(text);
      }),
    );
  });
  test('do not exist for half a surrogate pair', () => {
    expect(() => canonicalJson({ note: '\ud800' })).toThrow();
    expect(() => canonicalJson({ '\udc00': 1 })).toThrow();
  });
  test.each([
    [
      'number spellings and member order',
      '{"b":100,"a":{"y":1,"x":[0,1.5]}}',
      { a: { x: [-0, 1.5], y: 1 }, b: 1e2 },
      '{"a":{"x":[0,1.5],"y":1},"b":100}',
    ],
  ])('settle %s', (_, text, value, expected) => {
    expect(canonicalJson(JSON.parse(text) as JsonValue)).toBe(expected);
    expect(canonicalJson(value as JsonValue)).toBe(expected);
  });
});

describe('digests', () => {
  test('are SHA-256 over the tag, a zero byte and the bytes', () => {
    expect(digestOf('cs.action.v1', '{"a":1}')).toBe(`sha256:${sha256('cs.action.v1\0{"a":1}')}`);
  });
  test('of the same bytes differ between domains', () => {
    expect(new Set(DOMAINS.map((domain) => digestOf(domain, 'same'))).size).toBe(DOMAINS.length);
  });
});

describe('the idempotency key', () => {
  const digest = digestOf('cs.action.v1', '{}');
  test('is a function of run, action revision and action digest, and of all three', () => {
    const key = idempotencyKey('run_1', 6, digest);
    expect(idempotencyKey('run_1', 6, digest)).toBe(key);
    const others = [
      idempotencyKey('run_2', 6, digest),
      idempotencyKey('run_1', 7, digest),
      idempotencyKey('run_1', 6, digestOf('cs.action.v1', '[]') as Digest),
    ];
    expect(new Set([key, ...others]).size).toBe(4);
  });
  test('fits every provider and holds nothing personal', () => {
    expect(idempotencyKey('run_1', 6, digest)).toMatch(/^cs-[0-9a-f]{64}$/);
  });
});
