export {
  CENSUS_TERMS,
  CLOSED_BY_CODE,
  type ClosureResult,
  type DeferralCode,
  type LookResult,
  METRICS,
  type MetricEntry,
  type MetricName,
  type OutcomeClass,
} from './catalogue.ts';
export type { Backlog, Census } from './census-metrics.ts';
export { createLogger, type Logger } from './logger.ts';
export { createMetrics, type Metrics } from './metrics.ts';
export { LOG_FIELDS, SPAN_ATTRIBUTES, SPANS } from './span-catalogue.ts';
export { parseTraceparent, type TracedRun } from './trace-context.ts';
export {
  currentTraceId,
  currentTraceparent,
  endTracing,
  inCommitSpan,
  inDecideSpan,
  inRunSpan,
  inServerSpan,
  inSpan,
  isTracing,
  moveAttributes,
  SAMPLERS,
  type SamplerName,
  startSpan,
  startTracing,
  type TracingSettings,
  traceFieldsOf,
} from './tracing.ts';
