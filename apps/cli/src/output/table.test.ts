import { expect, test } from 'vitest';
import { printable, table } from './table.ts';

test('columns are aligned, without frames and without trailing spaces', () => {
  expect(
    table(
      ['A', 'LONG'],
      [
        ['1', 'x'],
        ['22', 'yy'],
      ],
    ),
  ).toBe('A   LONG\n1   x\n22  yy');
});

test.each([
  ['plain', 'plain'],
  ['naïve 愛 😀', 'naïve 愛 😀'],
  ['red \u001b[31m', 'red \\u{1b}[31m'],
  ['two\nlines', 'two\\u{a}lines'],
  ['abc\u202edef', 'abc\\u{202e}def'],
  ['zero\u200bwidth', 'zero\\u{200b}width'],
])('%j cannot deceive a terminal', (text, shown) => {
  expect(printable(text)).toBe(shown);
});
