import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { runIdFromUuid } from '@counterstamp/manifest-core';
import type { ReadableSpan } from '@opentelemetry/sdk-trace-node';
import { afterEach, describe, expect, test } from 'vitest';
import { createLogger, type Logger } from './logger.ts';
import { openTelemetry, otlpExporter } from './open-telemetry.ts';
import { parseTraceparent, traceIdOfRun, traceparentOf } from './trace-context.ts';
import {
  currentTraceId,
  currentTraceparent,
  endTracing,
  inCommitSpan,
  inDecideSpan,
  inRunSpan,
  inServerSpan,
  inSpan,
  isTracing,
  record,
  type SamplerName,
  startSpan,
  traceFieldsOf,
} from './tracing.ts';

const TRACE = '4bf92f3577b34da6a3ce929d0e0e4736';
const CALLER = `00-${TRACE}-00f067aa0ba902b7-01`;
const RUN = runIdFromUuid('01930000-0000-7000-8000-0000000000aa');

const SETTINGS = {
  endpoint: 'http://127.0.0.1:1/v1/traces',
  headers: {},
  timeout_ms: 1_000,
  compression: 'none',
  service_name: undefined,
  resource_attributes: {},
  sampler: 'parentbased_always_on',
  sampler_ratio: 1,
  schedule_delay_ms: 60_000,
  export_timeout_ms: 5_000,
  queue_max: 100,
  batch_max: 50,
} as const;

function logged(): { log: Logger; lines: () => Record<string, unknown>[]; text: () => string } {
  let text = '';
  const log = createLogger(
    { service: 'verifier', instance_id: 'ins_1', level: 'debug' },
    {
      write: (line: string) => {
        text += line;
      },
    },
  );
  const lines = () =>
    text
      .trimEnd()
      .split('\n')
      .filter((line) => line !== '')
      .map((line) => JSON.parse(line) as Record<string, unknown>);
  return { log, lines, text: () => text };
}

/** Records into an array, which is complete once tracing has ended. */
function recording(sampler: SamplerName = 'parentbased_always_on', ratio = 1): ReadableSpan[] {
  const spans: ReadableSpan[] = [];
  const exporter = {
    export(batch: ReadableSpan[], done: (result: { code: number }) => void) {
      spans.push(...batch);
      done({ code: 0 });
    },
    shutdown: async () => undefined,
  };
  const settings = { ...SETTINGS, sampler, sampler_ratio: ratio };
  record(openTelemetry(settings, { service: 'verifier', instance_id: 'ins_1' }, exporter, logged().log));
  return spans;
}

afterEach(() => endTracing());

test.each<[string, string, boolean]>([
  ['a sampled one', CALLER, true],
  ['one that is not sampled', `00-${TRACE}-00f067aa0ba902b7-00`, true],
  ['one with more flags', `00-${TRACE}-00f067aa0ba902b7-ff`, true],
  ['no trace', `00-${'0'.repeat(32)}-00f067aa0ba902b7-01`, false],
  ['no span', `00-${TRACE}-${'0'.repeat(16)}-01`, false],
  ['version ff', `ff-${TRACE}-00f067aa0ba902b7-01`, false],
  ['upper case', CALLER.toUpperCase(), false],
  ['more than it may hold', `${CALLER}-x`, false],
  ['nothing', '', false],
])('a traceparent: %s', (_, text, valid) => {
  expect(parseTraceparent(text) !== undefined).toBe(valid);
});

test('a traceparent is written as it was read', () => {
  const parsed = parseTraceparent(CALLER);
  expect(parsed && traceparentOf(parsed)).toBe(CALLER);
});

describe('while nothing is traced', () => {
  test('every function only does the work that it is given, in the same turn', () => {
    expect(isTracing()).toBe(false);
    expect(inSpan('facts', { operation: 'read_order' }, (span) => [span.set({ result: 'found' }), 1])).toEqual([
      undefined,
      1,
    ]);
    expect(inRunSpan({ run_id: RUN, trace_context: CALLER }, 'stage verify', {}, () => 2)).toBe(2);
    expect(inServerSpan(CALLER, 'GET', () => 3)).toBe(3);
    expect(inDecideSpan(() => undefined)).toBeUndefined();
    expect([currentTraceId(), currentTraceparent()]).toEqual([undefined, undefined]);
  });

  test('log lines about a run that came with a trace name that trace', () => {
    expect(traceFieldsOf({ trace_context: CALLER })).toEqual({ trace_id: TRACE });
    expect(traceFieldsOf({ trace_context: null })).toEqual({});
    expect(traceFieldsOf({ trace_context: 'what nobody wrote' })).toEqual({});
  });
});

test('a request continues its caller’s trace, and what is kept with the run puts the workers below it', async () => {
  const spans = recording();
  const kept = inServerSpan(CALLER, 'POST', (span) => {
    span.name('POST /v1/runs');
    return currentTraceparent() ?? null;
  });
  await inRunSpan({ run_id: RUN, trace_context: kept }, 'stage verify', { stage: 'verify' }, async () => {
    await inSpan('look-up', { operation: 'read_refund_status' }, async (span) => span.set({ result: 'exact' }));
    inDecideSpan(() => ({ kind: 'commit', on: 'effect_verified' }));
    await inCommitSpan({ from: 'verifying', to: 'completed', trigger: 'effect_verified' }, async () => ({
      kind: 'committed',
    }));
    startSpan('send', { attempt_n: 1 }).end({ outcome: 'applied' });
  });
  await endTracing();
  const byName = new Map(spans.map((span) => [span.name, span]));
  const server = byName.get('POST /v1/runs');
  const stage = byName.get('stage verify');
  expect(new Set(spans.map((span) => span.spanContext().traceId))).toEqual(new Set([TRACE]));
  expect(server?.parentSpanContext?.spanId).toBe('00f067aa0ba902b7');
  expect(stage?.parentSpanContext?.spanId).toBe(server?.spanContext().spanId);
  expect(stage?.attributes).toEqual({ run_id: RUN, stage: 'verify' });
  for (const name of ['look-up', 'decide', 'commit', 'send'])
    expect(byName.get(name)?.parentSpanContext?.spanId, name).toBe(stage?.spanContext().spanId);
  expect(byName.get('commit')?.attributes).toEqual({
    from: 'verifying',
    to: 'completed',
    trigger: 'effect_verified',
    result: 'committed',
  });
});

test('a run without a context is in the trace that its id names, whoever works on it, and the work is linked to the request that asked', async () => {
  const spans = recording();
  const run = { run_id: RUN, trace_context: null };
  inRunSpan(run, 'stage execute', {}, () => undefined);
  inServerSpan(null, 'POST', () => inRunSpan(run, 'decision', {}, () => undefined));
  inServerSpan(null, 'GET', () => undefined);
  await endTracing();
  const [stage, decision, asking, other] = spans;
  expect(traceIdOfRun(RUN)).toBe('019300000000700080000000000000aa');
  expect([stage, decision].map((span) => span?.spanContext().traceId)).toEqual([traceIdOfRun(RUN), traceIdOfRun(RUN)]);
  expect([stage, decision].map((span) => span?.parentSpanContext)).toEqual([undefined, undefined]);
  expect(decision?.links.map(({ context }) => context.spanId)).toEqual([asking?.spanContext().spanId]);
  // The named trace is the run's alone.
  expect(other?.spanContext().traceId).not.toBe(traceIdOfRun(RUN));
});

test('what belongs to no work that is a span is none: a sweep’s hint makes no trace of its own', async () => {
  const spans = recording();
  inSpan('hint', { stage: 'verify' }, () => undefined);
  startSpan('send', {}).end({});
  await endTracing();
  expect(spans).toEqual([]);
});

test('a caller that does not sample, and a sampler that drops, drop the whole run', async () => {
  const spans = recording();
  const unsampled = `00-${TRACE}-00f067aa0ba902b7-00`;
  const kept = inServerSpan(unsampled, 'POST', () => currentTraceparent() ?? null);
  inRunSpan({ run_id: RUN, trace_context: kept }, 'stage verify', {}, () => inSpan('decide', {}, () => undefined));
  await endTracing();
  expect(kept).toMatch(new RegExp(`^00-${TRACE}-[0-9a-f]{16}-00$`));
  const dropped = recording('parentbased_traceidratio', 0);
  inRunSpan({ run_id: RUN, trace_context: null }, 'stage verify', {}, () => inSpan('decide', {}, () => undefined));
  await endTracing();
  expect([spans, dropped]).toEqual([[], []]);
});

test('an error ends its span with its class or code and is thrown on; its words stay out', async () => {
  const spans = recording();
  const run = { run_id: RUN, trace_context: CALLER };
  const refused = Object.assign(new Error('Wilhelmina Ostrowska'), { code: 'ECONNREFUSED' });
  await expect(inRunSpan(run, 'stage verify', {}, () => Promise.reject(refused))).rejects.toBe(refused);
  expect(() =>
    inRunSpan(run, 'stage verify', {}, () => {
      throw new RangeError('Wilhelmina Ostrowska');
    }),
  ).toThrow(RangeError);
  await endTracing();
  expect(spans.map(({ attributes }) => attributes['error.type'])).toEqual(['ECONNREFUSED', 'RangeError']);
  expect(spans.map(({ status, events }) => [status, events])).toEqual([
    [{ code: 2 }, []],
    [{ code: 2 }, []],
  ]);
});

test('work begins in the call itself: nothing is awaited before it', async () => {
  recording();
  const order: string[] = [];
  const working = inRunSpan({ run_id: RUN, trace_context: CALLER }, 'stage execute', {}, async () => {
    const sending = startSpan('send', {});
    order.push('written');
    await Promise.resolve();
    sending.end({ outcome: 'applied' });
  });
  order.push('returned');
  await working;
  expect(order).toEqual(['written', 'returned']);
});

test('inside a span every log line names it, once, and outside of all none', async () => {
  recording();
  const { log, lines, text } = logged();
  log.info('outside');
  inServerSpan(CALLER, 'GET', () => {
    log.info({ run_id: RUN }, 'inside');
    log.error({ trace_id: currentTraceId() }, 'named by hand as well');
  });
  const [outside, ...inside] = lines();
  expect(outside).not.toHaveProperty('trace_id');
  for (const line of inside)
    expect(line).toMatchObject({ trace_id: TRACE, span_id: expect.stringMatching(/^[0-9a-f]{16}$/) });
  expect(text().match(/"trace_id"/g)).toHaveLength(2);
});

test('a collector that refuses is told of once a minute with a count, never in its own words, and again when it takes spans', async () => {
  let status = 400;
  const server = createServer((request, response) => {
    request.resume().once('end', () => response.writeHead(status).end('Wilhelmina Ostrowska'));
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const endpoint = `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1/traces`;
  const { log, lines } = logged();
  let nowMs = 0;
  const exporter = otlpExporter({ ...SETTINGS, endpoint }, { log, monotonicMs: () => nowMs });
  const spans = recording();
  inServerSpan(null, 'GET', () => undefined);
  await endTracing();
  const deliver = () => new Promise((resolve) => exporter.export(spans, resolve));
  await deliver();
  await deliver();
  nowMs = 60_000;
  await deliver();
  status = 200;
  await deliver();
  await deliver();
  await exporter.shutdown();
  await new Promise((resolve) => server.close(resolve));
  expect(lines().map(({ level, spans: lost, reason }) => [level, lost, reason])).toEqual([
    ['warn', 1, 'status 400'],
    ['warn', 3, 'status 400'],
    ['info', 3, undefined],
  ]);
});
