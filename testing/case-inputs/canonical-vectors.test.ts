import { canonicalJson, parseStrictJson, sha256Text } from '@counterstamp/manifest-core';
import { expect, test } from 'vitest';
import { asCreateBody, caseAction } from './case-input.ts';

// Plain SHA-256 over the RFC 8785 form of a file's `action`, as published with the cases.
test.each([
  ['O02', '02d', '635c0f7b9e64df5b2fca24717585676a5ea3d27971e0fa96f985ca0ee1c393c3'],
  ['O03', '03b', 'c2131250a120dc8258e9ca2edb038ade521fb585f0a5a8d7ed862ef36a25f4f6'],
  ['O04', '04a', '7118580a8fa9f807dc84e81e7553c98f379b7b322f824a8814c0f434d78f6513'],
  ['O04', '04b', '7118580a8fa9f807dc84e81e7553c98f379b7b322f824a8814c0f434d78f6513'],
  ['O04', '04c', '9da1619fd0fc88b96df698c9281b060cebaed820b29b2680bca0e1655e4a7223'],
  ['O05', '05c', '158babb3d38cf8847bf9bbe70e7e2022bd5b97ceed149e737c910bb6f1603e47'],
  ['O12', '12a', 'e5471cb53ec867255607e94045aa9cf3be3351eee61b47e1df1d25906d924529'],
  ['O12', '12b', 'acf40943fa83f6fc8c8d7b7dd99e44fa2470407f7c5dd47655de475640ddea02'],
])('%s the canonical form of doc-%s has the published digest', (_, name, digest) => {
  expect(sha256Text(canonicalJson(caseAction(name)))).toBe(`sha256:${digest}`);
});

test('O02 a whole emoji stands in the canonical form as itself, not as an escape', () => {
  expect(canonicalJson(caseAction('02d'))).toContain('"note":"thanks 😀"');
});

test('O03 the sixteen digits of an order number stand in the canonical form unchanged', () => {
  expect(canonicalJson(caseAction('03b'))).toContain('"order_no":"9007199254740993"');
});

test('a file keeps what is peculiar about its bytes when it is mapped to our members', () => {
  const body = asCreateBody('04a', { request_id: 'case_1', order_id: 'order_1' });
  expect(body).toContain('"z": 1.0, "e": 1e2, "n": -0');
  expect(body).toContain('"requested_amount_minor": 1999');
  expect(parseStrictJson(body)).toMatchObject({
    ok: true,
    value: { request_id: 'case_1', input: { order_id: 'order_1' } },
  });
  expect(asCreateBody('01b', { request_id: 'case_1' })).toContain('"requested_amount_min\\u006fr": 199900');
  expect(asCreateBody('02b', { request_id: 'case_1' })).toContain('\\ude00\\ud83d');
});
