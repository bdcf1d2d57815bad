import type { StoredEvent } from '@counterstamp/manifest-core';
import type { Snapshot, Violation } from './check-history.ts';
import { microseconds, payloadOf, type RunHistory, record } from './history.ts';
import { attributeLedger, type LedgerShare } from './ledger.ts';

/** One moment of a run. */
export interface TimelineEntry {
  /** ISO 8601 in UTC with microseconds. */
  at: string;
  /** Whose record it is. */
  source: 'run' | 'attempt' | 'evidence' | 'provider';
  text: string;
}

/**
 * What happened to a run, in the order of time: its events, its attempts from start to outcome, outcomes that came late, and what arrived at
 * the provider. For a person who reads a violation.
 * @param share the run's part of the ledger; null without one.
 */
export function timeline(history: RunHistory, share: LedgerShare | null): TimelineEntry[] {
  const entries: TimelineEntry[] = [
    ...history.events.map((event) => ({
      at: instantOf(Number(event.at_us)),
      source: 'run' as const,
      text: eventText(event),
    })),
    ...history.attempts.flatMap((attempt) => [
      {
        at: instant(attempt.started_at),
        source: 'attempt' as const,
        text: `attempt ${attempt.n} started by ${attempt.instance_id}, may call until ${attempt.call_deadline}`,
      },
      ...(attempt.closed_at === null
        ? []
        : [
            {
              at: instant(attempt.closed_at),
              source: 'attempt' as const,
              text: `attempt ${attempt.n} is ${attempt.status}${attempt.provider_ref === null ? '' : `, ${attempt.provider_ref}`}${reasonIn(attempt.response)}`,
            },
          ]),
    ]),
    ...history.late_evidence.map((item) => ({
      at: instant(item.observed_at),
      source: 'evidence' as const,
      text: `${item.kind} of attempt ${history.attempts.find((one) => one.attempt_id === item.attempt_id)?.n ?? item.attempt_id} kept, at revision ${item.revision}`,
    })),
    ...(share?.requests ?? []).map((request) => {
      const made = (share?.effects ?? [])
        .filter((effect) => effect.provider === request.provider && effect.request_seq === request.seq)
        .map((effect) => `${effect.ref} (now ${effect.settlement})`);
      return {
        at: instant(request.arrived_at),
        source: 'provider' as const,
        text: `request ${request.seq} arrived at ${request.provider}: ${made.length === 0 ? 'no effect' : made.join(', ')}`,
      };
    }),
  ];
  return entries.sort((a, b) => microseconds(a.at) - microseconds(b.at));
}

/** The timeline as lines of text: time, source, what happened; at the end effects that no request made. */
export function timelineText(history: RunHistory, share: LedgerShare | null): string[] {
  const { run } = history;
  const byHand = (share?.effects ?? []).filter((effect) => effect.request_seq === null);
  return [
    `${run.run_id} of request ${run.request_id}, generation ${run.generation}, tenant ${run.tenant_id}: ${run.state}${run.parked_reason === null ? '' : `, parked (${run.parked_reason})`}${run.wake_at === null ? '' : `, due ${run.wake_at}`}`,
    ...timeline(history, share).map(({ at, source, text }) => `  ${at}  ${source.padEnd(8)}  ${text}`),
    ...byHand.map((effect) => `  made at ${effect.provider} by hand: ${effect.ref} (now ${effect.settlement})`),
  ];
}

/** Revision, from and to, trigger, actor, and why. */
function eventText(event: StoredEvent): string {
  const { set } = payloadOf(event);
  const { code, message } = record(set.stop_reason);
  const why = typeof code === 'string' ? `: ${code}, ${String(message)}` : '';
  const flags = [
    ...(typeof set.parked_reason === 'string' ? [`parked: ${set.parked_reason}`] : []),
    ...(set.retry_allowed === true ? ['retry allowed'] : []),
  ];
  return `${event.revision}. ${event.from ?? '–'} → ${event.to} (${event.trigger}) by ${event.actor}${why}${flags.map((flag) => `; ${flag}`).join('')}`;
}

function reasonIn(response: unknown): string {
  const { reason, code } = record(response);
  const said = reason ?? code;
  return typeof said === 'string' ? ` (${said})` : '';
}

function instant(text: string): string {
  return instantOf(microseconds(text));
}

/** One spelling, so that the lines stand below each other. */
function instantOf(us: number): string {
  return `${new Date(Math.floor(us / 1_000)).toISOString().slice(0, -1)}${String(us % 1_000).padStart(3, '0')}Z`;
}

/**
 * Violations as a person reads them: those of each run, and its timeline once below them.
 */
export function reportText(
  violations: readonly Violation[],
  { runs, ledger }: Pick<Snapshot, 'runs' | 'ledger'>,
): string[] {
  const attributed = ledger === null ? null : attributeLedger(runs, ledger);
  const line = ({ check, code, severity, message }: Violation) =>
    `${severity === 'alarm' ? '!' : '✗'} ${check} ${code}: ${message}`;
  const blamed = new Set(violations.map(({ run_id }) => run_id));
  return [...blamed].flatMap((run_id) => {
    const own = violations.filter((violation) => violation.run_id === run_id).map(line);
    const history = runs.find(({ run }) => run.run_id === run_id);
    return history === undefined ? own : [...own, ...timelineText(history, attributed?.of(history.run.run_id) ?? null)];
  });
}
