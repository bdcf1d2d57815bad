import { PROFILES, type RunId } from '@counterstamp/manifest-core';
import { judgeFleetHistory, sandboxLedger } from '../testing/check-fleet-history.ts';
import type { ChaosFleet } from './harness.ts';

export interface HistoryTerms {
  /** Only these runs; default: all. */
  only?: readonly RunId[];
  /** An attempt of which the request arrived beyond its deadline, Z and P: an alarm that may or must be there. */
  lateSend: 'no' | 'may' | 'must';
  /** Milliseconds by which something may be overdue. */
  overdue_ms: number;
}

/** Requests that arrived beyond their deadline, Z and P: assumptions that did not hold, on a machine too busy, say. */
export async function lateSends({ fleet, sql }: ChaosFleet, only: readonly RunId[]): Promise<number> {
  const { violations } = await judgeFleetHistory({
    sql: sql(),
    ledger: () => sandboxLedger(fleet.sandbox.url),
    durations: PROFILES.fast,
    only,
  });
  return violations.filter((one) => one.code === 'late_send').length;
}

/** What the history checker has against the fleet's runs, as lines. Alarms count, unless the terms expect them. */
export async function checkHistories({ fleet, sql }: ChaosFleet, terms: HistoryTerms): Promise<string[]> {
  const { violations } = await judgeFleetHistory({
    sql: sql(),
    ledger: () => sandboxLedger(fleet.sandbox.url),
    durations: PROFILES.fast,
    overdue_ms: terms.overdue_ms,
    ...(terms.only === undefined ? {} : { only: terms.only }),
  });
  const late = violations.filter((one) => one.code === 'late_send');
  const others = violations.filter((one) => one.code !== 'late_send');
  const counted = terms.lateSend === 'no' ? violations : others;
  return [
    ...counted.map((one) => `${one.check} ${one.code} (${one.severity}) ${one.run_id ?? ''}: ${one.message}`),
    ...(terms.lateSend === 'must' && late.length === 0 ? ['the history checker did not report the late send'] : []),
  ];
}
