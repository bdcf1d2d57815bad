import type { Service } from '@counterstamp/manifest-core';
import {
  type Attributes,
  type Context,
  context,
  DiagLogLevel,
  diag,
  isSpanContextValid,
  ROOT_CONTEXT,
  type Span,
  SpanKind,
  SpanStatusCode,
  TraceFlags,
  trace,
} from '@opentelemetry/api';
import { OTLPTraceExporter } from '@opentelemetry/exporter-trace-otlp-http';
import { defaultResource, resourceFromAttributes } from '@opentelemetry/resources';
import {
  AlwaysOffSampler,
  AlwaysOnSampler,
  BatchSpanProcessor,
  NodeTracerProvider,
  ParentBasedSampler,
  RandomIdGenerator,
  type Sampler,
  type SpanExporter,
  TraceIdRatioBasedSampler,
} from '@opentelemetry/sdk-trace-node';
import type { Logger } from './logger.ts';
import type { SpanAttributes } from './span-catalogue.ts';
import { parseTraceparent, type TraceParent, traceIdOfRun, traceparentOf } from './trace-context.ts';
import type { SpanRecorder, TracingSettings } from './tracing.ts';

/** A collector that stays away is told of once in this time, in milliseconds: an hour of it must not fill a log. */
const REPORT_EVERY_MS = 60_000;

/** The SDK's enumeration, whose members are these words; it is not exported where we may import it from. */
type Compression = NonNullable<NonNullable<ConstructorParameters<typeof OTLPTraceExporter>[0]>['compression']>;

/** OTLP over HTTP in JSON, with every failure told through our log: a rate-limited sentence, never the SDK's own words about our data. */
export function otlpExporter(
  settings: TracingSettings,
  { log, monotonicMs }: { log: Logger; monotonicMs: () => number },
): SpanExporter {
  const otlp = new OTLPTraceExporter({
    url: settings.endpoint,
    headers: settings.headers,
    timeoutMillis: settings.timeout_ms,
    compression: settings.compression as Compression,
  });
  let lost = 0;
  let reportedAt = Number.NEGATIVE_INFINITY;
  return {
    export(spans, done) {
      otlp.export(spans, (result) => {
        if (result.error === undefined) {
          if (lost > 0) log.info({ spans: lost }, 'the collector takes spans again; these were lost meanwhile');
          lost = 0;
          reportedAt = Number.NEGATIVE_INFINITY;
        } else {
          lost += spans.length;
          if (monotonicMs() - reportedAt >= REPORT_EVERY_MS) {
            reportedAt = monotonicMs();
            log.warn({ spans: lost, reason: reasonOf(result.error) }, 'spans were not delivered; the work goes on');
          }
        }
        done(result);
      });
    },
    shutdown: () => otlp.shutdown(),
    forceFlush: () => otlp.forceFlush(),
  };
}

/** Why a collector did not take spans, in a word: its own words may quote anything. */
function reasonOf(error: Error & { code?: unknown }): string {
  if (typeof error.code === 'number') return `status ${error.code}`;
  if (typeof error.code === 'string') return error.code;
  return /timed? ?out/i.test(error.message) ? 'no answer in time' : error.name;
}

/** Records spans with OpenTelemetry's SDK and hands them to an exporter in batches. One per process: the active span is a global of it. */
export function openTelemetry(
  settings: Omit<TracingSettings, 'endpoint' | 'headers' | 'timeout_ms' | 'compression'>,
  { service, instance_id }: { service: Service; instance_id: string },
  exporter: SpanExporter,
  log: Logger,
): SpanRecorder {
  const ids = new RunIds();
  diag.setLogger(
    {
      verbose: () => undefined,
      debug: () => undefined,
      info: () => undefined,
      // What else it warns of quotes the configuration, which was parsed before.
      warn: (message) => {
        const spans = /^Dropped (\d+) spans/.exec(message)?.[1];
        if (spans !== undefined) log.warn({ spans: Number(spans) }, 'more spans than OTEL_BSP_MAX_QUEUE_SIZE; dropped');
      },
      // A failed export; the exporter told of it.
      error: () => undefined,
    },
    { logLevel: DiagLogLevel.WARN, suppressOverrideMessage: true },
  );
  const provider = new NodeTracerProvider({
    idGenerator: ids,
    sampler: samplerOf(settings),
    // No detector asks the process or the host: a command line or a name may hold what is nobody's business.
    resource: defaultResource().merge(
      resourceFromAttributes({
        'service.name': `counterstamp-${service}`,
        'service.namespace': 'counterstamp',
        'service.instance.id': instance_id,
        ...settings.resource_attributes,
        ...(settings.service_name === undefined ? {} : { 'service.name': settings.service_name }),
      }),
    ),
    spanProcessors: [
      new BatchSpanProcessor(exporter, {
        scheduledDelayMillis: settings.schedule_delay_ms,
        exportTimeoutMillis: settings.export_timeout_ms,
        maxQueueSize: settings.queue_max,
        maxExportBatchSize: settings.batch_max,
      }),
    ],
  });
  // No propagator: nothing of ours goes out with a request to an external system, whose bytes and headers are fixed.
  provider.register({ propagator: null });
  const tracer = provider.getTracer('counterstamp');

  return {
    inner(name, attributes, work) {
      if (trace.getSpan(context.active()) === undefined) return work(NOTHING);
      return within(tracer.startSpan(name, { attributes: given(attributes) }), context.active(), work);
    },
    started(name, attributes) {
      if (trace.getSpan(context.active()) === undefined) return NOTHING;
      const span = tracer.startSpan(name, { attributes: given(attributes) });
      return {
        end(more) {
          span.setAttributes(given(more));
          span.end();
        },
      };
    },
    ofRun({ run_id, trace_context }, name, attributes, work) {
      const asking = trace.getSpanContext(context.active());
      const kept = parseTraceparent(trace_context);
      const parent = kept === undefined ? ROOT_CONTEXT : below(kept);
      const options = {
        attributes: { run_id, ...given(attributes) },
        ...(asking === undefined ? {} : { links: [{ context: asking }] }),
      };
      const start = () => tracer.startSpan(name, options, parent);
      return within(kept === undefined ? ids.within(traceIdOfRun(run_id), start) : start(), parent, work);
    },
    server(traceparent, method, work) {
      const caller = parseTraceparent(traceparent);
      const parent = caller === undefined ? ROOT_CONTEXT : below(caller);
      const span = tracer.startSpan(
        method,
        { kind: SpanKind.SERVER, attributes: { 'http.request.method': method } },
        parent,
      );
      return within(span, parent, (open) => work({ ...open, name: (name) => span.updateName(name) }));
    },
    active() {
      const active = trace.getSpanContext(context.active());
      return active === undefined ? undefined : { trace_id: active.traceId, span_id: active.spanId };
    },
    traceparent() {
      const active = trace.getSpanContext(context.active());
      if (active === undefined || !isSpanContextValid(active)) return undefined;
      return traceparentOf({
        trace_id: active.traceId,
        span_id: active.spanId,
        sampled: (active.traceFlags & TraceFlags.SAMPLED) !== 0,
      });
    },
    async end() {
      // What could not be delivered was told of by the exporter.
      await provider.shutdown().catch(() => undefined);
      // Another recorder of this process, as tests start several, is not to be caught by this one's globals.
      trace.disable();
      context.disable();
      diag.disable();
    },
  };
}

const NOTHING = { set: () => undefined, end: () => undefined };

function given(attributes: SpanAttributes): Attributes {
  return Object.fromEntries(Object.entries(attributes).filter(([, value]) => value !== undefined)) as Attributes;
}

function below({ trace_id, span_id, sampled }: TraceParent): Context {
  return trace.setSpanContext(ROOT_CONTEXT, {
    traceId: trace_id,
    spanId: span_id,
    traceFlags: sampled ? TraceFlags.SAMPLED : TraceFlags.NONE,
    isRemote: true,
  });
}

/** Does the work with the span as the active one, and ends it with the work, be that synchronous or a promise. */
function within<T>(span: Span, parent: Context, work: (open: { set(attributes: SpanAttributes): void }) => T): T {
  const failed = (error: unknown) => {
    span.setAttributes(given({ 'error.type': errorType(error) }));
    span.setStatus({ code: SpanStatusCode.ERROR });
    span.end();
  };
  const open = { set: (attributes: SpanAttributes) => void span.setAttributes(given(attributes)) };
  let result: T;
  try {
    result = context.with(trace.setSpan(parent, span), () => work(open));
  } catch (error) {
    failed(error);
    throw error;
  }
  if (!(result instanceof Promise)) {
    span.end();
    return result;
  }
  return result.then(
    (value: unknown) => {
      span.end();
      return value;
    },
    (error: unknown) => {
      failed(error);
      throw error;
    },
  ) as T;
}

/** An error's code or class. Its message may quote a row, a key or an answer from outside. */
function errorType(error: unknown): string {
  if (!(error instanceof Error)) return 'unknown';
  const { code } = error as { code?: unknown };
  return typeof code === 'string' && /^[A-Z0-9_]{2,40}$/.test(code) ? code : error.constructor.name;
}

function samplerOf({ sampler, sampler_ratio }: Pick<TracingSettings, 'sampler' | 'sampler_ratio'>): Sampler {
  switch (sampler) {
    case 'always_on':
      return new AlwaysOnSampler();
    case 'always_off':
      return new AlwaysOffSampler();
    case 'traceidratio':
      return new TraceIdRatioBasedSampler(sampler_ratio);
    case 'parentbased_always_on':
      return new ParentBasedSampler({ root: new AlwaysOnSampler() });
    case 'parentbased_always_off':
      return new ParentBasedSampler({ root: new AlwaysOffSampler() });
    case 'parentbased_traceidratio':
      return new ParentBasedSampler({ root: new TraceIdRatioBasedSampler(sampler_ratio) });
  }
}

/** Random ids, and the trace id of a run while a first span of it is started: the SDK has no other way to name a trace without a parent. */
class RunIds {
  readonly #random = new RandomIdGenerator();
  #traceId: string | undefined;

  within<T>(traceId: string, start: () => T): T {
    this.#traceId = traceId;
    try {
      return start();
    } finally {
      this.#traceId = undefined;
    }
  }

  generateTraceId(): string {
    return this.#traceId ?? this.#random.generateTraceId();
  }

  generateSpanId(): string {
    return this.#random.generateSpanId();
  }
}
