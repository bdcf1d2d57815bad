export {
  type ApiStore,
  type CreateOutcome,
  createApiStore,
  type DecisionCommit,
  type DecisionOutcome,
  type DecisionResult,
  type Principal,
  ROLES,
  type Role,
  type RunSummary,
  type StoredDecision,
} from './api-store.ts';
export { type CensusRow, census } from './census.ts';
export { connect, NotPermitted, type Sql, StoreUnavailable } from './connection.ts';
export { type HistoryReport, verifyHistory } from './history.ts';
export { createApiKey, parseApiKey } from './keys.ts';
export { loginFault } from './login-check.ts';
export { type MigrateOptions, migrate, pendingMigrations } from './migrate.ts';
export { DEFAULT_ROLE_PREFIX, derivedPassword, roleName, roleStatements, serviceUrl } from './roles.ts';
export { createWorkerStore } from './worker-store.ts';
