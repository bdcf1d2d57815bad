import { describe, expect, test } from 'vitest';
import { z } from 'zod';
import { parseServiceConfig } from './config.ts';

const COMPLETE = {
  COUNTERSTAMP_VERIFIER_DATABASE_URL: 'postgres://cs_verifier:secret@localhost/counterstamp',
  COUNTERSTAMP_DEV: '1',
};

function parse(env: Record<string, string>) {
  return parseServiceConfig('verifier', { ...COMPLETE, ...env }, z.object({}), { http_port: 9466 });
}

function tracing(env: Record<string, string>) {
  const parsed = parse(env);
  if (!parsed.ok) throw new Error(parsed.faults.join('\n'));
  return parsed.config.tracing;
}

const ENDPOINT = { OTEL_EXPORTER_OTLP_ENDPOINT: 'http://collector:4318' };

describe('whether a process traces', () => {
  test.each<[string, Record<string, string>, boolean]>([
    ['nothing is set', {}, false],
    ['an endpoint is set', ENDPOINT, true],
    ['an endpoint for traces is set', { OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: 'https://collector/in' }, true],
    ['the exporter is otlp', { OTEL_TRACES_EXPORTER: 'otlp' }, true],
    ['the exporter is none', { ...ENDPOINT, OTEL_TRACES_EXPORTER: 'none' }, false],
    ['the SDK is disabled', { ...ENDPOINT, OTEL_SDK_DISABLED: 'true' }, false],
    ['the SDK is not disabled', { ...ENDPOINT, OTEL_SDK_DISABLED: 'false' }, true],
    ['an endpoint is empty', { OTEL_EXPORTER_OTLP_ENDPOINT: '' }, false],
    ['only a sampler is set', { OTEL_TRACES_SAMPLER: 'always_on' }, false],
  ])('%s', (_, env, expected) => {
    expect(tracing(env) !== undefined).toBe(expected);
  });
});

test.each<[string, Record<string, string>, string]>([
  ['the default', { OTEL_TRACES_EXPORTER: 'otlp' }, 'http://localhost:4318/v1/traces'],
  ['an endpoint for all signals', ENDPOINT, 'http://collector:4318/v1/traces'],
  ['one with a path', { OTEL_EXPORTER_OTLP_ENDPOINT: 'https://otel.example/a/' }, 'https://otel.example/a/v1/traces'],
  [
    'one for traces, as it is',
    { ...ENDPOINT, OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: 'http://other/in' },
    'http://other/in',
  ],
])('spans go to %s', (_, env, endpoint) => {
  expect(tracing(env)?.endpoint).toBe(endpoint);
});

test('the standard’s other variables are honoured, and those for traces go before those for every signal', () => {
  expect(
    tracing({
      ...ENDPOINT,
      OTEL_EXPORTER_OTLP_HEADERS: 'authorization=Bearer%20abc, x-a=1',
      OTEL_EXPORTER_OTLP_TRACES_HEADERS: 'x-a=2',
      OTEL_EXPORTER_OTLP_TIMEOUT: '1000',
      OTEL_EXPORTER_OTLP_TRACES_TIMEOUT: '2000',
      OTEL_EXPORTER_OTLP_TRACES_COMPRESSION: 'gzip',
      OTEL_EXPORTER_OTLP_PROTOCOL: 'http/json',
      OTEL_SERVICE_NAME: 'shop-north',
      OTEL_RESOURCE_ATTRIBUTES: 'deployment.environment.name=staging,k8s.pod.name=a%2Cb',
      OTEL_TRACES_SAMPLER: 'parentbased_traceidratio',
      OTEL_TRACES_SAMPLER_ARG: '0.25',
      OTEL_BSP_SCHEDULE_DELAY: '250',
      OTEL_BSP_EXPORT_TIMEOUT: '3000',
      OTEL_BSP_MAX_QUEUE_SIZE: '100',
      OTEL_BSP_MAX_EXPORT_BATCH_SIZE: '50',
    }),
  ).toEqual({
    endpoint: 'http://collector:4318/v1/traces',
    headers: { authorization: 'Bearer abc', 'x-a': '2' },
    timeout_ms: 2_000,
    compression: 'gzip',
    service_name: 'shop-north',
    resource_attributes: { 'deployment.environment.name': 'staging', 'k8s.pod.name': 'a,b' },
    sampler: 'parentbased_traceidratio',
    sampler_ratio: 0.25,
    schedule_delay_ms: 250,
    export_timeout_ms: 3_000,
    queue_max: 100,
    batch_max: 50,
  });
});

test.each<[string, string, string]>([
  ['OTEL_EXPORTER_OTLP_PROTOCOL', 'grpc', 'only http/json is spoken here'],
  ['OTEL_EXPORTER_OTLP_TRACES_PROTOCOL', 'http/protobuf', 'only http/json is spoken here'],
  ['OTEL_TRACES_EXPORTER', 'jaeger', 'must be otlp or none'],
  ['OTEL_SDK_DISABLED', 'yes', 'must be true or false'],
  ['OTEL_EXPORTER_OTLP_ENDPOINT', 'collector:4318', 'must be a URL that starts with http:// or https://'],
  ['OTEL_EXPORTER_OTLP_HEADERS', 'the-token-alone', 'must be name=value'],
  ['OTEL_EXPORTER_OTLP_HEADERS', 'a=the%token', 'not percent-encoded'],
  ['OTEL_EXPORTER_OTLP_HEADERS', 'a=the%0Atoken', 'no HTTP header may hold'],
  ['OTEL_EXPORTER_OTLP_TIMEOUT', '10s', 'must be a whole number'],
  ['OTEL_TRACES_SAMPLER', 'jaeger_remote', 'must be one of always_on'],
  ['OTEL_TRACES_SAMPLER_ARG', '1.5', 'must be a number from 0 to 1'],
  ['OTEL_TRACES_SAMPLER_ARG', 'half', 'must be a number from 0 to 1'],
  ['OTEL_BSP_MAX_EXPORT_BATCH_SIZE', '5000', 'must be at most OTEL_BSP_MAX_QUEUE_SIZE'],
])('%s=%s is refused at start, without its value', (name, value, fault) => {
  const parsed = parse({ [name]: value });
  expect(parsed).toMatchObject({ ok: false, faults: [expect.stringContaining(fault)] });
  if (!parsed.ok) expect(parsed.faults[0]).toMatch(new RegExp(`^${name}: `));
  if (!parsed.ok && name.endsWith('HEADERS')) expect(parsed.faults.join()).not.toContain('token');
});
