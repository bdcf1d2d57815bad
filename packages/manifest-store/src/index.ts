export type { RaisedAlarm } from './alarms.ts';
export type {
  ApiStore,
  CreateOutcome,
  DecisionCommit,
  DecisionOutcome,
  DecisionResult,
  StoredDecision,
  SupportCommit,
  SupportResult,
  VerdictCommit,
  VerdictKind,
  VerdictOutcome,
} from './api-store.ts';
export { type Census, type CensusTerms, census, censusStatement, databaseClock, type TenantLoad } from './census.ts';
export {
  type ChainHead,
  type CheckpointDue,
  checkpointDue,
  commitCheckpoint,
  listCheckpoints,
} from './checkpoints.ts';
export { connect, connectForLease, NotPermitted, type Sql, type Statements } from './connection.ts';
export {
  type ApiKeyRow,
  issueKey,
  listKeys,
  listPasskeysOf,
  type PasskeyRow,
  revokeKey,
  revokePasskeyOf,
} from './credentials.ts';
export { type EraseOutcome, eraseSubject } from './erase.ts';
export { type RoleReport, roleReports } from './grants-check.ts';
export { type HistoryReport, verifyHistory } from './history.ts';
export { HOLD_ALL, type Hold, setHoldAsOwner } from './holds.ts';
export {
  type ChallengePurpose,
  createIdentityStore,
  type EnrolResult,
  type IdentityStore,
  type NewPasskey,
  type NewSession,
  type PasskeySummary,
  type ProviderIdentity,
  type RevokePasskeyResult,
  type Session,
  type SessionMethod,
  type VouchedPerson,
} from './identity-store.ts';
export {
  endInstance,
  endProcess,
  type Instance,
  type InstanceEnd,
  type InstanceProcess,
  listInstances,
  takeLease,
} from './instances.ts';
export { createApiKey, hashSecret, parseApiKey } from './keys.ts';
export { loginFault, loginReport } from './login-check.ts';
export { type MigrateOptions, migrate, migrationStanding } from './migrate.ts';
export { type OldestRun, oldestRuns } from './oldest-runs.ts';
export type { OwnerChange, OwnerRefusalCode, OwnerRefused } from './owner-change.ts';
export {
  addPerson,
  disablePerson,
  enablePerson,
  INVITATION_LIFE_MAX_MS,
  invitePerson,
  linkPerson,
  listPeople,
  type PrincipalName,
  type PrincipalRow,
  setPerson,
} from './people.ts';
export { observeStatements, openStatements, type StatementObserver } from './ports/open-statements.ts';
export {
  PRINCIPAL_ROLES,
  type Principal,
  type PrincipalRef,
  type PrincipalRole,
  ROLES,
  type Role,
} from './principal.ts';
export { readAs } from './read-as.ts';
export { type HistoryPage, readHistories, type StoredHistory } from './read-histories.ts';
export type { ReceiptRecord } from './receipt-record.ts';
export { knownRuns, type UnsentRun, type UnsentRuns, unsentRuns } from './restored-runs.ts';
export { RETENTION_CLASSES, type RetentionClass, type RetentionCount, retain } from './retention.ts';
export { DEFAULT_ROLE_PREFIX, derivedPassword, roleName, roleStatements, serviceUrl } from './roles.ts';
export type { RunSummary } from './run-reads.ts';
export { type DataKey, parseDataKeys } from './sealed/data-keys.ts';
export { SealBroken } from './sealed/seal.ts';
export { createSealing, DataKeyMissing, type Sealing } from './sealed/sealing.ts';
export { sealingFault } from './sealed/sealing-fault.ts';
export { StoreUnavailable } from './store-unavailable.ts';
export { createWorkerStore } from './worker-store.ts';
