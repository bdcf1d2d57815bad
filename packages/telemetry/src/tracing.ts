import type { Service } from '@counterstamp/manifest-core';
import type { Logger } from './logger.ts';
import type { InnerSpan, RunSpan, SpanAttributes } from './span-catalogue.ts';
import { parseTraceparent, type TracedRun } from './trace-context.ts';

/** How and where spans go: the standard variables of OpenTelemetry, parsed. */
export interface TracingSettings {
  /** Where spans are posted to, path included. */
  endpoint: string;
  headers: Readonly<Record<string, string>>;
  timeout_ms: number;
  compression: 'none' | 'gzip';
  /** Absent: `counterstamp-<service>`. */
  service_name: string | undefined;
  resource_attributes: Readonly<Record<string, string>>;
  sampler: SamplerName;
  /** Share of traces that the ratio samplers keep, 0 to 1. */
  sampler_ratio: number;
  schedule_delay_ms: number;
  export_timeout_ms: number;
  queue_max: number;
  batch_max: number;
}

export const SAMPLERS = [
  'always_on',
  'always_off',
  'traceidratio',
  'parentbased_always_on',
  'parentbased_always_off',
  'parentbased_traceidratio',
] as const;
export type SamplerName = (typeof SAMPLERS)[number];

/** A span while its work runs. */
export interface OpenSpan {
  set(attributes: SpanAttributes): void;
}

/** A span that is ended by hand. */
export interface StartedSpan {
  end(attributes: SpanAttributes): void;
}

export interface ServerSpan extends OpenSpan {
  /** The route is known only once the request was routed. */
  name(name: string): void;
}

/** What records spans, once tracing is on. */
export interface SpanRecorder {
  inner<T>(name: InnerSpan, attributes: SpanAttributes, work: (span: OpenSpan) => T): T;
  started(name: InnerSpan, attributes: SpanAttributes): StartedSpan;
  ofRun<T>(run: TracedRun, name: RunSpan, attributes: SpanAttributes, work: (span: OpenSpan) => T): T;
  server<T>(traceparent: string | null, method: string, work: (span: ServerSpan) => T): T;
  /** Ids of the active span. */
  active(): { trace_id: string; span_id: string } | undefined;
  /** The active span as a `traceparent`. */
  traceparent(): string | undefined;
  /** Delivers what is left. Never rejects; a collector that hangs is for the caller to bound. */
  end(): Promise<void>;
}

/** Of this process. The SDK is loaded with it: who does not trace pays neither its memory nor its time. */
let recorder: SpanRecorder | undefined;

const NO_SPAN = { set: () => undefined, name: () => undefined, end: () => undefined };

/** Turns tracing on for this process. Until then, and without it, every function below only does the work that it is given. */
export async function startTracing(
  settings: TracingSettings,
  process: { service: Service; instance_id: string },
  deps: { log: Logger; monotonicMs: () => number },
): Promise<void> {
  const { openTelemetry, otlpExporter } = await import('./open-telemetry.ts');
  record(openTelemetry(settings, process, otlpExporter(settings, deps), deps.log));
}

/** Records with this recorder from now on; for `startTracing` and tests. */
export function record(next: SpanRecorder | undefined): void {
  recorder = next;
}

/** Delivers the spans that are left, and records none from now on. Never rejects. */
export async function endTracing(): Promise<void> {
  const ending = recorder;
  recorder = undefined;
  await ending?.end();
}

export function isTracing(): boolean {
  return recorder !== undefined;
}

/**
 * Does a part of some work as a span of its own, if that work is a span. The work begins in this call, synchronously; a promise that it
 * returns ends the span when it settles. Attributes are typed by the catalogue: put in names of closed sets, never text from outside.
 */
export function inSpan<T>(name: InnerSpan, attributes: SpanAttributes, work: (span: OpenSpan) => T): T {
  return recorder === undefined ? work(NO_SPAN) : recorder.inner(name, attributes, work);
}

/** A span that begins here and ends where `end` is called. Nothing awaits and nothing is called back. */
export function startSpan(name: InnerSpan, attributes: SpanAttributes): StartedSpan {
  return recorder === undefined ? NO_SPAN : recorder.started(name, attributes);
}

/**
 * Does some work as a span in the run's own trace: below the span whose context is kept with the run, or, for a run without one, in the
 * trace that its id names. Work that was asked for by another span (a request) is linked to it.
 */
export function inRunSpan<T>(
  run: TracedRun,
  name: RunSpan,
  attributes: SpanAttributes,
  work: (span: OpenSpan) => T,
): T {
  return recorder === undefined ? work(NO_SPAN) : recorder.ofRun(run, name, attributes, work);
}

/** Answers one request as a span, below the caller's `traceparent` where it has one. */
export function inServerSpan<T>(traceparent: string | null, method: string, work: (span: ServerSpan) => T): T {
  return recorder === undefined ? work(NO_SPAN) : recorder.server(traceparent, method, work);
}

/** Commits a move as a span that says which, and what became of it. */
export function inCommitSpan<T extends { kind: string; code?: string }>(
  move: { from: string; to: string; trigger: string; facts?: Stops },
  commit: () => Promise<T>,
): Promise<T> {
  if (recorder === undefined) return commit();
  return recorder.inner('commit', moveAttributes(move), async (span) => {
    const outcome = await commit();
    span.set({ result: outcome.kind, refusal: outcome.code });
    return outcome;
  });
}

/** What the facts of a commit say of why the run stops. */
interface Stops {
  stop_reason?: { code: string };
  parked_reason?: string | null;
}

/** A move as attributes. */
export function moveAttributes({
  from,
  to,
  trigger,
  facts,
}: {
  from: string;
  to: string;
  trigger: string;
  facts?: Stops;
}): SpanAttributes {
  return {
    from,
    to,
    trigger,
    stop_reason: facts?.stop_reason?.code,
    parked_reason: facts?.parked_reason ?? undefined,
  };
}

/** Judges as a span that says what it came to. */
export function inDecideSpan<T extends object | undefined>(judge: () => T): T {
  if (recorder === undefined) return judge();
  return recorder.inner('decide', {}, (span) => {
    const decision: { kind?: string; on?: string } | undefined = judge();
    const nothing = decision?.on === undefined ? 'goes_on' : 'commit';
    span.set({ result: decision?.kind ?? nothing, trigger: decision?.on });
    return decision as T;
  });
}

/** The trace id under which somebody looks for what happens now; `undefined` outside of every span. */
export function currentTraceId(): string | undefined {
  return recorder?.active()?.trace_id;
}

/** The active span as a W3C `traceparent`; `undefined` outside of every span. */
export function currentTraceparent(): string | undefined {
  return recorder?.traceparent();
}

/** What every log line says of the active span. */
export function traceFields(): Record<string, string> {
  return { ...recorder?.active() };
}

/** What the log lines about a run say of its trace where no span is active, since nothing is traced. */
export function traceFieldsOf({ trace_context }: Pick<TracedRun, 'trace_context'>): { trace_id?: string } {
  const parent = recorder === undefined ? parseTraceparent(trace_context) : undefined;
  return parent === undefined ? {} : { trace_id: parent.trace_id };
}
