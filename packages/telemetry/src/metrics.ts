import { type Clock, isClosed, type Service, type Stage, type State } from '@counterstamp/manifest-core';
import { collectDefaultMetrics, Registry } from 'prom-client';
import {
  type ClosureResult,
  type DeferralCode,
  type LookResult,
  type OutcomeClass,
  RETRY_TRIGGERS,
} from './catalogue.ts';
import { type Backlog, type Census, exportBacklog, exportCensus } from './census-metrics.ts';
import { createInstruments } from './instruments.ts';
import { createReading } from './reading.ts';

/** A move that this process committed. */
export interface CommittedMove {
  /** Null: the run was created. `other`: only the database knows. */
  from: State | 'other' | null;
  to: State;
  trigger: string;
  /** Null where the run does not stop. */
  stop_reason: string | null;
}

/** The process's pool of connections, at one moment. */
export interface DatabasePool {
  limit: number;
  /** Statements and transactions that are not answered yet. */
  open: number;
  /** Age of the oldest of them in milliseconds; 0: none. */
  oldest_ms: number;
}

/** What the product counts and measures. Which of it a process exports, and under which names and labels, is the catalogue's to say. */
export interface Metrics {
  transition(move: CommittedMove): void;
  /** How long a run had been in the state that it was moved out of. */
  stateLeft(state: State, ms: number): void;
  swapLost(stage: Stage): void;
  deferred(stage: Stage, code: DeferralCode): void;
  hint(stage: Stage, result: 'queued' | 'unavailable'): void;
  /** A hint that the sweeper sent again. */
  hintResent(stage: Stage): void;
  /** From sending a hint to taking it. */
  queueWait(stage: Stage, ms: number): void;
  queueStalled(stage: Stage): void;
  stageDone(stage: Stage, ms: number): void;
  attempt(outcome: OutcomeClass, ms: number): void;
  look(purpose: 'verify' | 'reconcile' | 'closure_audit', result: LookResult): void;
  closureAudit(result: ClosureResult): void;
  /** `waited_ms`: from asking for the approval to the decision; null when nobody knows. */
  decision(decision: 'approve' | 'reject', waited_ms: number | null): void;
  /** Something that only tampering or a broken glass explains; `code` from a closed set. */
  alarm(code: string): void;
  sweep(
    result: 'ok' | 'failed',
    runs?: { claimed: number /** Left to the next one: somebody held their rows. */; skipped: number },
  ): void;
  httpRequest(request: { method: string; route: string; status: number; ms: number }): void;
  rateLimited(limiter: string): void;
  /** A statement that was answered, or that failed for want of the database. */
  statement(ms: number, answered: boolean): void;
  /** This process's clock minus the database's. */
  clockOffset(ms: number): void;
  onPool(read: () => DatabasePool): void;
  onConsuming(read: () => Promise<{ stage: Stage; consuming: boolean }[]>): void;
  onSessionLease(held: () => boolean): void;
  /** What is open in the whole database, read at a scrape, at most once per five seconds. */
  onCensus(read: () => Promise<Census>): void;
  onBacklog(read: () => Promise<Backlog[]>): void;
  /** Prometheus text format; within 2 s, whatever hangs. */
  text(): Promise<string>;
  readonly contentType: string;
}

/** Consumers are asked at most this often, and a scrape waits for them at most this long, in milliseconds. */
const CONSUMING_FRESH_MS = 2_000;
const CONSUMING_WAIT_MS = 1_200;

export function createMetrics(
  service: Service,
  clock: Clock,
  build: { version: string; backend: 'redis' | 'postgres' },
  log: { warn(fields: Record<string, unknown>, message: string): void },
): Metrics {
  const registry = new Registry();
  registry.setDefaultLabels({ service });
  collectDefaultMetrics({ register: registry });
  const instruments = createInstruments(service, registry);
  const { add, set, observe } = instruments;
  const failed = (what: string) => (error: unknown) =>
    log.warn(
      { reason: error instanceof Error ? error.message : String(error) },
      `${what} failed; metrics show the last one, with its age`,
    );
  set('counterstamp_build_info', { ...build, node: process.version }, 1);

  return {
    transition({ from, to, trigger, stop_reason }) {
      add('counterstamp_transitions_total', { from: from ?? 'none', to, trigger, stop_reason: stop_reason ?? 'none' });
      if (isRetry(trigger)) add('counterstamp_retries_total', { trigger });
      if (isClosed(to)) add('counterstamp_runs_finished_total', { state: to });
    },
    stateLeft: (state, ms) => observe('counterstamp_state_duration_seconds', { state }, ms / 1_000),
    swapLost: (stage) => add('counterstamp_swaps_lost_total', { stage }),
    deferred: (stage, code) => add('counterstamp_deferred_total', { stage, code }),
    hint: (stage, result) => add('counterstamp_hints_total', { stage, result }),
    hintResent: (stage) => add('counterstamp_hints_resent_total', { stage }),
    queueWait: (stage, ms) => observe('counterstamp_queue_wait_seconds', { stage }, ms / 1_000),
    queueStalled: (stage) => add('counterstamp_queue_stalled_total', { stage }),
    stageDone: (stage, ms) => observe('counterstamp_stage_duration_seconds', { stage }, ms / 1_000),
    attempt(outcome, ms) {
      add('counterstamp_attempts_total', { outcome });
      observe('counterstamp_attempt_duration_seconds', { outcome }, ms / 1_000);
    },
    look: (purpose, result) => add('counterstamp_looks_total', { purpose, result }),
    closureAudit: (result) => add('counterstamp_closure_audits_total', { result }),
    decision(decision, waited_ms) {
      add('counterstamp_decisions_total', { decision });
      if (waited_ms !== null) observe('counterstamp_time_to_decision_seconds', { decision }, waited_ms / 1_000);
    },
    alarm: (code) => add('counterstamp_alarms_total', { code }),
    sweep(result, runs = { claimed: 0, skipped: 0 }) {
      add('counterstamp_sweeps_total', { result });
      add('counterstamp_sweep_claimed_total', {}, runs.claimed);
      add('counterstamp_sweep_skipped_total', {}, runs.skipped);
      if (result === 'ok') set('counterstamp_sweep_last_success_timestamp_seconds', {}, clock.wallMs() / 1_000);
    },
    httpRequest: ({ method, route, status, ms }) =>
      observe(
        'counterstamp_http_request_duration_seconds',
        { method, route, status: `${Math.floor(status / 100)}xx` },
        ms / 1_000,
      ),
    rateLimited: (limiter) => add('counterstamp_rate_limited_total', { limiter }),
    statement(ms, answered) {
      observe('counterstamp_database_statement_duration_seconds', {}, ms / 1_000);
      if (!answered) add('counterstamp_database_failures_total', {});
    },
    clockOffset: (ms) => set('counterstamp_clock_offset_seconds', {}, ms / 1_000),
    onPool(read) {
      instruments.collected('counterstamp_database_pool_connections', (put) => {
        const { limit, open } = read();
        put({ state: 'limit' }, limit);
        put({ state: 'busy' }, Math.min(limit, open));
      });
      instruments.collected('counterstamp_database_statements_waiting', (put) => {
        const { limit, open } = read();
        put({}, Math.max(0, open - limit));
      });
      instruments.collected('counterstamp_database_oldest_statement_age_seconds', (put) =>
        put({}, read().oldest_ms / 1_000),
      );
    },
    onConsuming(read) {
      const reading = createReading(read, { clock, fresh_ms: CONSUMING_FRESH_MS, wait_ms: CONSUMING_WAIT_MS });
      instruments.collected('counterstamp_consuming', async (put) => {
        for (const { stage, consuming } of (await reading.latest()).value ?? []) put({ stage }, consuming ? 1 : 0);
      });
    },
    onSessionLease: (held) =>
      instruments.collected('counterstamp_session_lease_held', (put) => put({}, held() ? 1 : 0)),
    onCensus: (read) => exportCensus(instruments, read, clock, failed('the census')),
    onBacklog: (read) => exportBacklog(instruments, read, clock, failed('the reading of the queues')),
    text: () => registry.metrics(),
    contentType: registry.contentType,
  };
}

function isRetry(trigger: string): boolean {
  return (RETRY_TRIGGERS as readonly string[]).includes(trigger);
}
