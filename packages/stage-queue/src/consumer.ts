import type { QueueBackend, StageConsumption } from './backend.ts';
import type { Report } from './error-reports.ts';
import { Hint } from './hint.ts';
import type { Timers } from './ports/timers.ts';
import type { ProcessJob } from './stage-worker.ts';
import type { Stage } from './stages.ts';
import { within } from './within.ts';

export interface ConsumerHealth {
  /** Whether this process takes hints of its stage: not merely whether it is alive. */
  consuming: boolean;
  /** Why not, one clause for a log or a health page. */
  why?: string;
}

/** One process's consumption of one stage. */
export interface Consumer {
  readonly stage: Stage;
  /**
   * Tests that hints are being taken: the worker runs, its connections are up, the queue answers within 1 s, and hints do
   * not wait while this consumer takes none for more than 10 s (60 s while all its slots work). The last is judged
   * between calls, so ask regularly. Never rejects; takes at most 1 s.
   */
  health(): Promise<ConsumerHealth>;
  /**
   * Takes no further hint, waits up to `graceMs` milliseconds for running handlers, and closes. `drained: false` when a
   * handler still ran: its job loses its lock and counts as stalled. Never rejects; takes at most `graceMs` + 4 s, also
   * when the backend is gone. A second call returns the first one's result.
   */
  drain(graceMs: number): Promise<{ drained: boolean }>;
}

export interface ConsumeOptions {
  /** Handlers that may run at the same time in this process. */
  concurrency: number;
  /**
   * Milliseconds after which a job whose process fell silent counts as stalled, default 10,000: until then a new hint of
   * the same id is swallowed. Longer than any pause of the event loop, shorter than a stage lease (15 s).
   */
  lockMs?: number;
  /** Told of each job of the stage whose worker fell silent, when this process notices it. */
  onStalled?: () => void;
}

/** `waited_ms`: from sending the hint to taking it, by the clocks of the two processes; never negative. */
export type HandleHint = (hint: Hint, taken: { waited_ms: number }) => Promise<void>;

export const LOCK_MS = 10_000;

/** Longest answer of `health`, milliseconds. */
const HEALTH_MAX_MS = 1_000;

/**
 * Hints waiting and none taken for this long, milliseconds: the consumer is stuck. An idle worker looks every 5 s (Redis)
 * or 8 s (Postgres) even if its wake-up got lost.
 */
const UNTAKEN_MAX_MS = 10_000;

/** The same while every slot works. A call takes up to 20 s, so a slot that has not come free in a minute hangs. */
const BUSY_MAX_MS = 60_000;

/** Milliseconds granted to a fetch under way, to a clean close and to a forced one when draining. */
const FETCH_SETTLE_MS = 1_000;
const CLOSE_MAX_MS = 2_000;
const ABANDON_MAX_MS = 1_000;

/**
 * How often a stalled job is run again. Never on `execute`: after a crash the attempt row, not the queue, decides what
 * happens next (protocol rules 9 and 15).
 */
export function stalledMax(stage: Stage): number {
  return stage === 'execute' ? 0 : 1;
}

export interface ConsumerDependencies {
  backend: QueueBackend;
  report: Report;
  timers: Timers;
}

export function startConsumer(
  { backend, report, timers }: ConsumerDependencies,
  stage: Stage,
  handle: HandleHint,
  options: ConsumeOptions,
): Consumer {
  /** Jobs taken and not ended: the objects, because a job that stalled may run a second time under the same id. */
  const running = new Set<object>();
  let whenIdle: (() => void)[] = [];
  let draining: Promise<{ drained: boolean }> | undefined;
  let refusing = false;
  let closing = false;
  let takenAt = timers.monotonicMs();
  let waitingSince: number | undefined;

  const ended = (job: object): void => {
    running.delete(job);
    if (running.size > 0) return;
    for (const resolve of whenIdle) resolve();
    whenIdle = [];
  };

  const process: ProcessJob = async (job) => {
    // The job may have been edited in the store, its options too: it is removed whatever they say.
    job.opts.removeOnComplete = true;
    job.opts.removeOnFail = true;
    job.opts.attempts = 1;
    const jobId = job.id ?? '';
    try {
      const hint = Hint.safeParse(job.data);
      if (!hint.success) {
        report(
          new MalformedHintError(
            stage,
            jobId,
            hint.error.issues.map(({ message }) => message),
          ),
          `${stage}.malformed_hint`,
        );
        return;
      }
      // Taken by a fetch that outlived its wait in `drain`: a lost hint is normal, a handler cut off half-way is not.
      if (refusing && !running.has(job)) return;
      await handle(hint.data, { waited_ms: Math.max(0, (job.processedOn ?? job.timestamp) - job.timestamp) });
    } catch (error) {
      // The run's row decides what comes next; a failed job would change nothing but the queue's own books.
      report(error, `${stage}.handler`);
    } finally {
      ended(job);
    }
  };

  const consumption: StageConsumption = backend.work(
    stage,
    { concurrency: options.concurrency, lockMs: options.lockMs ?? LOCK_MS, stalledMax: stalledMax(stage) },
    {
      process,
      onTaken: (job) => {
        // Announced after `drain` stopped waiting for fetches: `process` will let it go.
        if (!refusing) running.add(job);
        takenAt = timers.monotonicMs();
        waitingSince = undefined;
      },
      onStalled: () => options.onStalled?.(),
      onError: (error) => {
        if (!closing) report(error, `${stage}.worker`);
      },
    },
  );

  async function health(): Promise<ConsumerHealth> {
    if (draining !== undefined) return { consuming: false, why: 'the consumer is draining' };
    if (!consumption.worker.isRunning()) return { consuming: false, why: 'the worker does not run' };
    const connected = consumption.connected();
    if (!connected.up) return { consuming: false, why: connected.why };
    let waiting: number;
    try {
      const answer = await within(timers, HEALTH_MAX_MS, backend.waiting(stage));
      if (answer.kind === 'late') return { consuming: false, why: 'the queue did not answer within 1 s' };
      waiting = answer.value;
    } catch (error) {
      return { consuming: false, why: `the queue does not answer: ${messageOf(error)}` };
    }
    const now = timers.monotonicMs();
    if (waiting === 0) {
      waitingSince = undefined;
      return { consuming: true };
    }
    waitingSince ??= now;
    const untakenMs = now - Math.max(waitingSince, takenAt);
    const busy = running.size >= options.concurrency;
    if (untakenMs <= (busy ? BUSY_MAX_MS : UNTAKEN_MAX_MS)) return { consuming: true };
    const seconds = Math.round(untakenMs / 1_000);
    return {
      consuming: false,
      why: `${waiting} hints wait and none was taken for ${seconds} s${busy ? ', every slot is busy' : ''}`,
    };
  }

  function idle(): Promise<void> {
    if (running.size === 0) return Promise.resolve();
    return new Promise((resolve) => {
      whenIdle.push(resolve);
    });
  }

  async function drainOnce(graceMs: number): Promise<{ drained: boolean }> {
    const { worker } = consumption;
    worker.refuse();
    await within(timers, FETCH_SETTLE_MS, worker.fetchSettled());
    refusing = true;
    const drained = running.size === 0 || (await within(timers, graceMs, idle())).kind === 'done';
    closing = true;
    // The clean close also records the end of the jobs just finished; it hangs while the backend is away.
    const closed = drained && (await settled(within(timers, CLOSE_MAX_MS, worker.finish())));
    if (!closed) await settled(within(timers, ABANDON_MAX_MS, worker.abandon()));
    return { drained };
  }

  return {
    stage,
    health,
    drain: (graceMs) => {
      draining ??= drainOnce(graceMs);
      return draining;
    },
  };
}

/** Whether the work ended in time, well or not. */
async function settled(work: ReturnType<typeof within>): Promise<boolean> {
  try {
    return (await work).kind === 'done';
  } catch {
    return true;
  }
}

/** A job on the queue whose data is not a hint: somebody edited it, or something else writes to this queue. */
export class MalformedHintError extends Error {
  override readonly name = 'MalformedHintError';
  /** Stable, so that equal reports can be held back; the job id is in the message. */
  readonly code = 'queue.malformed_hint';

  constructor(stage: Stage, jobId: string, issues: string[]) {
    super(
      `Job ${JSON.stringify(jobId.slice(0, 128))} on queue ${stage} is not a hint and was removed: ${issues.join('; ')}`,
    );
  }
}

function messageOf(error: unknown): string {
  return error instanceof Error && error.message !== '' ? error.message : String(error);
}
