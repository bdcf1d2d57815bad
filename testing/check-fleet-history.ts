import { type FleetJudgement, judgeFleet, type Ledger, type Violation } from '@counterstamp/history-checker';
import type { Durations, RunId } from '@counterstamp/manifest-core';
import { type HistoryPage, readHistories, type Sql } from '@counterstamp/manifest-store';
import type { ProviderHistory } from '@counterstamp/sandbox';

export interface FleetToCheck {
  /** A login that may read the tables. */
  sql: Sql;
  /** Reads what arrived at the providers and what they booked, see `sandboxLedger`; null: the database alone is judged. */
  ledger: (() => Promise<Ledger>) | null;
  /** Those that the fleet was configured with. */
  durations: Pick<Durations, 'pause_ms' | 'provider_ms'>;
  /** Only these runs, and what the ledger says of them; default: all, and then every request must belong to one. */
  only?: readonly RunId[];
  /** The fleet was given time to heal: nothing may be overdue by more than this. */
  overdue_ms?: number;
  /** What was done to the fleet explains this one: a provider that books twice, say. It is left out of what fails. */
  expected?: (violation: Violation) => boolean;
}

/** What the checker has against a fleet, by H1 to H12, expected or not; the fleet may be at work. */
export async function judgeFleetHistory({
  sql,
  ledger,
  durations,
  only,
  overdue_ms,
}: Omit<FleetToCheck, 'expected'>): Promise<FleetJudgement> {
  return await judgeFleet({
    pages: only === undefined ? readHistories(sql) : pagesOf(readHistories(sql), only),
    readLedger: ledger,
    settle: durations,
    partial: only !== undefined,
    ...(overdue_ms === undefined ? {} : { overdue_ms }),
  });
}

/**
 * The same as an assertion.
 * @returns the judgement, for what the caller wants to say of it: alarms (`severity`) are theirs to judge.
 * @throws {Error} with every violation and the timelines of the runs.
 */
export async function checkFleetHistory(fleet: FleetToCheck): Promise<FleetJudgement> {
  const { expected = () => false } = fleet;
  const judgement = await judgeFleetHistory(fleet);
  const wrong = judgement.violations.filter((one) => one.severity === 'violation' && !expected(one));
  if (wrong.length === 0) return judgement;
  const named = wrong.map(({ check, code, run_id, message }) => `${check} ${code} ${run_id ?? ''}: ${message}`);
  throw new Error(
    [`${wrong.length} violations in ${judgement.runs} runs`, ...named, '', ...judgement.report].join('\n'),
  );
}

/** The ledger of a running sandbox. */
export async function sandboxLedger(url: string): Promise<Ledger> {
  const response = await fetch(`${url}/admin/history`);
  if (!response.ok) throw new Error(`GET /admin/history: ${response.status} ${await response.text()}`);
  return (await response.json()) as ProviderHistory;
}

async function* pagesOf(pages: AsyncIterable<HistoryPage>, only: readonly RunId[]): AsyncGenerator<HistoryPage> {
  for await (const { now, histories } of pages)
    yield { now, histories: histories.filter(({ run }) => only.includes(run.run_id)) };
}
