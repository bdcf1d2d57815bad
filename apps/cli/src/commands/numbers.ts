import { InvalidArgumentError } from 'commander';

/** Largest revision that an option takes; no run has come near. */
export const REVISION_MAX = 999_999_999;

/** A whole number between two bounds, for an option. */
export function wholeNumber(min: number, max: number): (text: string) => number {
  return (text) => {
    const value = Number(text);
    if (!/^\d{1,9}$/.test(text) || value < min || value > max) {
      throw new InvalidArgumentError(`It must be a whole number from ${min} to ${max}.`);
    }
    return value;
  };
}

const UNITS: Readonly<Record<string, number>> = { s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 };

/** `90s`, `15m`, `12h`, `30d` in milliseconds, for an option. */
export function duration(text: string): number {
  const [, digits, unit] = /^([1-9]\d{0,5})([smhd])$/.exec(text) ?? [];
  const factor = unit === undefined ? undefined : UNITS[unit];
  if (digits === undefined || factor === undefined) {
    throw new InvalidArgumentError('It must be a number with s, m, h or d, such as 30d.');
  }
  return Number(digits) * factor;
}
