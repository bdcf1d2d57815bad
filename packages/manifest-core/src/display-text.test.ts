import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { displayText } from './display-text.ts';

/** What a text was, read off what is shown of it: only possible while no two texts are shown as one. */
function readBack(shown: string): string {
  return shown
    .replaceAll('⏎\n', '\n')
    .replace(/⟦U\+([0-9A-F]{4,6})⟧/g, (_, hex: string) => String.fromCodePoint(Number.parseInt(hex, 16)));
}

/** One of each kind of character that the rules tell apart, and what an escape is made of. */
const PARTS = [
  ...Array.from('aZ 0.-\n\t⟦⟧⏎U+éжωא文カ한\u0301\u0338\u202e\u200b\u00a0\u0661\u2800\ufe0f😀'),
  '⟦U+202E⟧',
  '⏎\n',
  '\ud800',
  '\udfff',
  '\u{1d400}',
];
const anything = fc.oneof(
  fc.string({ unit: 'binary' }),
  fc.string({ unit: fc.constantFrom(...PARTS) }),
  fc.uint16Array({ maxLength: 20 }).map((units) => String.fromCharCode(...units)),
);

describe('a free text that an approver sees', () => {
  test.each([
    ['a right-to-left override', 'to \u202emoc.elpmaxe', 'to ⟦U+202E⟧moc.elpmaxe'],
    ['a bidirectional isolate', '\u2066ok\u2069', '⟦U+2066⟧ok⟦U+2069⟧'],
    ['a direction mark', 'a\u200fb\u061c', 'a⟦U+200F⟧b⟦U+061C⟧'],
    ['a zero-width space', '19.99\u200b USD', '19.99⟦U+200B⟧ USD'],
    ['zero-width joiners', 'a\u200c\u200d\u2060\ufeff', 'a⟦U+200C⟧⟦U+200D⟧⟦U+2060⟧⟦U+FEFF⟧'],
    ['a soft hyphen', 'pay\u00adment', 'pay⟦U+00AD⟧ment'],
    ['a variation selector', '❤\ufe0f \u{e0100}', '❤⟦U+FE0F⟧ ⟦U+E0100⟧'],
    ['a tag character', 'a\u{e0041}', 'a⟦U+E0041⟧'],
    ['a combining grapheme joiner', 'a\u034f', 'a⟦U+034F⟧'],
    ['Hangul fillers', '\u115f\u1160\u3164\uffa0', '⟦U+115F⟧⟦U+1160⟧⟦U+3164⟧⟦U+FFA0⟧'],
    ['a Braille blank', 'a\u2800b', 'a⟦U+2800⟧b'],
    ['a no-break space', 'a\u00a0b\u202f', 'a⟦U+00A0⟧b⟦U+202F⟧'],
    ['an ideographic space', 'a\u3000b', 'a⟦U+3000⟧b'],
    ['separators of lines and paragraphs', 'a\u2028b\u2029', 'a⟦U+2028⟧b⟦U+2029⟧'],
    ['control characters', 'a\0\t\r\u001b[2J\u007f\u0085', 'a⟦U+0000⟧⟦U+0009⟧⟦U+000D⟧⟦U+001B⟧[2J⟦U+007F⟧⟦U+0085⟧'],
    ['half of a surrogate pair', '\ud83d!', '⟦U+D83D⟧!'],
    ['a private character', '\ue000 \u{f0000}', '⟦U+E000⟧ ⟦U+F0000⟧'],
    ['a code point that is no character', '\uffff\u{10ffff}', '⟦U+FFFF⟧⟦U+10FFFF⟧'],
    ['digits that are not 0-9', '\u0661\u0967\uff11\u{1d7d9}', '⟦U+0661⟧⟦U+0967⟧⟦U+FF11⟧⟦U+1D7D9⟧'],
    ['numerals', 'x² ½ Ⅳ ①', 'x⟦U+00B2⟧ ⟦U+00BD⟧ ⟦U+2163⟧ ⟦U+2460⟧'],
    ['forms of plainer letters', 'Ａ \u{1d400} ﬁ', '⟦U+FF21⟧ ⟦U+1D400⟧ ⟦U+FB01⟧'],
    ['signs that are canonically others', '\u212a \u037e', '⟦U+212A⟧ ⟦U+037E⟧'],
    ['forms of plainer punctuation', '19．99 ․', '19⟦U+FF0E⟧99 ⟦U+2024⟧'],
    ['Latin letters of phoneticians', '\u0261oo\u0261le', '⟦U+0261⟧oo⟦U+0261⟧le'],
    ['marks piled on a letter', 'e\u0301\u0302\u0303\u0304\u0305', 'e\u0301\u0302\u0303⟦U+0304⟧⟦U+0305⟧'],
    ['a mark on no letter', '\u0301 1\u0308', '⟦U+0301⟧ 1⟦U+0308⟧'],
    ['a mark on an escape', '\u0430b\u0301bb \ud800\u0301', '⟦U+0430⟧b\u0301bb ⟦U+D800⟧⟦U+0301⟧'],
    ['marks that strike through', 'no\u0336 \u20e0', 'no⟦U+0336⟧ ⟦U+20E0⟧'],
    ['a Cyrillic letter in a Latin word', 'p\u0430ypal', 'p⟦U+0430⟧ypal'],
    ['a Greek letter in a Latin word', '\u0391mazon', '⟦U+0391⟧mazon'],
    ['a Latin letter in a Cyrillic word', 'Пpивет', 'П⟦U+0070⟧ивет'],
    ['the other half of an even mixture', '\u0430a', '⟦U+0430⟧a'],
    ['a foreign letter behind digits and connectors', "o'\u043arder_1\u043e0", "o'⟦U+043A⟧rder_1⟦U+043E⟧0"],
    ['Cyrillic in East Asian text', '日本ж', '日本⟦U+0436⟧'],
    ['an escape of the text’s own', '⟦U+202E⟧', '⟦U+27E6⟧U+202E⟦U+27E7⟧'],
    ['lookalikes of our notation', '〚〛⏎', '⟦U+301A⟧⟦U+301B⟧⟦U+23CE⟧'],
    ['the joiners of an emoji', '👩\u200d👧', '👩⟦U+200D⟧👧'],
  ])('shows %s as a visible escape, and says so', (_, text, value) => {
    expect(displayText(text)).toEqual({ value, flagged: true });
    expect(readBack(value)).toBe(text);
  });

  test.each([
    [
      'plain text with every printable ASCII character',
      String.fromCharCode(...Array.from({ length: 95 }, (_, n) => n + 32)),
    ],
    ['Western and Central European words', 'naïve Straße ŁÓDŹ Đặng İstanbul'],
    ['typographic punctuation', '“don’t” – €5 … £3 •'],
    ['whole Cyrillic, Greek and Armenian words beside Latin ones', 'Привет αβγ բարի hello'],
    ['East Asian text, with Latin words in it', '日本語のTシャツ，한국어 中文（ok）'],
    ['Arabic and Hebrew with their points', 'مُحَمَّد שָׁלוֹם'],
    ['Indic and Thai vowel signs', 'हिन्दी ภาษาไทยที่นี่'],
    ['an emoji by itself', 'thanks 😀'],
    ['nothing', ''],
  ])('stays as it is: %s', (_, text) => {
    expect(displayText(text)).toEqual({ value: text, flagged: false });
  });

  test('keeps its lines, each break visibly its own: the next line is none of ours', () => {
    expect(displayText('first\nAmount: USD 1.00')).toEqual({ value: 'first⏎\nAmount: USD 1.00', flagged: false });
  });

  test('is shown to its end, however long', () => {
    const { value } = displayText(`${'Routine refund. '.repeat(10_000)}TAIL`);
    expect(value.endsWith('TAIL')).toBe(true);
  });

  test('never shows two texts as one', () => {
    fc.assert(
      fc.property(anything, (text) => {
        expect(readBack(displayText(text).value)).toBe(text);
      }),
      { numRuns: 5_000 },
    );
  });

  test('never shows a character that hides, reorders or passes for a digit, and is flagged when something was escaped', () => {
    const hides = /[\p{C}\p{Default_Ignorable_Code_Point}\u2800]|(?! )\p{Z}|(?![0-9])\p{N}|\p{M}{4}/u;
    fc.assert(
      fc.property(anything, (text) => {
        const { value, flagged } = displayText(text);
        expect(value.replaceAll('⏎\n', '')).not.toMatch(hides);
        expect(flagged).toBe(value !== text.replaceAll('\n', '⏎\n'));
      }),
      { numRuns: 5_000 },
    );
  });
});
