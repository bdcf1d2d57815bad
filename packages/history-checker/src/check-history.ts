import type { RunId } from '@counterstamp/manifest-core';
import { approvedAtDispatch, approvedBytes } from './approval.ts';
import { chainIntact, legalMoves, unbrokenRevisions } from './chain.ts';
import type { RunHistory } from './history.ts';
import { attributeLedger, type Ledger } from './ledger.ts';
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

/** The checks, and how much of each needs the provider's ledger. */
export const CHECKS = {
  H1: { rule: 'revisions 1..n without a gap, each from = the previous to', ledger: 'none' },
  H2: { rule: 'only legal moves, each by a service that may make it', ledger: 'none' },
  H3: { rule: 'at most one effect per key, per approved action and per request', ledger: 'whole' },
  H4: { rule: 'every request has an attempt before it and arrived within Z + P of its deadline', ledger: 'whole' },
  H5: { rule: 'bytes arrived = bytes stored with the attempt = action approved', ledger: 'part' },
  H6: { rule: 'sufficient, unexpired approval at every dispatch', ledger: 'none' },
  H7: { rule: 'at most one request per attempt', ledger: 'whole' },
  H8: { rule: 'completed = a final equal effect and a matching read after it', ledger: 'part' },
  H9: { rule: 'no effect behind a rejected, expired or failed run, or it is recorded', ledger: 'part' },
  H10: { rule: 'no retry and no conclusion of absence after positive evidence', ledger: 'none' },
  H11: { rule: 'every run that is not closed is due or parked', ledger: 'none' },
  H12: { rule: 'the chain holds, and what stands beside it is what it recorded', ledger: 'none' },
} as const satisfies Record<string, { rule: string; ledger: 'none' | 'part' | 'whole' }>;
export type CheckId = keyof typeof CHECKS;

export interface Violation {
  check: CheckId;
  /** Stable name of what is wrong. */
  code: ReturnType<typeof findingsOf>[number]['finding']['code'] | 'request_twice';
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
  const attributed = ledger === null ? null : attributeLedger(runs, ledger);
  const violations: Violation[] = [];
  for (const history of runs) {
    const share = attributed?.of(history.run.run_id) ?? null;
    for (const { check, finding } of findingsOf(history, share, settle, healed))
      violations.push(violation(check, finding, history.run.run_id));
  }
  if (attributed === null) return violations;
  for (const generations of byRequest(runs)) {
    const withEffects = generations.map((history) => ({ history, effects: attributed.of(history.run.run_id).effects }));
    for (const { run_id, finding } of oneEffectPerRequest(withEffects)) violations.push(violation('H3', finding, run_id));
  }
  for (const finding of strayRequests(attributed.strays.requests)) violations.push(violation('H4', finding, null));
  return violations;
}

/** Every check of one run. */
function findingsOf(history: RunHistory, share: Ledger | null, settle: SettleTerms, healed: Healed | null) {
  const requests = share?.requests ?? null;
  return [
    ...named('H1', unbrokenRevisions(history)),
    ...named('H2', legalMoves(history)),
    ...named('H3', share === null ? [] : oneEffect(share)),
    ...named('H4', requests === null ? [] : sentInTime(history, requests, settle)),
    ...named('H5', approvedBytes(history, requests)),
    ...named('H6', approvedAtDispatch(history)),
    ...named('H7', requests === null ? [] : oneRequestPerAttempt(history, requests, settle)),
    ...named('H8', completedMeansObserved(history, share, settle)),
    ...named('H9', noEffectBehindClosedRun(history, share?.effects ?? null)),
    ...named('H10', evidenceHeeded(history)),
    ...named('H11', dueOrParked(history, healed)),
    ...named('H12', chainIntact(history)),
  ];
}

function named<F>(check: CheckId, findings: readonly F[]): { check: CheckId; finding: F }[] {
  return findings.map((finding) => ({ check, finding }));
}

function violation(
  check: CheckId,
  { code, message }: { code: Violation['code']; message: string },
  run_id: RunId | null,
): Violation {
  return { check, code, severity: code === 'late_send' ? 'alarm' : 'violation', run_id, message };
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
