export { evidenceSetDigest, factsDigest, idempotencyKey, inputDigest } from './action-identity.ts';
export { canonicalJson, Json, type JsonObject, type JsonValue } from './canonical-json.ts';
export { type ClosureFacts, closureAudits, nextClosureAudit } from './closure-audit.ts';
export { DOMAINS, type Domain, digestOf, sha256Text } from './digest.ts';
export { displayText } from './display-text.ts';
export {
  backoffMs,
  DURATION_MEANINGS,
  type Durations,
  durationFaults,
  EXPIRY_MARGIN_MS,
  LIMIT_MEANINGS,
  LIMITS,
  type Limits,
  PROFILES,
  type Profile,
  retryReserveMs,
  settleMs,
} from './durations.ts';
export { ERRORS, type ErrorCode, isErrorCode, type Refusal } from './errors.ts';
export {
  type ChainFault,
  type EventRecord,
  eventHash,
  eventPreImage,
  type StoredEvent,
  verifyChain,
} from './event-pre-image.ts';
export { escapeText, escapeWord, keepText, unescapeText } from './evidence-text.ts';
export {
  affirmativeDecisions,
  approvalsSuffice,
  BREAK_GLASS_PEOPLE,
  cyclesRemain,
  dispatchGuards,
  type GuardResult,
} from './guards.ts';
export { Digest, ExternalId, ID_PREFIXES, type IdKind, Revision, RunId, runIdFromUuid, uuidOfRunId } from './ids.ts';
export { type Parsed, parseStrictJson, parseWith, pointer } from './input-gate.ts';
export { type Lane, laneOf } from './lanes.ts';
export {
  Approval,
  Assertion,
  ATTEMPT_STATUSES,
  Attempt,
  ContextEntry,
  currentEvidence,
  DECISION_METHODS,
  Decision,
  type DecisionRecord,
  DisplayField,
  Evidence,
  epochMs,
  Manifest,
  Observation,
  PROPOSERS,
  Proposal,
  Proposer,
  pendingProposal,
} from './manifest.ts';
export { CurrencyCode, currencyExponent, formatMoney, MinorUnits } from './money.ts';
export {
  type ApprovalDraft,
  type AttemptOutcomeDraft,
  type AuditEntry,
  type Clock,
  type CommitFacts,
  type CommitOutcome,
  DISPATCH_REFUSALS,
  type DispatchCommit,
  type DispatchOutcome,
  type DispatchRefusal,
  type DueRun,
  type EvidenceDraft,
  FAILPOINTS,
  type Failpoint,
  type FailpointName,
  type HotRow,
  type HttpReply,
  type HttpRequest,
  type Ids,
  type LoadedRun,
  type NewRun,
  type ObservationDraft,
  type OneShot,
  type ProposalDraft,
  type Queue,
  type ReadHttp,
  type RetryGrounds,
  type SendResult,
  type StageCommit,
  type Store,
} from './ports.ts';
export {
  type AbsenceFacts,
  type AttemptFact,
  absenceCounts,
  attemptOverdue,
  type CloseAbsentFacts,
  type CloseAbsentRefusal,
  compareEffect,
  type DispatchFacts,
  effectWasSeen,
  keyStillKnown,
  type Look,
  mayCloseAbsent,
  mayCloseNotSent,
  mayDispatch,
  mayRetry,
  type NextLook,
  type NextLookFacts,
  nextLook,
  nothingLeft,
  type RetryFacts,
  type RetryRefusal,
  SENDS_MAX,
  type SeenEffect,
  type Settlement,
} from './recovery-guards.ts';
export { SERVICES, type Service } from './services.ts';
export { STAGES, type Stage, type StageRow, stageOf } from './stages.ts';
export {
  BEFORE_DISPATCH,
  CLOSED,
  type Closed,
  isClosed,
  isStop,
  STATES,
  STOPS,
  type State,
  type Stop,
} from './states.ts';
export { STOP_REASONS, type StopReason, type StopReasonCode, stopReason } from './stop-reasons.ts';
export {
  COUNTERS,
  type Counter,
  FACTS,
  type Fact,
  type Guard,
  reachableFrom,
  TRANSITIONS,
  TRIGGERS,
  type TransitionRule,
  type Trigger,
  type TriggerFrom,
  transitionRule,
} from './transitions.ts';
