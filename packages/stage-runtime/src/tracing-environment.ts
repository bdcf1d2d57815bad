import { SAMPLERS, type SamplerName, type TracingSettings } from '@counterstamp/telemetry';
import { z } from 'zod';
import { variable } from './variable.ts';

/** Where a collector listens by the standard's own default, and what is appended to an endpoint that serves every signal. */
const ENDPOINT_DEFAULT = 'http://localhost:4318';
const TRACES_PATH = 'v1/traces';

/** A name of an HTTP header. */
const TOKEN = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/;

const { url, wholeNumber, parsed } = variable;
const httpUrl = url('http:', 'https:');
const onlyJson = z.literal(
  'http/json',
  'only http/json is spoken here; collectors take it where they take http/protobuf (port 4318), so leave it out or set http/json',
);
const milliseconds = wholeNumber(600_000, 1);
const compression = z.enum(['none', 'gzip'], 'must be none or gzip');
const headers = parsed((text) => {
  const pairs = parsePairs(text);
  for (const [name, value] of Object.entries(pairs)) {
    if (!TOKEN.test(name) || /[^\t\x20-\x7e]/.test(value)) throw new RangeError('holds what no HTTP header may hold');
  }
  return pairs;
});

/**
 * OpenTelemetry's own variables, as far as they are honoured; docs/reference/configuration.md is rendered from here. What the standard lets
 * an implementation ignore with a warning is refused here at start, like every other wrong value.
 */
export const TRACING_VARIABLES = {
  OTEL_SDK_DISABLED: z
    .enum(['true', 'false'], 'must be true or false')
    .default('false')
    .describe('true: nothing is traced, whatever else is set'),
  OTEL_TRACES_EXPORTER: z
    .enum(['otlp', 'none'], 'must be otlp or none')
    .optional()
    .describe(
      'otlp: traces are sent, to the endpoint below or its default; none: they are not. Absent: they are when an endpoint is set',
    ),
  OTEL_EXPORTER_OTLP_ENDPOINT: httpUrl
    .optional()
    .describe(
      `collector that takes OTLP over HTTP; ${TRACES_PATH} is appended. Absent, and OTEL_TRACES_EXPORTER is otlp: ${ENDPOINT_DEFAULT}`,
    ),
  OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: httpUrl
    .optional()
    .describe('the same for traces alone, used as it is, path included'),
  OTEL_EXPORTER_OTLP_PROTOCOL: onlyJson.optional().describe('http/json, the only one that is spoken'),
  OTEL_EXPORTER_OTLP_TRACES_PROTOCOL: onlyJson.optional().describe('the same for traces alone'),
  OTEL_EXPORTER_OTLP_HEADERS: headers
    .optional()
    .describe(
      'headers sent to the collector: name=value with commas between, values percent-encoded. A secret, where it holds a token',
    ),
  OTEL_EXPORTER_OTLP_TRACES_HEADERS: headers.optional().describe('more of them, for traces alone'),
  OTEL_EXPORTER_OTLP_TIMEOUT: milliseconds
    .default(10_000)
    .describe('how long the collector may take for one delivery, in milliseconds; no work waits for it'),
  OTEL_EXPORTER_OTLP_TRACES_TIMEOUT: milliseconds.optional().describe('the same for traces alone'),
  OTEL_EXPORTER_OTLP_COMPRESSION: compression.default('none').describe('none or gzip'),
  OTEL_EXPORTER_OTLP_TRACES_COMPRESSION: compression.optional().describe('the same for traces alone'),
  OTEL_SERVICE_NAME: z
    .string()
    .max(200, 'must have at most 200 characters')
    .optional()
    .describe(
      'service.name of the spans; absent: counterstamp- and the service. One value for a whole fleet hides who did what',
    ),
  OTEL_RESOURCE_ATTRIBUTES: parsed(parsePairs)
    .optional()
    .describe('what else the spans say of their process: name=value with commas between, values percent-encoded'),
  OTEL_TRACES_SAMPLER: z
    .enum(SAMPLERS, `must be one of ${SAMPLERS.join(', ')}`)
    .default('parentbased_always_on')
    .describe(
      `which traces are kept: ${SAMPLERS.join(', ')}. Those that begin with parentbased keep or drop a run whole`,
    ),
  OTEL_TRACES_SAMPLER_ARG: parsed(share)
    .optional()
    .describe('share of traces that the ratio samplers keep, 0 to 1; absent: 1'),
  OTEL_BSP_SCHEDULE_DELAY: milliseconds
    .default(5_000)
    .describe('how long spans are gathered before a delivery, in milliseconds'),
  OTEL_BSP_EXPORT_TIMEOUT: milliseconds
    .default(30_000)
    .describe('after how long a delivery is given up, in milliseconds'),
  OTEL_BSP_MAX_QUEUE_SIZE: wholeNumber(100_000, 1)
    .default(2_048)
    .describe('spans that wait at most; what comes more is dropped'),
  OTEL_BSP_MAX_EXPORT_BATCH_SIZE: wholeNumber(100_000, 1)
    .default(512)
    .describe('spans of one delivery, at most OTEL_BSP_MAX_QUEUE_SIZE'),
};

type TracingEnvironment = z.output<z.ZodObject<typeof TRACING_VARIABLES>>;

/** Whether and how this process traces; `undefined`: not at all. A fault between variables goes to `faults`. */
export function tracingOf(env: TracingEnvironment, faults: string[]): TracingSettings | undefined {
  if (env.OTEL_BSP_MAX_EXPORT_BATCH_SIZE > env.OTEL_BSP_MAX_QUEUE_SIZE)
    faults.push('OTEL_BSP_MAX_EXPORT_BATCH_SIZE: must be at most OTEL_BSP_MAX_QUEUE_SIZE');
  const own = env.OTEL_EXPORTER_OTLP_TRACES_ENDPOINT;
  const shared = env.OTEL_EXPORTER_OTLP_ENDPOINT;
  const exporter = env.OTEL_TRACES_EXPORTER ?? (own === undefined && shared === undefined ? 'none' : 'otlp');
  if (env.OTEL_SDK_DISABLED === 'true' || exporter === 'none') return undefined;
  return {
    endpoint: own ?? withTracesPath(shared ?? ENDPOINT_DEFAULT),
    headers: { ...env.OTEL_EXPORTER_OTLP_HEADERS, ...env.OTEL_EXPORTER_OTLP_TRACES_HEADERS },
    timeout_ms: env.OTEL_EXPORTER_OTLP_TRACES_TIMEOUT ?? env.OTEL_EXPORTER_OTLP_TIMEOUT,
    compression: env.OTEL_EXPORTER_OTLP_TRACES_COMPRESSION ?? env.OTEL_EXPORTER_OTLP_COMPRESSION,
    service_name: env.OTEL_SERVICE_NAME,
    resource_attributes: env.OTEL_RESOURCE_ATTRIBUTES ?? {},
    sampler: env.OTEL_TRACES_SAMPLER satisfies SamplerName,
    sampler_ratio: env.OTEL_TRACES_SAMPLER_ARG ?? 1,
    schedule_delay_ms: env.OTEL_BSP_SCHEDULE_DELAY,
    export_timeout_ms: env.OTEL_BSP_EXPORT_TIMEOUT,
    queue_max: env.OTEL_BSP_MAX_QUEUE_SIZE,
    batch_max: env.OTEL_BSP_MAX_EXPORT_BATCH_SIZE,
  };
}

function withTracesPath(endpoint: string): string {
  return `${endpoint.replace(/\/$/, '')}/${TRACES_PATH}`;
}

/** `name=value` with commas between, values percent-encoded, as the standard writes headers and resource attributes. */
function parsePairs(text: string): Record<string, string> {
  const pairs: Record<string, string> = {};
  for (const entry of text.split(',')) {
    if (entry.trim() === '') continue;
    const [, name, value] = /^\s*([^=\s]+)\s*=(.*)$/s.exec(entry) ?? [];
    if (name === undefined || value === undefined) throw new RangeError('must be name=value, with commas between');
    try {
      pairs[name] = decodeURIComponent(value.trim());
    } catch {
      throw new RangeError('holds a value that is not percent-encoded');
    }
  }
  return pairs;
}

function share(text: string): number {
  const value = /^\d(\.\d{1,10})?$/.test(text) ? Number(text) : Number.NaN;
  if (!(value >= 0 && value <= 1)) throw new RangeError('must be a number from 0 to 1');
  return value;
}
