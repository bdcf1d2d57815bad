import type { Clock, Service, Stage, State } from '@counterstamp/manifest-core';
import { AGE_BUCKETS_S, type MetricName, OPEN_STATES, PARKED_REASONS, TENANT_RANKS } from './catalogue.ts';
import type { Instruments } from './instruments.ts';
import { createReading, type Latest, type Reading } from './reading.ts';

/** What is open in the whole database at one moment; ages in milliseconds. What is not named is zero. */
export interface Census {
  states: {
    state: State;
    count: number;
    oldest_age_ms: number;
    total_age_ms: number /** Per `AGE_BUCKETS_S` and above. */;
    buckets: number[];
  }[];
  parked: { reason: string; count: number; oldest_age_ms: number }[];
  /** In doubt and not parked. */
  doubt: { oldest_age_ms: number };
  due: { count: number; oldest_age_ms: number };
  approvals: { waiting: number; expiring_soon: number };
  /** With the most open runs first. */
  tenants: { open_runs: number; oldest_machine_wait_ms: number }[];
  /** Of all tenants beyond these. */
  rest: { tenants: number; open_runs: number; oldest_machine_wait_ms: number };
  holds: { scope: 'all' | 'connector'; count: number; oldest_age_ms: number }[];
  instances: { service: Service; count: number }[];
}

/** Hints of one stage. */
export interface Backlog {
  stage: Stage;
  waiting: number;
  active: number;
  /** Of the oldest waiting hint; 0: none waits. */
  oldest_age_ms: number;
}

/** A census is at most this old when it is asked for, and a scrape waits for it at most this long, in milliseconds. */
const FRESH_MS = 5_000;
const WAIT_MS = 1_000;

/** The gauges of what the whole database holds. `read` may be slow, hang or fail: a scrape is answered all the same, with the last figures and their age. */
export function exportCensus(
  instruments: Instruments,
  read: () => Promise<Census>,
  clock: Clock,
  onFailure: (error: unknown) => void,
): void {
  const reading = createReading(read, { clock, fresh_ms: FRESH_MS, wait_ms: WAIT_MS, onFailure });
  const figures = (
    name: MetricName,
    labels: string,
    values: readonly string[],
    of: (census: Census, value: string) => number,
  ) =>
    instruments.collected(name, async (set) => {
      const { value: census } = await reading.latest();
      if (census === undefined) return;
      for (const value of values) set(labels === '' ? {} : { [labels]: value }, of(census, value));
    });
  const figure = (name: MetricName, of: (census: Census) => number) => figures(name, '', [''], of);

  const ofState = (census: Census, state: string) => census.states.find((line) => line.state === state);
  figures('counterstamp_runs', 'state', OPEN_STATES, (census, state) => ofState(census, state)?.count ?? 0);
  figures(
    'counterstamp_oldest_run_age_seconds',
    'state',
    OPEN_STATES,
    (census, state) => (ofState(census, state)?.oldest_age_ms ?? 0) / 1_000,
  );
  instruments.snapshot('counterstamp_run_age_seconds', async () => {
    const { value: census } = await reading.latest();
    if (census === undefined) return [];
    return OPEN_STATES.map((state) => {
      const line = ofState(census, state);
      return {
        labels: { state },
        buckets: line?.buckets ?? AGE_BUCKETS_S.map(() => 0),
        sum: (line?.total_age_ms ?? 0) / 1_000,
        count: line?.count ?? 0,
      };
    });
  });
  const ofReason = (census: Census, reason: string) => census.parked.find((line) => line.reason === reason);
  figures(
    'counterstamp_runs_parked',
    'reason',
    PARKED_REASONS,
    (census, reason) => ofReason(census, reason)?.count ?? 0,
  );
  figures(
    'counterstamp_oldest_parked_age_seconds',
    'reason',
    PARKED_REASONS,
    (census, reason) => (ofReason(census, reason)?.oldest_age_ms ?? 0) / 1_000,
  );
  figure('counterstamp_oldest_doubt_age_seconds', (census) => census.doubt.oldest_age_ms / 1_000);
  figure('counterstamp_runs_due', (census) => census.due.count);
  figure('counterstamp_oldest_due_age_seconds', (census) => census.due.oldest_age_ms / 1_000);
  figure('counterstamp_approvals_waiting', (census) => census.approvals.waiting);
  figure('counterstamp_approvals_expiring_soon', (census) => census.approvals.expiring_soon);
  const ofScope = (census: Census, scope: string) => census.holds.find((line) => line.scope === scope);
  figures('counterstamp_holds', 'scope', ['all', 'connector'], (census, scope) => ofScope(census, scope)?.count ?? 0);
  figures(
    'counterstamp_oldest_hold_age_seconds',
    'scope',
    ['all', 'connector'],
    (census, scope) => (ofScope(census, scope)?.oldest_age_ms ?? 0) / 1_000,
  );
  figure('counterstamp_tenants_with_open_runs', (census) => census.tenants.length + census.rest.tenants);
  const ofRank = (census: Census, rank: string) => (rank === 'rest' ? census.rest : census.tenants[Number(rank) - 1]);
  const ranks = [...TENANT_RANKS, 'rest'];
  figures('counterstamp_tenant_open_runs', 'rank', ranks, (census, rank) => ofRank(census, rank)?.open_runs ?? 0);
  figures(
    'counterstamp_tenant_oldest_machine_wait_seconds',
    'rank',
    ranks,
    (census, rank) => (ofRank(census, rank)?.oldest_machine_wait_ms ?? 0) / 1_000,
  );
  const services = ['preflight', 'executor', 'verifier', 'reconciler', 'api'];
  figures(
    'counterstamp_instances_alive',
    'instance_of',
    services,
    (census, service) => census.instances.find((line) => line.service === service)?.count ?? 0,
  );

  standing(instruments, reading, 'counterstamp_census_age_seconds', (latest) => latest.age_ms / 1_000);
  standing(
    instruments,
    reading,
    'counterstamp_census_last_success_timestamp_seconds',
    (latest) => latest.at_ms / 1_000,
  );
  standing(instruments, reading, 'counterstamp_census_duration_seconds', (latest) => latest.took_ms / 1_000);
  standing(instruments, reading, 'counterstamp_census_failures_total', (latest) => latest.failures);
}

/** The gauges of all queues, as any one process sees them. */
export function exportBacklog(
  instruments: Instruments,
  read: () => Promise<Backlog[]>,
  clock: Clock,
  onFailure: (error: unknown) => void,
): void {
  const reading = createReading(read, { clock, fresh_ms: FRESH_MS, wait_ms: WAIT_MS, onFailure });
  instruments.collected('counterstamp_queue_jobs', async (set) => {
    for (const { stage, waiting, active } of (await reading.latest()).value ?? []) {
      set({ stage, state: 'waiting' }, waiting);
      set({ stage, state: 'active' }, active);
    }
  });
  instruments.collected('counterstamp_queue_oldest_job_age_seconds', async (set) => {
    for (const { stage, oldest_age_ms } of (await reading.latest()).value ?? []) set({ stage }, oldest_age_ms / 1_000);
  });
  standing(instruments, reading, 'counterstamp_queue_reading_age_seconds', (latest) => latest.age_ms / 1_000);
}

/** What a reading says about itself; exported also while there is no value. */
function standing<T>(
  instruments: Instruments,
  reading: Reading<T>,
  name: MetricName,
  of: (latest: Latest<T>) => number,
): void {
  instruments.collected(name, async (set) => set({}, of(await reading.latest())));
}
