import { type ConnectionOptions, createRedisBackend, type IRedisClient, Queue, type RedisQueueBackend } from 'bullmq';
import { Redis } from 'ioredis';
import {
  EVENTS_KEPT_MAX,
  JOB_OPTIONS,
  type QueueBackend,
  RUN_RETRY_MS,
  type StageBacklog,
  type StageConsumption,
  WAITING,
  type WorkerEvents,
  type WorkerSettings,
} from './backend.ts';
import { backlogOf } from './backlog.ts';
import type { Report } from './error-reports.ts';
import type { Hint } from './hint.ts';
import type { Timers } from './ports/timers.ts';
import { StageWorker } from './stage-worker.ts';
import type { Lane, Stage } from './stages.ts';

/**
 * Seconds that an idle worker blocks before it looks again by itself; a new hint wakes it at once. 5 s: two commands per
 * look are 0.4 a second. Health takes 10 s without a look for stuck.
 */
const IDLE_BLOCK_S = 5;

/** Longest pause between two attempts to reconnect, milliseconds. */
const RECONNECT_MAX_MS = 1_000;

/**
 * Milliseconds without any answer to a command before a worker's connection counts as dead. A blocking read answers after
 * IDLE_BLOCK_S; three times that leaves room for a slow Redis.
 */
const SILENCE_MAX_MS = IDLE_BLOCK_S * 3_000;

const COMMON = {
  connectTimeout: 2_000,
  disconnectTimeout: 200,
  keepAlive: 10_000,
  retryStrategy: (attempt: number) => Math.min(attempt * 100, RECONNECT_MAX_MS),
};

/**
 * For hints: whatever cannot be sent now fails now. Nothing is kept for later, so a Redis that comes back is not met by
 * a storm of hints whose senders have given up.
 */
const FOR_HINTS = {
  ...COMMON,
  enableOfflineQueue: false,
  autoResendUnfulfilledCommands: false,
  // Also bounds the first INFO of a new connection, which nothing else does.
  socketTimeout: 5_000,
  maxRetriesPerRequest: 0,
};

/** For workers: BullMQ requires `null`; a command interrupted by a restart is sent again. */
const FOR_WORKERS = { ...COMMON, maxRetriesPerRequest: null, socketTimeout: SILENCE_MAX_MS };

/**
 * What every key of a stage's queue begins with. Redis Cluster keeps keys with the same text in braces in one slot, which BullMQ's scripts need of
 * the keys of one queue; different stages may lie in different slots.
 */
export function queuePrefix(prefix: string, stage: string): string {
  return `{${prefix}:${stage}}`;
}

/**
 * BullMQ on Redis or Valkey. One connection for all hints, one for all workers' commands, and one blocking connection
 * per consumer.
 */
export class RedisBackend implements QueueBackend {
  readonly opened: Promise<void>;
  readonly #url: string;
  readonly #prefix: string;
  readonly #report: Report;
  readonly #timers: Timers;
  readonly #hints: Redis;
  #workers: Redis | undefined;
  readonly #queues = new Map<Stage, Queue>();

  constructor(settings: { url: string; prefix: string }, report: Report, timers: Timers) {
    this.#url = settings.url;
    this.#prefix = settings.prefix;
    this.#report = report;
    this.#timers = timers;
    this.#hints = new Redis(settings.url, FOR_HINTS);
    this.#hints.setMaxListeners(0);
    this.#hints.on('error', (error: Error) => report(error, 'redis.hints'));
    this.opened = new Promise((resolve) => {
      this.#hints.once('ready', () => resolve());
      this.#hints.once('close', () => resolve());
    });
  }

  ready(): boolean {
    return this.#hints.status === 'ready';
  }

  renew(): void {
    this.#hints.disconnect(true);
  }

  add(stage: Stage, jobId: string, hint: Hint, lane: Lane): Promise<unknown> {
    return this.#queue(stage).add(stage, hint, { jobId, priority: lane });
  }

  waiting(stage: Stage): Promise<number> {
    return this.#queue(stage).getJobCountByTypes(...WAITING);
  }

  backlog(stage: Stage): Promise<StageBacklog> {
    return backlogOf(this.#queue(stage), this.#timers);
  }

  ping(): Promise<unknown> {
    return this.#hints.ping();
  }

  work(stage: Stage, settings: WorkerSettings, events: WorkerEvents): StageConsumption {
    const commands = this.#workerClient();
    const worker = new StageWorker<RedisQueueBackend, ConnectionOptions>(
      stage,
      events.process,
      {
        connection: commands,
        prefix: queuePrefix(this.#prefix, stage),
        // The check would read INFO once; failing that once (a Redis that still loads) kills the worker for good.
        // `checkRedis` looks at the version and the policy.
        skipVersionCheck: true,
        concurrency: settings.concurrency,
        lockDuration: settings.lockMs,
        stalledInterval: settings.lockMs / 2,
        maxStalledCount: settings.stalledMax,
        drainDelay: IDLE_BLOCK_S,
        runRetryDelay: RUN_RETRY_MS,
      },
      createRedisBackend,
      this.#timers,
    );
    worker.on('error', events.onError);
    worker.on('stalled', events.onStalled);
    // A job that stalled too often carries its failure: BullMQ ends it without a call of `process`.
    worker.on('active', (job) => {
      if (!job.deferredFailure) events.onTaken(job);
    });
    let blocking: IRedisClient | undefined;
    worker.getBackend().blockingClient?.then(
      (client) => {
        blocking = client;
      },
      () => {},
    );
    worker.start();
    return {
      worker,
      connected: () => {
        if (commands.status !== 'ready')
          return { up: false, why: `the Redis connection for commands is ${commands.status}` };
        if (blocking?.status !== 'ready') {
          return { up: false, why: `the Redis connection for waiting is ${blocking?.status ?? 'connecting'}` };
        }
        return { up: true };
      },
    };
  }

  async close(): Promise<void> {
    await Promise.allSettled([...this.#queues.values()].map((queue) => queue.close()));
    this.#hints.disconnect();
    this.#workers?.disconnect();
  }

  #queue(stage: Stage): Queue {
    let queue = this.#queues.get(stage);
    if (queue === undefined) {
      queue = new Queue(stage, {
        connection: this.#hints,
        prefix: queuePrefix(this.#prefix, stage),
        skipVersionCheck: true,
        defaultJobOptions: JOB_OPTIONS,
        streams: { events: { maxLen: EVENTS_KEPT_MAX } },
      });
      queue.on('error', (error) => this.#report(error, 'redis.hints'));
      this.#queues.set(stage, queue);
    }
    return queue;
  }

  #workerClient(): Redis {
    if (this.#workers === undefined) {
      this.#workers = new Redis(this.#url, FOR_WORKERS);
      this.#workers.setMaxListeners(0);
      this.#workers.on('error', (error: Error) => this.#report(error, 'redis.workers'));
    }
    return this.#workers;
  }
}
