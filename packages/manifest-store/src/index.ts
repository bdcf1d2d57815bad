export type {
  ApiStore,
  CreateOutcome,
  DecisionCommit,
  DecisionOutcome,
  DecisionResult,
  RunSummary,
  StoredDecision,
} from './api-store.ts';
export { type CensusRow, census } from './census.ts';
export { connect, NotPermitted, type Sql, StoreUnavailable } from './connection.ts';
export { type HistoryReport, verifyHistory } from './history.ts';
export { createApiKey, parseApiKey } from './keys.ts';
export { loginFault } from './login-check.ts';
export { type MigrateOptions, migrate, pendingMigrations } from './migrate.ts';
export { type Principal, ROLES, type Role } from './principal.ts';
export { DEFAULT_ROLE_PREFIX, derivedPassword, roleName, roleStatements, serviceUrl } from './roles.ts';
export { createWorkerStore } from './worker-store.ts';
