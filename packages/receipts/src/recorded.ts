import type { ReceiptEvent, ReceiptPredicate } from './predicate.ts';

/** The members of a JSON object; none of anything else. */
export function members(value: unknown): Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value) ? { ...value } : {};
}

/** What an event recorded: the columns that it set, and what else was written with it. Nothing, if its payload is no JSON object. */
export function recordedBy(event: ReceiptEvent | undefined): {
  set: Record<string, unknown>;
  refs: Record<string, unknown>;
} {
  const { set, refs } = members(jsonIn(event?.payload ?? ''));
  return { set: members(set), refs: members(refs) };
}

/** The columns as all events together left them. */
export function folded(events: readonly ReceiptEvent[]): Record<string, unknown> {
  return Object.fromEntries(events.flatMap((event) => Object.entries(recordedBy(event).set)));
}

/** The event that fixed the action that stands. */
export function fixingEvent({ action, events }: ReceiptPredicate): ReceiptEvent | undefined {
  return events.find((event) => event.revision === action?.action_revision && event.trigger === 'action_fixed');
}

/** The events that sent something, oldest first. */
export function dispatches({ events }: ReceiptPredicate): ReceiptEvent[] {
  return events.filter((event) => event.to === 'executing');
}

export interface EvidenceRound {
  revision: number;
  evidence: readonly Record<string, unknown>[];
}

/** The evidence that events recorded, by round: round 1 first. */
export function evidenceRounds(events: readonly ReceiptEvent[]): EvidenceRound[] {
  return events.flatMap((event) => {
    const { evidence } = recordedBy(event).refs;
    return Array.isArray(evidence) ? [{ revision: event.revision, evidence: evidence.map(members) }] : [];
  });
}

export function jsonIn(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
