import type { Stage } from '@counterstamp/manifest-core';

/** One kind of span, as docs/reference/spans-and-log-fields.md describes it. */
interface SpanDoc {
  /** As it is named; `<…>` stands for a value of a closed set. */
  name: string;
  by: string;
  /** What it is a child of. */
  under: string;
  meaning: string;
  attributes: readonly AttributeName[];
}

/** Every attribute of every span. Ids, names of closed sets, numbers: never what a person or a program outside wrote. */
export const SPAN_ATTRIBUTES = {
  run_id: 'the run',
  revision: 'revision of the run that the stage judged',
  stage: 'the stage that was judged, or that a hint names',
  operation: 'operation of the workflow that was read',
  from: 'state before',
  to: 'state after',
  trigger: 'why it moved: docs/reference/states.md',
  stop_reason: 'code of the stop reason that the commit records: docs/reference/stop-reasons.md',
  parked_reason: 'code of the reason for which the commit parks the run for a person',
  refusal: 'which condition of a dispatch did not hold',
  deferral: 'code of the reason for which the run was put off, on an unchanged revision',
  attempt_n: 'number of the attempt, 1 for the first',
  retry: 'true for the recorded retry',
  outcome: 'what the one answer was taken for: applied, rejected, uncertain, not_sent or retry_safe',
  verdict: 'what a person said of an effect in doubt',
  decision: 'approve or reject',
  result: 'how it ended, a word of a closed set of each span',
  'error.type': 'class or code of the error that ended the span, never its message',
  'http.request.method': 'method of the request, or other',
  'http.route': 'path template of the route',
  'http.response.status_code': 'status of the answer',
} as const satisfies Record<string, string>;
export type AttributeName = keyof typeof SPAN_ATTRIBUTES;
export type SpanAttributes = { readonly [name in AttributeName]?: string | number | boolean | undefined };

/** Every span of the product. `error.type` may stand on each of them. */
export const SPANS = {
  server: {
    name: '<METHOD> <route>',
    by: 'api',
    under: 'the span of the caller’s `traceparent`, or nothing',
    meaning:
      'One request. That of POST /v1/runs which created the run is kept with the run, and everything below is in its trace. Health checks have none.',
    attributes: ['http.request.method', 'http.route', 'http.response.status_code'],
  },
  decision: {
    name: 'decision',
    by: 'api',
    under: 'the run’s first span, with a link to the request’s',
    meaning: 'A person’s decision, judged and recorded by the database.',
    attributes: ['run_id', 'decision', 'result'],
  },
  verdict: {
    name: 'verdict',
    by: 'api',
    under: 'the run’s first span, with a link to the request’s',
    meaning: 'A person’s verdict on an effect in doubt.',
    attributes: ['run_id', 'verdict', 'result'],
  },
  proposal: {
    name: 'proposal',
    by: 'api',
    under: 'the run’s first span, with a link to the request’s',
    meaning: 'A proposal from outside.',
    attributes: ['run_id', 'from', 'to', 'trigger', 'result'],
  },
  cancel: {
    name: 'cancel',
    by: 'api',
    under: 'the run’s first span, with a link to the request’s',
    meaning: 'A run that was stopped before anything was sent.',
    attributes: ['run_id', 'from', 'to', 'trigger', 'stop_reason', 'result'],
  },
  stage: {
    name: 'stage <stage>',
    by: 'workers',
    under: 'the run’s first span',
    meaning:
      'A worker takes the run through one stage, from the loaded row to the commit and the hint. A hint that carries a run through several stages makes one for each; a hint that finds nothing to do makes none.',
    attributes: ['run_id', 'revision', 'stage', 'result', 'deferral'],
  },
  facts: {
    name: 'facts',
    by: 'preflight, executor',
    under: 'stage',
    meaning: 'One read of an external record.',
    attributes: ['operation', 'result'],
  },
  'look-up': {
    name: 'look-up',
    by: 'verifier, reconciler',
    under: 'stage',
    meaning: 'One independent look at the record of the effect.',
    attributes: ['operation', 'result'],
  },
  decide: {
    name: 'decide',
    by: 'workers',
    under: 'stage',
    meaning: 'One judgement on what was gathered, without I/O: `result` and `trigger` say what it came to.',
    attributes: ['result', 'trigger'],
  },
  commit: {
    name: 'commit',
    by: 'workers',
    under: 'stage',
    meaning:
      'One compare-and-swap. `retry_recorded` and `retry_dispatched` are the retry, `parked_reason` is the park; `result` is committed, stale_revision (another worker was first) or refused.',
    attributes: ['from', 'to', 'trigger', 'stop_reason', 'parked_reason', 'refusal', 'result'],
  },
  send: {
    name: 'send',
    by: 'executor',
    under: 'stage',
    meaning: 'The one physical request of an attempt, from the acknowledged commit to the answer or the deadline.',
    attributes: ['attempt_n', 'retry', 'outcome'],
  },
  hint: {
    name: 'hint',
    by: 'workers, api',
    under: 'stage, or the request’s span',
    meaning: 'A hint handed to the queue: queued or unavailable. A lost one costs time only.',
    attributes: ['stage', 'result'],
  },
  'sweep commit': {
    name: 'sweep commit',
    by: 'reconciler',
    under: 'the run’s first span',
    meaning: 'A move that the sweeper commits by itself: an overdue attempt, an expired approval, a passed deadline.',
    attributes: ['run_id', 'from', 'to', 'trigger', 'stop_reason', 'parked_reason', 'result'],
  },
} as const satisfies Record<string, SpanDoc>;

/** Spans inside another of the same process. */
export type InnerSpan = 'facts' | 'look-up' | 'decide' | 'commit' | 'send' | 'hint';
/** Spans that start from what is kept with the run. */
export type RunSpan = `stage ${Stage}` | 'decision' | 'verdict' | 'proposal' | 'cancel' | 'sweep commit';

/** Every field of a log line. `err` is an error as pino writes it, without what Postgres quotes of the data. */
export const LOG_FIELDS = {
  level: 'trace, debug, info, warn, error or fatal',
  time: 'when, UTC',
  service: 'api, preflight, executor, verifier or reconciler',
  instance_id: 'the process life that says it',
  message: 'what happened: a sentence of the code, the same each time',
  trace_id: 'the trace of the run or request; without tracing, that of the `traceparent` that the run came with',
  span_id: 'the span in which it was said',
  run_id: 'the run',
  revision: 'revision of the run',
  stage: 'stage of the run',
  state: 'state of the run',
  from: 'state before',
  to: 'state after',
  trigger: 'why it moved',
  code: 'code of a stop reason, refusal or alarm',
  detail: 'more about an alarm',
  tenant_id: 'the tenant',
  principal_id: 'who acted',
  decision_id: 'the decision',
  attempt_id: 'the attempt',
  attempt_n: 'number of the attempt',
  idempotency_key: 'key of the effect at its provider; not a secret',
  outcome: 'what the answer of a provider was taken for',
  reason: 'why, in the words of the code or of a system below it',
  kept: 'what became of a late answer: appended, reopened or known',
  tries: 'how often it was tried',
  lost: 'swaps that were lost one after the other',
  moves: 'moves that one hint led to',
  wake_in_ms: 'when the run is looked at again',
  due: 'due runs of one sweep',
  skipped: 'due runs whose rows were locked',
  where: 'part of the queue that reports an error',
  route: 'path template of the route',
  method: 'method of a request, or the way of a sign-in',
  limiter: 'the rate limit that failed',
  member: 'member of the approval card that does not fit',
  seq: 'number of a checkpoint',
  runs: 'runs in a checkpoint',
  key_id: 'key that signed a checkpoint',
  port: 'where the process listens',
  backend: 'where the queues are',
  profile: 'which durations apply',
  pid: 'process id',
  signal: 'signal that ends the process',
  grace_ms: 'how long current work may take to end',
  spans: 'spans that were not delivered',
  err: 'the error',
} as const satisfies Record<string, string>;
