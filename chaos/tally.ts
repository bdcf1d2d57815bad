import type { RunId } from '@counterstamp/manifest-core';
import { sandboxLedger } from '../testing/check-fleet-history.ts';
import { poll } from '../testing/fleet.ts';
import type { ChaosFleet } from './harness.ts';

/** What became of many runs, by the database and by the provider's books. */
export interface Tally {
  runs: number;
  completed: number;
  /** By reason; `failed` and `expired` as well. */
  parked: Record<string, number>;
  closed: Record<string, number>;
  effects: number;
  /** Effects beyond the first of their run. */
  duplicates: number;
  /** Runs that are completed without an effect. */
  lost: number;
  /** Runs that are neither closed nor parked. */
  stuck: RunId[];
}

interface Standing {
  run_id: RunId;
  state: string;
  parked_reason: string | null;
  code: string | null;
}

const CLOSED = ['completed', 'failed', 'rejected', 'expired'];

async function standings({ sql }: ChaosFleet, runs: readonly RunId[]): Promise<Standing[]> {
  const ids = JSON.stringify(runs);
  const rows = await sql()<Standing[]>`
    select 'run_' || run_id as run_id, state, parked_reason, stop_reason ->> 'code' as code from cs.run
     where 'run_' || run_id in (select jsonb_array_elements_text(${ids}::text::jsonb))`;
  return [...rows];
}

/** Every run that there is. */
export async function allRuns({ sql }: ChaosFleet): Promise<RunId[]> {
  const rows = await sql()<{ run_id: RunId }[]>`select 'run_' || run_id as run_id from cs.run order by 1`;
  return rows.map((row) => row.run_id);
}

const isOpen = ({ state, parked_reason }: Standing) => !CLOSED.includes(state) && parked_reason === null;

/** Waits until every run is closed or parked, or the bound has passed: what is still open then is stuck. */
export async function untilAllSettled(chaos: ChaosFleet, runs: readonly RunId[], boundMs: number): Promise<void> {
  await poll(async () => !(await standings(chaos, runs)).some(isOpen), boundMs, '').catch(() => undefined);
}

export async function tally(chaos: ChaosFleet, runs: readonly RunId[]): Promise<Tally> {
  const rows = await standings(chaos, runs);
  const { effects } = await sandboxLedger(chaos.fleet.sandbox.url);
  const perRun = new Map<string, number>();
  for (const { run_id, settlement } of effects)
    if (run_id !== null && settlement !== 'failed') perRun.set(run_id, (perRun.get(run_id) ?? 0) + 1);
  const counts = runs.map((run_id) => perRun.get(run_id) ?? 0);
  return {
    runs: runs.length,
    completed: rows.filter((row) => row.state === 'completed').length,
    parked: countBy(rows.flatMap((row) => row.parked_reason ?? [])),
    closed: countBy(
      rows.filter((row) => CLOSED.includes(row.state) && row.state !== 'completed').map((row) => row.code ?? row.state),
    ),
    effects: counts.reduce((sum, n) => sum + n, 0),
    duplicates: counts.reduce((sum, n) => sum + Math.max(0, n - 1), 0),
    lost: rows.filter((row) => row.state === 'completed' && (perRun.get(row.run_id) ?? 0) === 0).length,
    stuck: rows.filter(isOpen).map((row) => row.run_id),
  };
}

function countBy(words: readonly string[]): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const word of words) counts[word] = (counts[word] ?? 0) + 1;
  return counts;
}

/** `reason 3, other 1`, or `none`. */
export function countsText(counts: Record<string, number>): string {
  const parts = Object.entries(counts).map(([word, n]) => `${word} ${n}`);
  return parts.length === 0 ? 'none' : parts.join(', ');
}
