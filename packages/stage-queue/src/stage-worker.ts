import { type BackendFactory, type IQueueBackend, type Job, type JobJson, Worker, type WorkerOptions } from 'bullmq';
import type { Timers } from './ports/timers.ts';
import { pause } from './within.ts';

/**
 * Milliseconds before a fetch is tried again after the backend answered with an error. BullMQ waits only after a refused
 * connection; any other error ("the database system is starting up", OOM, READONLY) it retries at once, in a hot loop.
 */
const FETCH_RETRY_MS = 1_000;

/** The processor of a job; `data` has not been parsed. */
export type ProcessJob = (job: Job<unknown, void, string, number>) => Promise<void>;

/** What a consumer needs of a worker, whatever its backend. */
export interface WorkerHandle {
  isRunning(): boolean;
  /** From now on no further job is taken; jobs already taken are processed. */
  refuse(): void;
  /** Resolves when no fetch is under way; a job it brought has been announced by then. */
  fetchSettled(): Promise<void>;
  /** Waits for jobs already taken to finish and closes. May hang while the backend is away. */
  finish(): Promise<void>;
  /** Closes without waiting for anything: running jobs lose their lock and are taken for stalled by others. */
  abandon(): Promise<void>;
}

/** A BullMQ worker that neither spins on errors, nor sleeps past `drainDelay`, nor takes a job while it drains. */
export class StageWorker<B extends IQueueBackend, C>
  extends Worker<unknown, void, string, B, number, C>
  implements WorkerHandle
{
  readonly #timers: Timers;
  readonly #fetches = new Set<Promise<unknown>>();
  #refusing = false;

  constructor(
    name: string,
    process: ProcessJob,
    options: WorkerOptions<C>,
    factory: BackendFactory<B, C>,
    timers: Timers,
  ) {
    super(name, process, { ...options, autorun: false }, factory);
    this.#timers = timers;
  }

  /** Starts taking jobs. Separate from the constructor so that listeners are in place before the first job. */
  start(): void {
    this.run().catch((error: unknown) => this.emit('error', error instanceof Error ? error : new Error(String(error))));
  }

  refuse(): void {
    this.#refusing = true;
    // `true`: do not wait for active jobs. It needs no connection, unlike the waiting form.
    this.pause(true).catch(() => {});
  }

  async fetchSettled(): Promise<void> {
    await Promise.allSettled(this.#fetches);
  }

  async finish(): Promise<void> {
    await this.close(false);
  }

  async abandon(): Promise<void> {
    // `close(true)` returns the promise of an earlier `close(false)` that may hang: close the parts ourselves.
    this.close(true).catch(() => {});
    await this.lockManager.close();
    await this.backend.close(true);
  }

  protected override async moveToActive(token: string, name?: string): Promise<Job<unknown, void, string, number>> {
    if (this.#refusing) return this.nextJobFromJobData();
    const fetching = super.moveToActive(token, name);
    this.#fetches.add(fetching);
    try {
      return await fetching;
    } catch (error) {
      if (!this.#refusing) await pause(this.#timers, FETCH_RETRY_MS);
      throw error;
    } finally {
      this.#fetches.delete(fetching);
    }
  }

  /** A job whose data is not JSON would throw here on every delivery and stay for ever: it becomes an empty, malformed hint. */
  protected override createJob(data: JobJson, jobId: string): Job<unknown, void, string, number> {
    try {
      return super.createJob(data, jobId);
    } catch {
      return super.createJob({ ...data, data: '{}' }, jobId);
    }
  }

  /** After an error BullMQ waits "for ever", which its Postgres backend takes for an hour: never longer than `drainDelay`. */
  protected override getBlockTimeout(blockUntil: number): number {
    return Math.min(super.getBlockTimeout(blockUntil), this.opts.drainDelay ?? 1);
  }

  /** BullMQ waits 5 s after a failed look for stalled jobs, and keeps a process that is closing alive for as long. */
  protected override checkConnectionError<T>(look: () => Promise<T>): Promise<T | undefined> {
    return super.checkConnectionError(look, FETCH_RETRY_MS);
  }

  /** BullMQ's default after a failed wait is 100 ms: ten connection attempts a second for each consumer. */
  override delay(milliseconds?: number, abortController?: Parameters<Worker['delay']>[1]): Promise<void> {
    return super.delay(Math.max(milliseconds ?? 0, FETCH_RETRY_MS), abortController);
  }
}
