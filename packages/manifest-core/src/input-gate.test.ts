import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { z } from 'zod';
import { ExternalId } from './ids.ts';
import { parseStrictJson, parseWith } from './input-gate.ts';
import { MinorUnits } from './money.ts';

const refusal = (text: string) => {
  const parsed = parseStrictJson(text);
  return parsed.ok ? undefined : [parsed.refusal.code, parsed.refusal.path];
};

describe('the raw gate', () => {
  test.each([
    [
      'a member written twice',
      '{"action":{"amount_minor":1999,"amount_minor":199900}}',
      'duplicate_member',
      '/action/amount_minor',
    ],
    [
      'a member written twice, once with an escape',
      '{"action":{"amount_minor":1999,"am\\u006funt_minor":199900}}',
      'duplicate_member',
      '/action/amount_minor',
    ],
    ['a lone high surrogate', '{"note":"\\ud83d"}', 'text_not_well_formed', '/note'],
    ['a pair in the wrong order', '{"note":"\\ude00\\ud83d"}', 'text_not_well_formed', '/note'],
    ['a lone surrogate in a member name', '{"meta":{"x\\ud800":1}}', 'text_not_well_formed', '/meta'],
    ['U+0000', '{"note":"a\\u0000b"}', 'text_has_nul', '/note'],
    ['an integer beyond 2^53 − 1', '{"meta":{"order_no":9007199254740993}}', 'number_not_safe', '/meta/order_no'],
    ['1e21', '{"amount_minor":1e21}', 'number_not_safe', '/amount_minor'],
    ['a member named __proto__', '{"action":{"__proto__":{"approved":true}}}', 'unknown_member', '/action/__proto__'],
    ['a slash and a tilde in a name', '{"a/b":{"c~d":"\\u0000"}}', 'text_has_nul', '/a~1b/c~0d'],
    ['nesting beyond the limit', `${'['.repeat(40)}${']'.repeat(40)}`, 'nesting_too_deep', ''],
    ['a trailing comma', '{"a":1,}', 'json_syntax', ''],
    ['a comment', '{"a":1 /* one */}', 'json_syntax', ''],
    ['nothing', '', 'json_syntax', ''],
    ['two values', '{} {}', 'json_syntax', ''],
    ['NaN', '{"a":NaN}', 'json_syntax', ''],
  ])('refuses %s', (_, text, code, path) => {
    expect(refusal(text)).toEqual([code, path]);
  });

  test.each([
    ['a whole emoji', '{"note":"😀"}'],
    ['an escaped pair', '{"note":"\\ud83d\\ude00"}'],
    ['2^53 − 1', '{"n":9007199254740991}'],
    ['a fraction, which is the schema’s question', '{"n":1998.9999999999998}'],
    ['members named constructor and toString', '{"constructor":1,"toString":2}'],
    ['braces in a string', `{"a":"${'{'.repeat(50)}"}`],
  ])('accepts %s', (_, text) => {
    expect(refusal(text)).toBeUndefined();
    expect(parseStrictJson(text)).toEqual({ ok: true, value: JSON.parse(text) });
  });

  test('never throws, and what it accepts is what JSON.parse says', () => {
    fc.assert(
      fc.property(fc.oneof(fc.json(), fc.string({ unit: 'binary' })), (text) => {
        const parsed = parseStrictJson(text);
        if (parsed.ok) expect(parsed.value).toEqual(JSON.parse(text));
      }),
      { numRuns: 2_000 },
    );
  });

  test('a billion brackets cost no stack', () => {
    expect(refusal('['.repeat(200_000))).toEqual(['json_syntax', '']);
    expect(refusal(`${'['.repeat(5_000)}${']'.repeat(5_000)}`)).toEqual(['nesting_too_deep', '']);
  });
});

describe('a schema’s faults', () => {
  const schema = z.strictObject({ id: ExternalId, inner: z.strictObject({ amount_minor: MinorUnits }) });
  test.each([
    ['a missing amount', { id: 'a', inner: {} }, 'amount_missing', '/inner/amount_minor'],
    ['a null amount', { id: 'a', inner: { amount_minor: null } }, 'amount_missing', '/inner/amount_minor'],
    ['an empty amount', { id: 'a', inner: { amount_minor: '' } }, 'amount_missing', '/inner/amount_minor'],
    ['an amount as text', { id: 'a', inner: { amount_minor: '19.99' } }, 'amount_not_integer', '/inner/amount_minor'],
    [
      'a fraction',
      { id: 'a', inner: { amount_minor: 1998.9999999999998 } },
      'amount_not_integer',
      '/inner/amount_minor',
    ],
    ['zero', { id: 'a', inner: { amount_minor: 0 } }, 'amount_not_positive', '/inner/amount_minor'],
    ['a negative amount', { id: 'a', inner: { amount_minor: -1999 } }, 'amount_not_positive', '/inner/amount_minor'],
    ['an unknown member', { id: 'a', inner: { amount_minor: 1, amount: 2 } }, 'unknown_member', '/inner/amount'],
    ['a missing member', { inner: { amount_minor: 1 } }, 'member_missing', '/id'],
    ['a Cyrillic letter in an identifier', { id: 'pаy', inner: { amount_minor: 1 } }, 'identifier_charset', '/id'],
    ['a no-break space in an identifier', { id: 'pay\u00a0', inner: { amount_minor: 1 } }, 'identifier_charset', '/id'],
    ['a blank identifier', { id: '', inner: { amount_minor: 1 } }, 'identifier_charset', '/id'],
    ['a long identifier', { id: 'a'.repeat(129), inner: { amount_minor: 1 } }, 'identifier_too_long', '/id'],
    ['text instead of an object', { id: 'a', inner: 'x' }, 'value_invalid', '/inner'],
  ])('%s is refused by code and place', (_, value, code, path) => {
    expect(parseWith(schema, value, '/in')).toMatchObject({ ok: false, refusal: { code, path: `/in${path}` } });
  });
});

describe('an integer', () => {
  const schema = z.strictObject({
    amount_minor: MinorUnits.optional(),
    life_ms: z.int().positive().optional(),
    list: z.array(z.strictObject({ n: z.int() })).optional(),
    rate: z.number().optional(),
    free: z.record(z.string(), z.json()).optional(),
  });
  const judge = (text: string) => {
    const parsed = parseStrictJson(text);
    const checked = parsed.ok ? parseWith(schema, parsed.value, '/in') : parsed;
    return checked.ok ? 'accepted' : [checked.refusal.code, checked.refusal.path];
  };

  test.each([
    ['with an exponent, as an amount', '{"amount_minor":10e2}', 'amount_not_integer', '/in/amount_minor'],
    ['with a capital exponent', '{"amount_minor":1E3}', 'amount_not_integer', '/in/amount_minor'],
    ['with a fraction that its exponent cancels', '{"amount_minor":19.99e2}', 'amount_not_integer', '/in/amount_minor'],
    ['with an exponent that takes zeros away', '{"amount_minor":1000e-2}', 'amount_not_integer', '/in/amount_minor'],
    ['with an exponent of nothing', '{"amount_minor":1000e0}', 'amount_not_integer', '/in/amount_minor'],
    ['with an exponent, elsewhere', '{"life_ms":5e3}', 'number_not_integer', '/in/life_ms'],
    ['with an exponent, in a list', '{"list":[{"n":1},{"n":2e0}]}', 'number_not_integer', '/in/list/1/n'],
    ['as a fraction', '{"life_ms":1.5}', 'number_not_integer', '/in/life_ms'],
    ['with an exponent beyond 2^53 − 1', '{"amount_minor":1e16}', 'number_not_safe', '/amount_minor'],
    [
      'with an exponent in one place of several',
      '{"free":{"n":1e3},"life_ms":1e3}',
      'number_not_integer',
      '/in/life_ms',
    ],
  ])('%s is refused by code and place', (_, text, code, path) => {
    expect(judge(text)).toEqual([code, path]);
  });

  test.each([
    ['in digits', '{"amount_minor":1000,"life_ms":5000}'],
    ['with a fraction of nothing, which is the same number to everybody', '{"amount_minor":1999.0}'],
    ['where any number is free', '{"free":{"zeta":1,"bb":{"z":1.0,"e":1e2,"n":-0,"a":[3e0]}}}'],
    ['where a fraction would do as well', '{"rate":1e3}'],
    ['beside text that looks like one', '{"free":{"text":"1e3"},"amount_minor":1}'],
  ])('%s is accepted', (_, text) => {
    expect(judge(text)).toBe('accepted');
  });

  test('is still told from its exponent when one schema hands its part to the next', () => {
    const outer = z.strictObject({ input: z.record(z.string(), z.json()) });
    const inner = z.strictObject({ amount_minor: MinorUnits, metadata: z.record(z.string(), z.json()) });
    const checked = (amount: string) => {
      const parsed = parseStrictJson(`{"input":{"amount_minor":${amount},"metadata":{"n":1e3,"deep":[{"n":2e2}]}}}`);
      if (!parsed.ok) return parsed;
      const whole = parseWith(outer, parsed.value);
      return whole.ok ? parseWith(inner, whole.value.input, '/input') : whole;
    };
    expect(checked('1000')).toMatchObject({ ok: true, value: { metadata: { n: 1000, deep: [{ n: 200 }] } } });
    expect(checked('1e3')).toMatchObject({
      ok: false,
      refusal: { code: 'amount_not_integer', path: '/input/amount_minor' },
    });
  });
});
