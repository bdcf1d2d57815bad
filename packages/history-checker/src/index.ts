export { approvedAtDispatch, approvedBytes } from './approval.ts';
export { chainIntact, legalMoves, unbrokenRevisions } from './chain.ts';
export { checkHistory, type Snapshot, type Violation } from './check-history.ts';
export { CHECKS, type CheckId, type Code, type Finding } from './checks.ts';
export type { ApprovalRecord, FixedAction, LateEvidence, RunHistory, RunRow } from './history.ts';
export { type FleetJudgement, type FleetRecords, judgeFleet } from './judge-fleet.ts';
export {
  attributeLedger,
  type Ledger,
  type LedgerEffect,
  type LedgerRequest,
  type LedgerShare,
  ledgerOf,
} from './ledger.ts';
export { completedMeansObserved, evidenceHeeded, noEffectBehindClosedRun } from './outcome.ts';
export { dueOrParked, type Healed } from './progress.ts';
export { oneEffect, oneEffectPerRequest, oneRequestPerAttempt, type SettleTerms, sentInTime } from './sends.ts';
export { reportText, type TimelineEntry, timeline, timelineText } from './timeline.ts';
