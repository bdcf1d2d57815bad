import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { escapeText, escapeWord, keepText, unescapeText } from './evidence-text.ts';

/** Anything that a JSON string can hold: NUL, halves of pairs, the escape's own brackets. */
const anything = fc.oneof(
  fc.string({ unit: 'binary' }),
  fc.string({ unit: fc.constantFrom('⟦', '⟧', 'U+0000', '\0', '\ud83d', '\ude00', '\u001b', 'a', '😀', '⟦U+27E6⟧') }),
  fc.uint16Array({ maxLength: 20 }).map((units) => String.fromCharCode(...units)),
);

describe('text from outside', () => {
  test.each([
    ['U+0000', 'a\0b', 'a⟦U+0000⟧b'],
    ['a lone high surrogate', 'thanks \ud83d', 'thanks ⟦U+D83D⟧'],
    ['a pair in the wrong order', '\ude00\ud83d', '⟦U+DE00⟧⟦U+D83D⟧'],
    ['what would steer a terminal', '\u001b[2Jgone\r', '⟦U+001B⟧[2Jgone⟦U+000D⟧'],
    ['the escape itself', '⟦U+0000⟧', '⟦U+27E6⟧U+0000⟧'],
  ])('shows %s as a visible escape', (_, text, escaped) => {
    expect(escapeText(text)).toBe(escaped);
    expect(unescapeText(escaped)).toBe(text);
  });

  test('reads back exactly, whatever it was', () => {
    fc.assert(
      fc.property(anything, (text) => {
        expect(unescapeText(escapeText(text))).toBe(text);
        expect(unescapeText(escapeWord(text))).toBe(text);
      }),
      { numRuns: 5_000 },
    );
  });

  test('is always something that Postgres can hold', () => {
    fc.assert(
      fc.property(anything, fc.nat(30), (text, max) => {
        for (const kept of [escapeText(text), escapeWord(text), keepText(text, max)]) {
          expect(kept.isWellFormed()).toBe(true);
          expect(kept).not.toContain('\0');
        }
        expect(escapeWord(text)).toMatch(/^[\x20-\x7e⟦⟧]*$/);
      }),
      { numRuns: 5_000 },
    );
  });

  test('stays as it is when it is ordinary', () => {
    const ordinary = fc
      .string({ unit: 'binary' })
      .filter((text) => text.isWellFormed() && !/\p{Cc}/u.test(text) && !text.includes('⟦'));
    fc.assert(fc.property(ordinary, (text) => escapeText(text) === text));
    for (const text of ['Größe 42, 12 €', 'עברית', '👨‍👩‍👧 zwei\nZeilen\t', '']) expect(escapeText(text)).toBe(text);
  });

  test('that is a word is printable ASCII', () => {
    expect(escapeWord('requires_action')).toBe('requires_action');
    expect(escapeWord('suсceeded')).toBe('su⟦U+0441⟧ceeded');
  });

  test.each([
    ['what fits', 'abcd', 4, 'abcd'],
    ['what does not, and says how much is missing', 'abcdefgh', 4, 'abcd⟦+4⟧'],
    ['no half of a pair', 'abc😀d', 4, 'abc⟦+3⟧'],
    ['a half that was one before', 'abc\ud83dxyz', 4, 'abc⟦U+D83D⟧⟦+3⟧'],
  ])('is cut visibly: keeps %s', (_, text, max, kept) => {
    expect(keepText(text, max)).toBe(kept);
  });
});
