import {
  CLOSED,
  SERVICES,
  type Service,
  STAGES,
  STATES,
  STOP_REASONS,
  type State,
  TRIGGERS,
} from '@counterstamp/manifest-core';

/** Values that a label may take. Whatever else is handed in is counted as `other`: no caller can make a series. */
type Values = readonly string[];

export interface MetricEntry {
  readonly type: 'counter' | 'gauge' | 'histogram';
  /** What it counts or measures; units are in the name. */
  readonly help: string;
  readonly labels: Readonly<Record<string, Values>>;
  /** Which processes export it. */
  readonly by: readonly Service[];
  /** Upper bounds of a histogram, in seconds. */
  readonly buckets?: readonly number[];
  /** Every reconciler counts the whole database: take `max without (instance)`, never a sum. */
  readonly whole_fleet?: true;
}

/** States of runs that somebody still has to come back to. */
export const OPEN_STATES: readonly State[] = STATES.filter((state) => !(CLOSED as readonly State[]).includes(state));

/** Why a run may wait for a person. */
export const PARKED_REASONS: readonly string[] = Object.entries(STOP_REASONS)
  .filter(([, entry]) => (entry.states as readonly State[]).includes('needs_reconciliation'))
  .map(([code]) => code);

/** Why a run was left alone for a while on an unchanged revision. */
export const DEFERRAL_CODES = [
  'read_failed',
  'not_connected',
  'not_installed',
  'keys_missing',
  'expires_too_soon',
  'on_hold',
  'resource_busy',
  'resend_backoff',
  'closure_rest',
  'closure_unanswered',
] as const;
export type DeferralCode = (typeof DEFERRAL_CODES)[number];

/** What one physical request came to, in the connector port's words. */
export const OUTCOME_CLASSES = ['applied', 'rejected', 'not_sent', 'retry_safe', 'uncertain'] as const;
export type OutcomeClass = (typeof OUTCOME_CLASSES)[number];

/** What a look at the business record showed: `exact` is our effect with every field equal. */
export const LOOK_RESULTS = ['exact', 'different', 'multiple', 'lookalike', 'absent', 'unknown'] as const;
export type LookResult = (typeof LOOK_RESULTS)[number];

/** What a look at a closed run came to. */
export const CLOSURE_RESULTS = ['nothing_new', 'effect_found', 'effect_reversed', 'unanswered', 'given_up'] as const;
export type ClosureResult = (typeof CLOSURE_RESULTS)[number];

/** Triggers by which something is tried again. */
export const RETRY_TRIGGERS = [
  'read_failed',
  'proposal_asked_again',
  'proposal_refused',
  'evidence_changed',
  'verification_pending',
  'look_inconclusive',
  'retry_recorded',
  'resend_recorded',
  'retry_refused',
] as const;

/** Alarms: signs of tampering, and a broken glass. */
export const ALARM_CODES = [
  'digest_mismatch',
  'approval_invalid',
  'approval_forged',
  'evidence_altered',
  'break_glass',
] as const;

/** Places of a tenant among those with the most open runs. Never its name: the command `counterstamp tenant load` says who it is. */
export const TENANT_RANKS = ['1', '2', '3', '4', '5'] as const;

/** Seconds by which ages of open runs are told apart: from a hiccup to a day. */
export const AGE_BUCKETS_S = [1, 5, 15, 30, 60, 120, 300, 600, 1_800, 3_600, 14_400, 86_400] as const;

/** An approval that expires within this many seconds and is not decided is worth a look. Start value: a third of an approval's 15 minutes. */
export const EXPIRING_SOON_S = 300;

/** How a census groups what it counts, for the gauges below. */
export const CENSUS_TERMS = {
  age_bounds_s: AGE_BUCKETS_S,
  expiring_soon_s: EXPIRING_SOON_S,
  tenants_max: TENANT_RANKS.length,
} as const;

const WORKERS = ['preflight', 'executor', 'verifier', 'reconciler'] as const satisfies readonly Service[];
const CALL_BUCKETS_S = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30] as const;
const REASONS: Values = ['none', ...Object.keys(STOP_REASONS)];

/**
 * Every metric of the product: the operator's contract. A name never changes its meaning; docs/reference/metrics.md is rendered from here.
 * Beside these every process exports prom-client's own `process_*` and `nodejs_*` (event loop lag, memory, garbage collection).
 */
export const METRICS = {
  // What is open, counted in the database.
  counterstamp_runs: gauge('Open runs by state.', ['reconciler'], { state: OPEN_STATES }, true),
  counterstamp_oldest_run_age_seconds: gauge(
    'How long the longest-waiting run has been in its state; 0: none is.',
    ['reconciler'],
    { state: OPEN_STATES },
    true,
  ),
  counterstamp_run_age_seconds: histogram(
    'How long each open run has been in its state, at the last census: a snapshot, so that quantiles are taken of it as it is, without rate().',
    ['reconciler'],
    { state: OPEN_STATES },
    AGE_BUCKETS_S,
    true,
  ),
  counterstamp_runs_due: gauge(
    'Open runs whose wake-up time has passed and that no sweep has claimed yet.',
    ['reconciler'],
    {},
    true,
  ),
  counterstamp_oldest_due_age_seconds: gauge(
    'For how long the longest-due run has waited for a sweep; 0: none is due.',
    ['reconciler'],
    {},
    true,
  ),
  counterstamp_runs_parked: gauge(
    'Runs in doubt that wait for a person, by why.',
    ['reconciler'],
    { reason: PARKED_REASONS },
    true,
  ),
  counterstamp_oldest_parked_age_seconds: gauge(
    'How long the longest-parked run has been in doubt; 0: none is parked.',
    ['reconciler'],
    { reason: PARKED_REASONS },
    true,
  ),
  counterstamp_oldest_doubt_age_seconds: gauge(
    'How long the fleet has been looking after the run that has been in doubt longest and is not parked; 0: none is.',
    ['reconciler'],
    {},
    true,
  ),
  counterstamp_approvals_waiting: gauge(
    'Approvals that are asked for and not yet sufficient.',
    ['reconciler'],
    {},
    true,
  ),
  counterstamp_approvals_expiring_soon: gauge(
    `Of these, the ones that expire within ${EXPIRING_SOON_S} s.`,
    ['reconciler'],
    {},
    true,
  ),
  counterstamp_holds: gauge(
    'Holds that are set: on every dispatch, or on one connector’s.',
    ['reconciler'],
    { scope: ['all', 'connector'] },
    true,
  ),
  counterstamp_oldest_hold_age_seconds: gauge(
    'For how long the oldest hold has been set; 0: none is.',
    ['reconciler'],
    { scope: ['all', 'connector'] },
    true,
  ),
  counterstamp_tenants_with_open_runs: gauge('Tenants that have open runs.', ['reconciler'], {}, true),
  counterstamp_tenant_open_runs: gauge(
    'Open runs of the tenants that have the most, by place; `rest`: of all others together.',
    ['reconciler'],
    { rank: [...TENANT_RANKS, 'rest'] },
    true,
  ),
  counterstamp_tenant_oldest_machine_wait_seconds: gauge(
    'How long the tenant of that place has waited longest for a worker (states before the approval and verifying); `rest`: of all others.',
    ['reconciler'],
    { rank: [...TENANT_RANKS, 'rest'] },
    true,
  ),
  counterstamp_instances_alive: gauge(
    'Process lives with a heartbeat within the last 20 s, as the database knows them.',
    ['reconciler'],
    { instance_of: SERVICES },
    true,
  ),
  counterstamp_census_age_seconds: gauge(
    'How old the figures above are, by this process’s monotonic clock; before the first census the age of the process.',
    ['reconciler'],
    {},
  ),
  counterstamp_census_last_success_timestamp_seconds: gauge(
    'When the last census succeeded (Unix time of the process); 0: never.',
    ['reconciler'],
    {},
  ),
  counterstamp_census_duration_seconds: gauge(
    'How long the last successful census took, seen from the process.',
    ['reconciler'],
    {},
  ),
  counterstamp_census_failures_total: counter('Censuses that failed or did not end in time.', ['reconciler'], {}),

  // Queues.
  counterstamp_queue_jobs: gauge(
    'Hints on the queues, waiting or being worked on.',
    ['reconciler'],
    { stage: STAGES, state: ['waiting', 'active'] },
    true,
  ),
  counterstamp_queue_oldest_job_age_seconds: gauge(
    'How long the oldest waiting hint has been on its queue; 0: none waits.',
    ['reconciler'],
    { stage: STAGES },
    true,
  ),
  counterstamp_queue_reading_age_seconds: gauge(
    'How old the figures of the queues are; before the first reading the age of the process.',
    ['reconciler'],
    {},
  ),
  counterstamp_consuming: gauge(
    'Whether this process takes hints of the stage (1) or not (0), as its readiness check says.',
    WORKERS,
    { stage: STAGES },
  ),
  counterstamp_queue_wait_seconds: histogram(
    'From sending a hint to taking it.',
    WORKERS,
    { stage: STAGES },
    CALL_BUCKETS_S,
  ),
  counterstamp_queue_stalled_total: counter('Jobs whose worker fell silent, noticed by this process.', WORKERS, {
    stage: STAGES,
  }),
  counterstamp_hints_total: counter('Hints handed to the queue, by whether it took them.', SERVICES, {
    stage: STAGES,
    result: ['queued', 'unavailable'],
  }),

  // What the workers do.
  counterstamp_transitions_total: counter(
    'Committed moves of runs by this process; `stop_reason` is `none` where the run does not stop.',
    SERVICES,
    { from: ['none', ...STATES], to: STATES, trigger: TRIGGERS, stop_reason: REASONS },
  ),
  counterstamp_runs_finished_total: counter('Runs that this process closed.', SERVICES, { state: CLOSED }),
  counterstamp_state_duration_seconds: histogram(
    'How long runs had been in the state that a worker moved them out of. `verifying` is the verification lag.',
    WORKERS,
    { state: OPEN_STATES },
    [0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3_600, 86_400],
  ),
  counterstamp_stage_duration_seconds: histogram(
    'From taking a hint to the end of its work.',
    WORKERS,
    { stage: STAGES },
    CALL_BUCKETS_S,
  ),
  counterstamp_swaps_lost_total: counter('Compare-and-swaps that another worker won first.', WORKERS, {
    stage: STAGES,
  }),
  counterstamp_deferred_total: counter('Runs left alone for a while without a move, by why.', WORKERS, {
    stage: STAGES,
    code: DEFERRAL_CODES,
  }),
  counterstamp_retries_total: counter(
    'Moves by which something is tried again, by their trigger.',
    [...WORKERS, 'api'],
    { trigger: RETRY_TRIGGERS },
  ),
  counterstamp_attempts_total: counter(
    'Requests for an effect that left the executor or were meant to, by outcome class.',
    ['executor'],
    { outcome: OUTCOME_CLASSES },
  ),
  counterstamp_attempt_duration_seconds: histogram(
    'From right before the dispatch commit to the classified answer.',
    ['executor'],
    { outcome: OUTCOME_CLASSES },
    CALL_BUCKETS_S,
  ),
  counterstamp_looks_total: counter('Looks at the business record, by what they showed.', ['verifier', 'reconciler'], {
    purpose: ['verify', 'reconcile', 'closure_audit'],
    result: LOOK_RESULTS,
  }),
  counterstamp_closure_audits_total: counter('Looks at closed runs, by what they came to.', ['reconciler'], {
    result: CLOSURE_RESULTS,
  }),
  counterstamp_decisions_total: counter('Decisions that were recorded.', ['api'], { decision: ['approve', 'reject'] }),
  counterstamp_time_to_decision_seconds: histogram(
    'From asking for an approval to each recorded decision.',
    ['api'],
    { decision: ['approve', 'reject'] },
    [1, 5, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 14_400, 86_400],
  ),
  counterstamp_alarms_total: counter(
    'Signs of tampering with what was approved, and broken glasses. Each has an audit event.',
    ['api', 'executor'],
    { code: ALARM_CODES },
  ),

  // The sweeper.
  counterstamp_sweeps_total: counter('Sweeps for due runs.', ['reconciler'], { result: ['ok', 'failed'] }),
  counterstamp_sweep_last_success_timestamp_seconds: gauge(
    'When this process last swept (Unix time of the process); 0: never.',
    ['reconciler'],
    {},
  ),
  counterstamp_sweep_claimed_total: counter('Due runs that a sweep claimed.', ['reconciler'], {}),
  counterstamp_sweep_skipped_total: counter(
    'Due runs that a sweep left to the next one, because somebody held their rows.',
    ['reconciler'],
    {},
  ),
  counterstamp_hints_resent_total: counter('Hints that the sweeper sent because a run was due.', ['reconciler'], {
    stage: STAGES,
  }),

  // The process and what it stands on.
  counterstamp_http_request_duration_seconds: histogram(
    'HTTP requests by route pattern; unknown paths share one value.',
    ['api'],
    {
      method: ['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS'],
      route: [],
      status: ['1xx', '2xx', '3xx', '4xx', '5xx'],
    },
    [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5],
  ),
  counterstamp_rate_limited_total: counter('Requests refused because their sender asks too often.', ['api'], {
    limiter: ['principal', 'tenant', 'address'],
  }),
  counterstamp_database_pool_connections: gauge(
    'Connections of this process’s pool, by what they do. A statement beyond them waits.',
    SERVICES,
    { state: ['limit', 'busy'] },
  ),
  counterstamp_database_statements_waiting: gauge(
    'Statements of this process that wait for a connection of the pool.',
    SERVICES,
    {},
  ),
  counterstamp_database_oldest_statement_age_seconds: gauge(
    'How long the oldest unanswered statement has been out; 0: none is.',
    SERVICES,
    {},
  ),
  counterstamp_database_statement_duration_seconds: histogram(
    'From handing a statement to the pool to its answer.',
    SERVICES,
    {},
    [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5],
  ),
  counterstamp_database_failures_total: counter('Statements that the database did not answer.', SERVICES, {}),
  counterstamp_clock_offset_seconds: gauge(
    'This process’s clock minus the database’s, at the last heartbeat.',
    SERVICES,
    {},
  ),
  counterstamp_session_lease_held: gauge(
    'Whether this executor holds its session lease (1) or not (0).',
    ['executor'],
    {},
  ),
  counterstamp_build_info: gauge('Always 1; what runs here.', SERVICES, {
    version: [],
    node: [],
    backend: ['redis', 'postgres'],
  }),
} as const satisfies Readonly<Record<`counterstamp_${string}`, MetricEntry>>;
export type MetricName = keyof typeof METRICS;

/** Labels whose values are closed by the code that sets them: route patterns and versions, never a text from outside. */
export const CLOSED_BY_CODE = ['route', 'version', 'node'] as const;

function gauge<L extends Record<string, Values>>(help: string, by: readonly Service[], labels: L, whole_fleet?: true) {
  return { type: 'gauge', help, labels, by, ...(whole_fleet === undefined ? {} : { whole_fleet }) } as const;
}
function counter<L extends Record<string, Values>>(help: string, by: readonly Service[], labels: L) {
  return { type: 'counter', help, labels, by } as const;
}
function histogram<L extends Record<string, Values>>(
  help: string,
  by: readonly Service[],
  labels: L,
  buckets: readonly number[],
  whole_fleet?: true,
) {
  return {
    type: 'histogram',
    help,
    labels,
    by,
    buckets,
    ...(whole_fleet === undefined ? {} : { whole_fleet }),
  } as const;
}
