export {
  type ConfigResult,
  type Environment,
  parseDurations,
  parseServiceConfig,
  type ServiceConfig,
} from './config.ts';
export { deferral } from './deferral.ts';
export {
  describeDurations,
  describeEnvironment,
  type ServiceEnvironment,
  type VariableDoc,
} from './environment-docs.ts';
export { type HealthServer, type Readiness, startHealthServer } from './health-server.ts';
export { startBeating } from './heartbeat.ts';
export { type OneShotConnection, openOneShot } from './http/one-shot.ts';
export { createReadClient, type ReadClient } from './http/read.ts';
export { meteredStore } from './metered-store.ts';
export { systemClock } from './ports/clock.ts';
export { armedFailpoints, noFailpoints, parseFailpoints } from './ports/failpoint.ts';
export { randomIds } from './ports/ids.ts';
export { databaseReadiness, EXIT_CONFIG, type Running, runService, type Shell } from './process-shell.ts';
export { withSecretFiles } from './secret-files.ts';
export { holdSessionLease, type SessionLease } from './session-lease.ts';
export { createStageLoop, type Judge, type StageDecision, type StageLoopDeps } from './stage-loop.ts';
export { type StageService, startStageService, workerStore } from './stage-service.ts';
export { variable } from './variable.ts';
export { VERSION } from './version.ts';
