import type { RunId } from '@counterstamp/manifest-core';
import { approvedAtDispatch, approvedBytes } from './approval.ts';
import { chainIntact, legalMoves, unbrokenRevisions } from './chain.ts';
import type { CheckId, Code, Finding } from './checks.ts';
import type { RunHistory } from './history.ts';
import { attributeLedger, type Ledger, type LedgerShare, predates } from './ledger.ts';
import { completedMeansObserved, evidenceHeeded, noEffectBehindClosedRun } from './outcome.ts';
import { dueOrParked, type Healed } from './progress.ts';
import {
  oneEffect,
  oneEffectPerRequest,
  oneRequestPerAttempt,
  type SettleTerms,
  sentInTime,
  strayRequests,
} from './sends.ts';

export interface Violation {
  check: CheckId;
  /** Stable name of what is wrong. */
  code: Code;
  /** `alarm`: an assumption of the protocol did not hold; what followed from it is judged by the other checks. */
  severity: 'violation' | 'alarm';
  /** Null for a request that belongs to no run. */
  run_id: RunId | null;
  message: string;
}

export interface Snapshot {
  runs: readonly RunHistory[];
  /** The provider's ledger, which must be about these runs and no others (`ledgerOf`); null: not checked against one. */
  ledger: Ledger | null;
  settle: SettleTerms;
  /** Set when the fleet was given time to heal. */
  healed?: Healed | null;
}

/**
 * Judges recorded histories, and the provider's ledger where there is one, by H1 to H12 (protocol.md section 5). Pure. Empty: all hold. The order
 * is that of the runs, and within a run that of the checks; what concerns several runs, or none, comes last.
 */
export function checkHistory({ runs, ledger, settle, healed = null }: Snapshot): Violation[] {
  if (ledger === null) return runs.flatMap((history) => checkRun(history, null, settle, healed));
  const attributed = attributeLedger(runs, ledger);
  const shareOf = (history: RunHistory) => attributed.of(history.run.run_id);
  return [
    ...runs.flatMap((history) =>
      checkRun(history, predates(history, ledger) ? null : shareOf(history), settle, healed),
    ),
    ...byRequest(runs).flatMap((generations) =>
      oneEffectPerRequest(generations.map((history) => ({ history, effects: shareOf(history).effects }))).flatMap(
        ({ run_id, finding }) => violationsOf('H3', run_id, [finding]),
      ),
    ),
    ...violationsOf('H4', null, strayRequests(attributed.strays.requests)),
  ];
}

/** Every check of one run. */
function checkRun(
  history: RunHistory,
  share: LedgerShare | null,
  settle: SettleTerms,
  healed: Healed | null,
): Violation[] {
  const { run_id } = history.run;
  const requests = share?.requests ?? null;
  return [
    ...violationsOf('H1', run_id, unbrokenRevisions(history)),
    ...violationsOf('H2', run_id, legalMoves(history)),
    ...violationsOf('H3', run_id, share === null ? [] : oneEffect(share)),
    ...violationsOf('H4', run_id, requests === null ? [] : sentInTime(history, requests, settle)),
    ...violationsOf('H5', run_id, approvedBytes(history, requests)),
    ...violationsOf('H6', run_id, approvedAtDispatch(history)),
    ...violationsOf('H7', run_id, requests === null ? [] : oneRequestPerAttempt(history, requests, settle)),
    ...violationsOf('H8', run_id, completedMeansObserved(history, share, settle)),
    ...violationsOf('H9', run_id, noEffectBehindClosedRun(history, share?.effects ?? null)),
    ...violationsOf('H10', run_id, evidenceHeeded(history)),
    ...violationsOf('H11', run_id, dueOrParked(history, healed)),
    ...violationsOf('H12', run_id, chainIntact(history)),
  ];
}

function violationsOf<Id extends CheckId>(
  check: Id,
  run_id: RunId | null,
  findings: readonly Finding<Id>[],
): Violation[] {
  return findings.map(({ code, message }) => ({
    check,
    code,
    severity: code === 'late_send' ? 'alarm' : 'violation',
    run_id,
    message,
  }));
}

/** The runs of each request of each tenant. */
function byRequest(runs: readonly RunHistory[]): RunHistory[][] {
  const requests = new Map<string, RunHistory[]>();
  for (const history of runs) {
    const key = JSON.stringify([history.run.tenant_id, history.run.request_id]);
    const generations = requests.get(key);
    if (generations === undefined) requests.set(key, [history]);
    else generations.push(history);
  }
  return [...requests.values()];
}
