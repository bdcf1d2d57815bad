import { type Durations, epochMs, type Manifest, settleMs } from '@counterstamp/manifest-core';
import type { Instance } from '@counterstamp/manifest-store';

/** Executors that may have sent for a run in doubt; none where nothing is in doubt. */
export function sendersInDoubt({ state, attempts }: Pick<Manifest, 'state' | 'attempts'>): Set<string> {
  if (state !== 'needs_reconciliation') return new Set();
  return new Set(attempts.filter((attempt) => attempt.status !== 'not_sent').map((attempt) => attempt.instance_id));
}

/**
 * From when on an effect in doubt that cannot be seen counts as absent (protocol rules 17 and 20): the last call deadline of the attempts that
 * may have left, or the later recorded end among their executors (`instances`), + settle; to the microsecond as the database counts. Null
 * where nothing is in doubt, or where no attempt may have left.
 */
export function settlesAt(
  manifest: Pick<Manifest, 'state' | 'attempts'>,
  instances: readonly Pick<Instance, 'instance_id' | 'ended_at'>[],
  durations: Durations,
  visibilityMs: number,
): string | null {
  const senders = sendersInDoubt(manifest);
  if (senders.size === 0) return null;
  const deadlines = manifest.attempts
    .filter((attempt) => attempt.status !== 'not_sent')
    .map((attempt) => attempt.call_deadline);
  const ends = instances.flatMap((one) =>
    senders.has(one.instance_id) && one.ended_at !== null ? [one.ended_at] : [],
  );
  // One format and one length: the order of the texts is that of the instants.
  const [last = ''] = [...deadlines, ...ends].sort().reverse();
  const microseconds = last.slice(-4, -1);
  return new Date(epochMs(last) + settleMs(durations, visibilityMs)).toISOString().replace('Z', `${microseconds}Z`);
}
