import { z } from 'zod';

/** UTC with microseconds, as the database writes it. In this one spelling earlier instants are smaller texts. */
export const Instant = z
  .string()
  .regex(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$/)
  .refine((text) => !Number.isNaN(Date.parse(text)));

/** The instant of so many microseconds since the epoch, given in decimal digits: exact, where a number may not be. */
export function instantOfMicroseconds(digits: string): string {
  const padded = digits.padStart(7, '0');
  const seconds = new Date(Number(padded.slice(0, -6)) * 1_000).toISOString().slice(0, 19);
  return `${seconds}.${padded.slice(-6)}Z`;
}

/** The same instant in the spelling of `Instant`, from that of `Date.toISOString`. */
export function withMicroseconds(isoMilliseconds: string): string {
  return isoMilliseconds.replace('Z', '000Z');
}
