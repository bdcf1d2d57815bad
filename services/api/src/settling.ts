import { type Durations, epochMs, type Manifest, settleMs } from '@counterstamp/manifest-core';

/**
 * From when on an effect in doubt that cannot be seen counts as absent (protocol rule 17): the last call deadline of the attempts that may
 * have left + settle, to the microsecond as the database counts. Null where nothing is in doubt, or where no attempt may have left.
 */
export function settlesAt(
  { state, attempts }: Pick<Manifest, 'state' | 'attempts'>,
  durations: Durations,
  visibilityMs: number,
): string | null {
  if (state !== 'needs_reconciliation') return null;
  // One format and one length: the order of the texts is that of the instants.
  const [last] = attempts
    .filter((attempt) => attempt.status !== 'not_sent')
    .map((attempt) => attempt.call_deadline)
    .sort()
    .reverse();
  if (last === undefined) return null;
  const microseconds = last.slice(-4, -1);
  return new Date(epochMs(last) + settleMs(durations, visibilityMs)).toISOString().replace('Z', `${microseconds}Z`);
}
