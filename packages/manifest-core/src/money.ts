import { z } from 'zod';

/**
 * Money in ISO 4217 minor units (cents, yen): a JSON integer 1…2^53 − 1, bigint in SQL; never a float.
 * Issues carry the stable code `amount_missing`, `amount_not_integer` or `amount_not_positive` as their message.
 */
export const MinorUnits = z
  .int({
    error: ({ input }) =>
      input === undefined || input === null || input === '' ? 'amount_missing' : 'amount_not_integer',
  })
  .positive('amount_not_positive')
  .brand<'MinorUnits'>();
export type MinorUnits = z.infer<typeof MinorUnits>;

/** Three capital letters; whether a connector carries the currency is its contract's question. */
export const CurrencyCode = z
  .string({ error: ({ input }) => (input === undefined ? 'currency_missing' : 'currency_invalid') })
  .regex(/^[A-Z]{3}$/, 'currency_invalid');

/** Exponents that are not 2. Source: ISO 4217 as listed in design/connectors.md section 5; Intl's digits are not ISO's. */
const EXPONENTS: Readonly<Record<string, number>> = Object.fromEntries([
  ...'BIF CLP DJF GNF ISK JPY KMF KRW PYG RWF UGX UYI VND VUV XAF XOF XPF'.split(' ').map((code) => [code, 0]),
  ...'BHD IQD JOD KWD LYD OMR TND'.split(' ').map((code) => [code, 3]),
  ...'CLF UYW'.split(' ').map((code) => [code, 4]),
]);

/** Decimal places of a currency's minor unit. */
export function currencyExponent(currency: string): number {
  return EXPONENTS[currency] ?? 2;
}

/**
 * `JPY 5,800`, `USD 1,999.00`: exact digits from the minor units, by string work alone; no float and no locale takes part.
 * @throws {RangeError} when `amountMinor` is not a non-negative safe integer.
 */
export function formatMoney(amountMinor: number, currency: string): string {
  if (!Number.isSafeInteger(amountMinor) || amountMinor < 0)
    throw new RangeError(`not an amount in minor units: ${amountMinor}`);
  const exponent = currencyExponent(currency);
  const digits = String(amountMinor).padStart(exponent + 1, '0');
  const whole = digits.slice(0, digits.length - exponent).replace(/\B(?=(\d{3})+$)/g, ',');
  return `${currency} ${whole}${exponent === 0 ? '' : `.${digits.slice(digits.length - exponent)}`}`;
}
