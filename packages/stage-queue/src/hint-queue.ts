import type { QueueBackend, StageBacklog } from './backend.ts';
import { type ConsumeOptions, type Consumer, type HandleHint, startConsumer } from './consumer.ts';
import { type OnError, type Report, rateLimitedReport } from './error-reports.ts';
import { Hint, hintJobId } from './hint.ts';
import { systemTimers, type Timers } from './ports/timers.ts';
import { PostgresBackend, QUEUE_SCHEMA } from './postgres-backend.ts';
import { RedisBackend } from './redis-backend.ts';
import { type Lane, STAGES, type Stage } from './stages.ts';
import { within } from './within.ts';

/**
 * Why a hint did not leave. Every one of them is normal: the run's `wake_at` brings the fleet back without it.
 * `deadline`: no answer within 1 s, it may still arrive. `circuit_open`: an earlier add is still unanswered.
 * `backlog`: too many adds under way. `malformed`: a bug of the caller, reported as an error too.
 */
export type HintFailure =
  | 'not_connected'
  | 'deadline'
  | 'circuit_open'
  | 'backlog'
  | 'refused'
  | 'malformed'
  | 'closed';

export type HintResult = 'queued' | { kind: 'unavailable'; reason: HintFailure };

export type PingResult = { kind: 'ok'; ms: number } | { kind: 'unavailable'; reason: string };

/** Queues of hints, one per stage. Nothing in here decides anything: a worker reloads the run and judges that. */
export interface HintQueue {
  /**
   * Sends a hint after a commit. Never rejects and takes at most 1 s. The same hint while the first waits or runs is one job, in the lane of the
   * first. Hints of a lower lane are taken before those of a higher one; default: the lowest.
   */
  hint(stage: Stage, hint: { run_id: string; revision: number }, lane?: Lane): Promise<HintResult>;
  /**
   * Calls `handle` for every hint of a stage until drained. A handler that throws is reported and its job removed; a
   * malformed job is reported and removed without calling the handler. Consumption resumes by itself after an outage.
   */
  consume(stage: Stage, handle: HandleHint, options: ConsumeOptions): Consumer;
  /**
   * What waits on every queue and what is worked on. Takes at most 1 s.
   * @throws {Error} when the backend does not answer in that time.
   */
  backlog(): Promise<({ stage: Stage } & StageBacklog)[]>;
  /** One round trip to the backend. Never rejects and takes at most 1 s. */
  ping(): Promise<PingResult>;
  /** Drains every consumer without grace and drops every connection. Never rejects and takes at most 7 s. */
  close(): Promise<void>;
}

export type QueueSettings =
  | {
      backend: 'redis';
      url: string /** Of every key, in braces with the stage; default `counterstamp`. */;
      prefix?: string;
    }
  | {
      backend: 'postgres';
      url: string;
      /** Where `migrateQueue` put BullMQ's tables; default `bullmq`. */
      schema?: string;
      /** Connections of this process, at least 2 (one listens); default 5. */
      connectionsMax?: number;
    };

/** Longest wait for a hint or a ping, milliseconds. A commit or an HTTP answer may wait for this, so it is short. */
const HINT_MAX_MS = 1_000;

/** Adds under way at a time. Bounds what a backend that stopped answering finds when it wakes, and the memory meanwhile. */
const ADDS_MAX = 256;

/** Longest time to drop the connections at the end, milliseconds. */
const CLOSE_MAX_MS = 2_000;

/**
 * Opens the queues; returns at once and connects in the background. A backend that is away now is found when it comes.
 * Which backend it is comes from the environment only; the caller reads that.
 */
export function openHintQueue(settings: QueueSettings, options: { onError: OnError; timers?: Timers }): HintQueue {
  const timers = options.timers ?? systemTimers;
  let closed = false;
  const reportOpen = rateLimitedReport(options.onError, timers);
  const report: Report = (error, where) => {
    // Connections that are being dropped say so in many words.
    if (!closed) reportOpen(error, where);
  };
  const backend = openBackend(settings, report, timers);
  return hintQueueOn(backend, report, timers, () => {
    closed = true;
  });
}

function openBackend(settings: QueueSettings, report: Report, timers: Timers): QueueBackend {
  if (settings.backend === 'redis') {
    return new RedisBackend({ url: settings.url, prefix: settings.prefix ?? 'counterstamp' }, report, timers);
  }
  const { url, schema = QUEUE_SCHEMA, connectionsMax } = settings;
  return new PostgresBackend(
    { url, schema, ...(connectionsMax === undefined ? {} : { connectionsMax }) },
    report,
    timers,
  );
}

/** The queue over a backend. Separate so that tests can drive it with a backend that hangs or fails at will. */
export function hintQueueOn(backend: QueueBackend, report: Report, timers: Timers, onClose: () => void): HintQueue {
  const consumers = new Set<Consumer>();
  let closing: Promise<void> | undefined;
  let opened = false;
  let adds = 0;
  /** Adds that missed their deadline and have not ended. While there is one, no other is tried. */
  let overdue = 0;
  backend.opened.then(
    () => {
      opened = true;
    },
    () => {},
  );

  async function hint(stage: Stage, input: { run_id: string; revision: number }, lane: Lane = 0): Promise<HintResult> {
    const parsed = Hint.safeParse(input);
    if (!parsed.success) {
      report(parsed.error, `${stage}.hint`);
      return unavailable('malformed');
    }
    if (closing !== undefined) return unavailable('closed');
    if (overdue > 0) return unavailable('circuit_open');
    if (adds >= ADDS_MAX) return unavailable('backlog');
    const startedAt = timers.monotonicMs();
    adds += 1;
    try {
      // Only the first hints of a process wait for a connection; after an outage they fail at once until it is back.
      if (!opened) await within(timers, HINT_MAX_MS, backend.opened);
      if (!backend.ready()) return unavailable('not_connected');
      const adding = backend.add(stage, hintJobId(stage, parsed.data), parsed.data, lane);
      const answer = await within(timers, Math.max(0, HINT_MAX_MS - (timers.monotonicMs() - startedAt)), adding);
      if (answer.kind === 'done') return 'queued';
      overdue += 1;
      const over = (): void => {
        overdue -= 1;
      };
      adding.then(over, over);
      if (overdue === 1) backend.renew();
      return unavailable('deadline');
    } catch (error) {
      report(error, `${stage}.hint`);
      return unavailable('refused');
    } finally {
      adds -= 1;
    }
  }

  async function ping(): Promise<PingResult> {
    if (closing !== undefined) return { kind: 'unavailable', reason: 'closed' };
    const startedAt = timers.monotonicMs();
    try {
      if (!opened) await within(timers, HINT_MAX_MS, backend.opened);
      if (!backend.ready()) return { kind: 'unavailable', reason: 'not connected' };
      const left = Math.max(0, HINT_MAX_MS - (timers.monotonicMs() - startedAt));
      const answer = await within(timers, left, backend.ping());
      if (answer.kind === 'done') return { kind: 'ok', ms: timers.monotonicMs() - startedAt };
      return { kind: 'unavailable', reason: 'no answer within 1 s' };
    } catch (error) {
      return { kind: 'unavailable', reason: error instanceof Error ? error.message : String(error) };
    }
  }

  async function backlog(): Promise<({ stage: Stage } & StageBacklog)[]> {
    if (closing !== undefined || !backend.ready()) throw new Error('the queue is not connected');
    const reading = Promise.all(STAGES.map(async (stage) => ({ stage, ...(await backend.backlog(stage)) })));
    const answer = await within(timers, HINT_MAX_MS, reading);
    if (answer.kind === 'late') throw new Error('the queue did not answer within 1 s');
    return answer.value;
  }

  async function closeOnce(): Promise<void> {
    await Promise.all([...consumers].map((consumer) => consumer.drain(0)));
    onClose();
    try {
      await within(timers, CLOSE_MAX_MS, backend.close());
    } catch {
      // The process is about to end; a connection that did not close cleanly is closed by its end.
    }
  }

  return {
    hint,
    consume: (stage, handle, options) => {
      if (closing !== undefined) throw new Error('this hint queue has been closed');
      const consumer = startConsumer({ backend, report, timers }, stage, handle, options);
      consumers.add(consumer);
      return consumer;
    },
    backlog,
    ping,
    close: () => {
      closing ??= closeOnce();
      return closing;
    },
  };
}

function unavailable(reason: HintFailure): HintResult {
  return { kind: 'unavailable', reason };
}
