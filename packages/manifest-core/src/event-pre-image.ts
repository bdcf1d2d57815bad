import { sha256Text } from './digest.ts';
import type { Digest } from './ids.ts';

/** One event of a run's history as it is published: everything that its hash commits to. */
export interface EventRecord {
  run_id: string;
  revision: number;
  /** `null` for the first event. */
  from: string | null;
  to: string;
  trigger: string;
  /** `<service>/<instance_id>`, or `principal/<principal_id>`. */
  actor: string;
  /** Microseconds since the epoch, UTC, as decimal digits: beyond what a JSON number should be trusted with. */
  at_us: string;
  /** Digest of the stored payload text. */
  payload_digest: string;
  /** Hash of the event before; `null` for the first. */
  previous_hash: string | null;
}

/**
 * The bytes that an event's hash covers: UTF-8 lines joined by `\n`, no closing newline; an absent value is written `-`.
 * The same format is built in SQL (`cs.event_pre_image`); a test compares both.
 */
export function eventPreImage(event: EventRecord): string {
  return [
    'cs.event.v1',
    event.run_id,
    String(event.revision),
    event.from ?? '-',
    event.to,
    event.trigger,
    event.actor,
    event.at_us,
    event.payload_digest,
    event.previous_hash ?? '-',
  ].join('\n');
}

export function eventHash(event: EventRecord): Digest {
  return sha256Text(eventPreImage(event));
}

export interface StoredEvent extends EventRecord {
  payload: string;
  hash: string;
}

export type ChainFault =
  | { kind: 'payload_changed'; revision: number }
  | { kind: 'event_changed'; revision: number }
  | { kind: 'link_broken'; revision: number }
  | { kind: 'revision_gap'; expected: number; found: number }
  | { kind: 'head_differs'; expected: string | null; found: string | null };

/**
 * Re-computes a run's chain from its stored events, oldest first, and names every fault.
 * `head` is the hash that the run's row carries. What a chain cannot show: events cut off the end together with a rewritten head.
 */
export function verifyChain(events: readonly StoredEvent[], head: string | null): ChainFault[] {
  const faults: ChainFault[] = [];
  let previous: string | null = null;
  let expected = 1;
  for (const event of events) {
    if (event.revision !== expected) faults.push({ kind: 'revision_gap', expected, found: event.revision });
    if (sha256Text(event.payload) !== event.payload_digest)
      faults.push({ kind: 'payload_changed', revision: event.revision });
    if (event.previous_hash !== previous) faults.push({ kind: 'link_broken', revision: event.revision });
    if (eventHash(event) !== event.hash) faults.push({ kind: 'event_changed', revision: event.revision });
    previous = event.hash;
    expected = event.revision + 1;
  }
  if (previous !== head) faults.push({ kind: 'head_differs', expected: head, found: previous });
  return faults;
}
