import { checkHistory, type Violation } from './check-history.ts';
import type { RunHistory } from './history.ts';
import { type Ledger, ledgerOf, predates } from './ledger.ts';
import type { SettleTerms } from './sends.ts';
import { reportText } from './timeline.ts';

export interface FleetRecords {
  /** The histories page by page, each with the database's clock at its read. */
  pages: AsyncIterable<{ now: string; histories: readonly RunHistory[] }>;
  /** Reads the providers' ledger; null: there is none. */
  readLedger: (() => Promise<Ledger>) | null;
  settle: SettleTerms;
  /** The pages hold some runs of many: what the ledger says of others is left out. */
  partial?: boolean;
  /** Set when the fleet was given time to heal, see `Healed`. */
  overdue_ms?: number;
}

export interface FleetJudgement {
  runs: number;
  /** Runs that began before the ledger did, and were judged by the database alone. */
  runs_before_ledger: number;
  /** What was compared; null without a ledger. */
  ledger: Ledger | null;
  violations: Violation[];
  /** Lines of text: each violation, with the timelines of the runs. */
  report: string[];
}

/**
 * Judges what a fleet recorded. It may be at work meanwhile: requests are read before the histories, so that each one's attempt is there, and
 * effects after them, so that each completed run's effect is. Without a ledger no check looks further than one run, and a page is let go once it
 * is judged.
 */
export async function judgeFleet(records: FleetRecords): Promise<FleetJudgement> {
  const { pages, readLedger, settle, partial = false, overdue_ms } = records;
  const judgement: FleetJudgement = { runs: 0, runs_before_ledger: 0, ledger: null, violations: [], report: [] };
  const judge = (runs: readonly RunHistory[], ledger: Ledger | null, now: string | undefined) => {
    const healed = overdue_ms === undefined || now === undefined ? null : { now, overdue_ms };
    const found = checkHistory({ runs, ledger, settle, healed });
    judgement.runs += runs.length;
    judgement.violations.push(...found);
    judgement.report.push(...reportText(found, { runs, ledger }));
  };
  const before = readLedger === null ? null : await readLedger();
  const held: RunHistory[] = [];
  let started: string | undefined;
  for await (const { now, histories } of pages) {
    started ??= now;
    if (before === null) judge(histories, null, now);
    else held.push(...histories);
  }
  if (before === null || readLedger === null) return judgement;
  const { effects } = await readLedger();
  const all = { ...before, effects };
  judgement.ledger = partial ? ledgerOf(held, all) : all;
  judgement.runs_before_ledger = held.filter((history) => predates(history, all)).length;
  judge(held, judgement.ledger, started);
  return judgement;
}
