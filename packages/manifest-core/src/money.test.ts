import { expect, test } from 'vitest';
import { currencyExponent, formatMoney } from './money.ts';

test.each([
  [5800, 'JPY', 'JPY 5,800'],
  [199900, 'USD', 'USD 1,999.00'],
  [1, 'USD', 'USD 0.01'],
  [42, 'EUR', 'EUR 0.42'],
  [1234567, 'KWD', 'KWD 1,234.567'],
  [12345, 'CLF', 'CLF 1.2345'],
  [Number.MAX_SAFE_INTEGER, 'USD', 'USD 90,071,992,547,409.91'],
  [100, 'HUF', 'HUF 1.00'],
])('%i minor units of %s are %s', (amount, currency, text) => {
  expect(formatMoney(amount, currency)).toBe(text);
});

test('what is no amount in minor units is not formatted', () => {
  for (const amount of [-1, 0.5, Number.NaN, 2 ** 53]) expect(() => formatMoney(amount, 'USD')).toThrow(RangeError);
});

test('exponents are ISO 4217’s', () => {
  expect(['USD', 'JPY', 'ISK', 'BHD', 'UYW', 'HUF', 'IDR'].map(currencyExponent)).toEqual([2, 0, 0, 3, 4, 2, 2]);
});
