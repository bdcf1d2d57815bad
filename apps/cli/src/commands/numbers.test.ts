import { InvalidArgumentError } from 'commander';
import { expect, test } from 'vitest';
import { duration, wholeNumber } from './numbers.ts';

test.each([
  ['90s', 90_000],
  ['15m', 900_000],
  ['12h', 43_200_000],
  ['30d', 2_592_000_000],
])('%s is %i milliseconds', (text, ms) => {
  expect(duration(text)).toBe(ms);
});

test.each(['', '0d', '30', 'd', '-1d', '1.5h', '1e3s', '30 d', '1w'])('%j is no duration', (text) => {
  expect(() => duration(text)).toThrow(InvalidArgumentError);
});

test('a whole number keeps to its bounds and its digits', () => {
  const port = wholeNumber(0, 65_535);
  expect(['0', '8080', '65535'].map((text) => port(text))).toEqual([0, 8_080, 65_535]);
  for (const text of ['', '-1', '65536', '1e3', '0x10', ' 1', '8.5'])
    expect(() => port(text)).toThrow(InvalidArgumentError);
});
