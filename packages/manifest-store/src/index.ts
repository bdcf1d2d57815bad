export type {
  ApiStore,
  CreateOutcome,
  DecisionCommit,
  DecisionOutcome,
  DecisionResult,
  RunSummary,
  StoredDecision,
  SupportCommit,
  SupportResult,
  VerdictCommit,
  VerdictKind,
  VerdictOutcome,
} from './api-store.ts';
export { type CensusRow, census } from './census.ts';
export { connect, connectForLease, NotPermitted, type Sql } from './connection.ts';
export { type RoleReport, roleReports } from './grants-check.ts';
export { type HistoryReport, verifyHistory } from './history.ts';
export { HOLD_ALL, type Hold } from './holds.ts';
export {
  endInstance,
  endProcess,
  type Instance,
  type InstanceEnd,
  type InstanceProcess,
  listInstances,
  takeLease,
} from './instances.ts';
export { createApiKey, parseApiKey } from './keys.ts';
export { loginFault, loginReport } from './login-check.ts';
export { type MigrateOptions, migrate, migrationStanding } from './migrate.ts';
export { type Principal, ROLES, type Role } from './principal.ts';
export { type HistoryPage, readHistories, type StoredHistory } from './read-histories.ts';
export { DEFAULT_ROLE_PREFIX, derivedPassword, roleName, roleStatements, serviceUrl } from './roles.ts';
export { StoreUnavailable } from './store-unavailable.ts';
export { createWorkerStore } from './worker-store.ts';
