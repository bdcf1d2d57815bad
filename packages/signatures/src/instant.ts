import { z } from 'zod';

/** UTC, to the second or finer, at most to the microsecond, as the database writes it: `2026-11-30T12:00:00.000000Z`. */
export const Instant = z.iso
  .datetime()
  .regex(/^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(?:\.\d{1,6})?Z$/, 'not an instant in UTC');

/** Whether one instant is before another, to the microsecond: a Date would cut three digits off. */
export function isBefore(left: string, right: string): boolean {
  return sortable(left) < sortable(right);
}

/** The same instant with six digits of fraction: such texts sort as their instants do. */
function sortable(instant: string): string {
  const [seconds = '', fraction = ''] = instant.replace('Z', '').split('.');
  return `${seconds}.${fraction.padEnd(6, '0')}`;
}
