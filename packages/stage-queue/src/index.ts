export type { StageBacklog } from './backend.ts';
export { checkPostgresQueue, type PostgresQueueCheck } from './check-postgres-queue.ts';
export { checkRedis, type RedisCheck } from './check-redis.ts';
export {
  type ConsumeOptions,
  type Consumer,
  type ConsumerHealth,
  type HandleHint,
  MalformedHintError,
} from './consumer.ts';
export type { OnError } from './error-reports.ts';
export { Hint, hintJobId } from './hint.ts';
export {
  type HintFailure,
  type HintQueue,
  type HintResult,
  openHintQueue,
  type PingResult,
  type QueueSettings,
} from './hint-queue.ts';
export { migrateQueue } from './migrate-queue.ts';
export { systemTimers, type Timers } from './ports/timers.ts';
export { type Lane, STAGES, type Stage } from './stages.ts';
