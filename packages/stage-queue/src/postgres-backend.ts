import {
  assertSchemaCompatibility,
  DEFAULT_SCHEMA,
  type PgPool,
  PostgresConnection,
  type PostgresConnectionOptions,
  PostgresQueueBackend,
  Queue,
  type QueueBaseOptions,
  quoteSchemaName,
} from 'bullmq';
import { Pool } from 'pg';
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

/** The schema that BullMQ's tables live in. */
export const QUEUE_SCHEMA = DEFAULT_SCHEMA;

/** Connections per process: one listens for all consumers, the others run statements of a millisecond each. */
const CONNECTIONS_MAX = 5;

/** Milliseconds to connect or to get a connection from the pool; an add that waited longer is dropped, never sent late. */
const CONNECT_MAX_MS = 1_000;

/** Milliseconds for any one statement, on the server and, 1 s later, on the client should the server never answer. */
const STATEMENT_MAX_MS = 5_000;

/**
 * Seconds that an idle worker sleeps before it looks again by itself; NOTIFY wakes it at once. 8 s: a look is four
 * statements, 0.5 a second, and health takes 10 s without a look for stuck.
 */
const IDLE_BLOCK_S = 8;

/** What BullMQ asks of the client that listens. */
type ListenClient = Awaited<ReturnType<PostgresConnection['getListenClient']>>;

/**
 * The one connection that every queue and worker of a process shares. It differs from BullMQ's in two ways: a first
 * connection that failed is tried again (BullMQ keeps the rejection for ever, so a process that starts before Postgres
 * would never consume), and statements on the listening client go one after the other (pg forbids them to overlap).
 */
class SharedConnection extends PostgresConnection {
  readonly #schema: string;
  #ready: Promise<void> | undefined;
  #listening: { raw: ListenClient; serial: ListenClient } | undefined;

  constructor(pool: Pool, schema: string) {
    super(forBullmq(pool));
    this.#schema = schema;
  }

  override waitUntilReady(): Promise<void> {
    if (this.#ready === undefined) {
      const attempt = assertSchemaCompatibility(this.pool, this.#schema).then(() => {});
      this.#ready = attempt;
      attempt.catch(() => {
        if (this.#ready === attempt) this.#ready = undefined;
      });
    }
    return this.#ready;
  }

  override async getListenClient(): Promise<ListenClient> {
    const raw = await super.getListenClient();
    if (this.#listening?.raw !== raw) this.#listening = { raw, serial: serialClient(raw) };
    return this.#listening.serial;
  }
}

/** BullMQ's own description of a pool names fewer events than pg's types do; they are the same object. */
function forBullmq(pool: Pool): PgPool {
  return pool as unknown as PgPool;
}

function serialClient(raw: ListenClient): ListenClient {
  let last: Promise<unknown> = Promise.resolve();
  const serial: ListenClient = {
    query: <R>(text: string, params?: readonly unknown[]) => {
      const result = last.then(() => raw.query<R>(text, params));
      last = result.catch(() => {});
      return result;
    },
    on: (event: string, listener: (value: never) => void) => {
      raw.on(event as 'error', listener as (error: Error) => void);
      return serial;
    },
    removeListener: (event, listener) => {
      raw.removeListener(event, listener);
      return serial;
    },
    removeAllListeners: (event) => {
      raw.removeAllListeners(event);
      return serial;
    },
  };
  return serial;
}

/** A queue's or worker's view of the shared connection: closing it leaves the connection open for the others. */
class SharedBackend extends PostgresQueueBackend {
  /** BullMQ's keeps the first rejection for ever: a worker that met Postgres away would never again record the end of a job. */
  override waitUntilReady(): Promise<void> {
    return this.connection.waitUntilReady();
  }

  override close(): Promise<void> {
    this.closing ??= this.disconnectBlocking();
    return this.closing;
  }

  override disconnect(): Promise<void> {
    return this.close();
  }
}

/** BullMQ on PostgreSQL: one pool and one listening connection for a whole process. */
export class PostgresBackend implements QueueBackend {
  readonly opened: Promise<void> = Promise.resolve();
  readonly #pool: Pool;
  readonly #connection: SharedConnection;
  readonly #report: Report;
  readonly #timers: Timers;
  readonly #queues = new Map<
    Stage,
    Queue<Hint, void, string, Hint, void, string, SharedBackend, PostgresConnectionOptions>
  >();

  constructor(settings: { url: string; schema: string; connectionsMax?: number }, report: Report, timers: Timers) {
    this.#report = report;
    this.#timers = timers;
    this.#pool = new Pool({
      connectionString: settings.url,
      max: settings.connectionsMax ?? CONNECTIONS_MAX,
      options: `-c search_path=${quoteSchemaName(settings.schema)}`,
      keepAlive: true,
      keepAliveInitialDelayMillis: 10_000,
      connectionTimeoutMillis: CONNECT_MAX_MS,
      statement_timeout: STATEMENT_MAX_MS,
      query_timeout: STATEMENT_MAX_MS + 1_000,
      application_name: 'counterstamp-queue',
    });
    this.#pool.setMaxListeners(0);
    this.#pool.on('error', (error) => report(error, 'postgres.pool'));
    this.#connection = new SharedConnection(this.#pool, settings.schema);
    this.#connection.setMaxListeners(0);
  }

  /** A pool connects on demand: a server that is away refuses each add by itself. */
  ready(): boolean {
    return true;
  }

  renew(): void {
    // Nothing to drop: the pool gives an unanswered statement up after its own time limit.
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

  async ping(): Promise<unknown> {
    return this.#pool.query('select 1');
  }

  work(stage: Stage, settings: WorkerSettings, events: WorkerEvents): StageConsumption {
    const worker = new StageWorker<SharedBackend, PostgresConnectionOptions>(
      stage,
      events.process,
      {
        connection: forBullmq(this.#pool),
        concurrency: settings.concurrency,
        lockDuration: settings.lockMs,
        stalledInterval: settings.lockMs / 2,
        maxStalledCount: settings.stalledMax,
        drainDelay: IDLE_BLOCK_S,
        runRetryDelay: RUN_RETRY_MS,
      },
      this.#backend,
      this.#timers,
    );
    worker.on('error', events.onError);
    worker.on('stalled', events.onStalled);
    // A job that stalled too often carries its failure: BullMQ ends it without a call of `process`.
    worker.on('active', (job) => {
      if (!job.deferredFailure) events.onTaken(job);
    });
    worker.start();
    // The count of waiting hints, which health asks for anyway, is the test of this backend's connections.
    return { worker, connected: () => ({ up: true }) };
  }

  async close(): Promise<void> {
    await Promise.allSettled([...this.#queues.values()].map((queue) => queue.close()));
    await this.#connection.close();
    await this.#pool.end();
  }

  readonly #backend = (name: string, options: QueueBaseOptions<PostgresConnectionOptions>): SharedBackend =>
    new SharedBackend(this.#connection, name, options, true);

  #queue(stage: Stage) {
    let queue = this.#queues.get(stage);
    if (queue === undefined) {
      queue = new Queue<Hint, void, string, Hint, void, string, SharedBackend, PostgresConnectionOptions>(
        stage,
        {
          connection: forBullmq(this.#pool),
          defaultJobOptions: JOB_OPTIONS,
          streams: { events: { maxLen: EVENTS_KEPT_MAX } },
        },
        this.#backend,
      );
      queue.on('error', (error) => this.#report(error, 'postgres.hints'));
      this.#queues.set(stage, queue);
    }
    return queue;
  }
}
