import { type Clock, SERVICES, type Service } from '@counterstamp/manifest-core';
import { describe, expect, test } from 'vitest';
import { METRICS, type MetricEntry, type MetricName, OPEN_STATES } from './catalogue.ts';
import type { Census } from './census-metrics.ts';
import { createMetrics } from './metrics.ts';

/** A clock that stands still: a scrape waits for its readings until they answer. */
const clock: Clock = {
  monotonicMs: () => 0,
  wallMs: () => 1_800_000_000_000,
  sleep: () => new Promise(() => undefined),
  after: () => () => undefined,
};
/** And one on which every wait is over at once. */
const impatient: Clock = { ...clock, sleep: () => Promise.resolve() };
const metricsOf = (service: Service, on = clock) =>
  createMetrics(service, on, { version: '1.2.3', backend: 'redis' }, { warn: (_, text) => void warnings.push(text) });
const warnings: string[] = [];
const CENSUS: Census = {
  states: [{ state: 'queued', count: 3, oldest_age_ms: 90_000, total_age_ms: 96_000, buckets: [1, 1, 0, 0, 0, 1] }],
  parked: [{ reason: 'verification_mismatch', count: 2, oldest_age_ms: 60_000 }],
  doubt: { oldest_age_ms: 0 },
  due: { count: 1, oldest_age_ms: 500 },
  approvals: { waiting: 4, expiring_soon: 1 },
  tenants: [{ open_runs: 9, oldest_machine_wait_ms: 2_000 }],
  rest: { tenants: 0, open_runs: 0, oldest_machine_wait_ms: 0 },
  holds: [{ scope: 'all', count: 1, oldest_age_ms: 3_600_000 }],
  instances: [{ service: 'executor', count: 2 }],
};

/** Lines of one metric without its `service` label, which comes last. */
async function lines(metrics: { text(): Promise<string> }, name: string): Promise<string[]> {
  return (await metrics.text())
    .split('\n')
    .filter((line) => line.startsWith(`${name}{`))
    .map((line) => line.replace(/,?service="\w+"/, '').replace('{,', '{'));
}

describe('the catalogue', () => {
  const entries = Object.entries(METRICS) as [MetricName, MetricEntry][];
  test.each(entries)('%s is named by its unit and kind, and says something', (name, { type, help, by }) => {
    expect(name).toMatch(/^counterstamp_[a-z_]+$/);
    expect(name.endsWith('_total')).toBe(type === 'counter');
    if (type === 'histogram') expect(name).toMatch(/_seconds$/);
    expect(help).toMatch(/^[A-Z].*\.$/);
    expect(by.length).toBeGreaterThan(0);
  });
  test.each(SERVICES)('%s exports nothing that the catalogue does not give it', async (service) => {
    const metrics = metricsOf(service);
    metrics.transition({ from: 'queued', to: 'preflight', trigger: 'request_loaded', stop_reason: null });
    metrics.onCensus(() => Promise.resolve(CENSUS));
    metrics.onPool(() => ({ limit: 5, open: 7, oldest_ms: 250 }));
    const names = new Set(
      [...(await metrics.text()).matchAll(/^# TYPE (counterstamp_\w+)/gm)].map(([, name]) => name as MetricName),
    );
    expect(names).toContain('counterstamp_build_info');
    for (const name of names) expect((METRICS[name] as MetricEntry).by, name).toContain(service);
  });
});

test('a value that no label knows becomes other, and no caller can make a series of it', async () => {
  const metrics = metricsOf('api');
  const before = (await metrics.text()).split('\n').length;
  for (let i = 0; i < 500; i++) {
    metrics.httpRequest({ method: `M${i}`, route: 'unmatched', status: 404, ms: 1 });
    metrics.alarm(`run_${i}`);
    metrics.transition({ from: 'queued', to: 'failed', trigger: `t${i}`, stop_reason: `text ${i}` });
  }
  const after = (await metrics.text()).split('\n').length;
  expect(after - before).toBeLessThan(30);
  expect(await lines(metrics, 'counterstamp_transitions_total')).toEqual([
    'counterstamp_transitions_total{from="queued",to="failed",trigger="other",stop_reason="other"} 500',
  ]);
});

test('a counter whose labels are few is there as zero before its first event, so that the first is an increase', async () => {
  expect(await lines(metricsOf('executor'), 'counterstamp_attempts_total')).toEqual(
    ['applied', 'rejected', 'not_sent', 'retry_safe', 'uncertain'].map(
      (outcome) => `counterstamp_attempts_total{outcome="${outcome}"} 0`,
    ),
  );
  expect(await lines(metricsOf('executor'), 'counterstamp_alarms_total')).toContain(
    'counterstamp_alarms_total{code="approval_forged"} 0',
  );
});

test('a move is counted once by its ends, and as finished or tried again where it is', async () => {
  const metrics = metricsOf('verifier');
  metrics.transition({ from: 'verifying', to: 'verifying', trigger: 'verification_pending', stop_reason: null });
  metrics.transition({ from: 'verifying', to: 'completed', trigger: 'effect_verified', stop_reason: null });
  expect(await lines(metrics, 'counterstamp_retries_total')).toContain(
    'counterstamp_retries_total{trigger="verification_pending"} 1',
  );
  expect(await lines(metrics, 'counterstamp_runs_finished_total')).toContain(
    'counterstamp_runs_finished_total{state="completed"} 1',
  );
  expect(await lines(metrics, 'counterstamp_transitions_total')).toHaveLength(2);
});

test('a statement beyond the pool waits, and the oldest tells of a silent database', async () => {
  const metrics = metricsOf('verifier');
  metrics.onPool(() => ({ limit: 5, open: 7, oldest_ms: 11_500 }));
  const text = await metrics.text();
  expect(text).toMatch(/^counterstamp_database_pool_connections\{state="busy".*\} 5$/m);
  expect(text).toMatch(/^counterstamp_database_statements_waiting\{.*\} 2$/m);
  expect(text).toMatch(/^counterstamp_database_oldest_statement_age_seconds\{.*\} 11.5$/m);
});

describe('the census', () => {
  test('shows every state and reason, zero as zero, and the ages as a histogram of the moment', async () => {
    const metrics = metricsOf('reconciler');
    metrics.onCensus(() => Promise.resolve(CENSUS));
    await metrics.text();
    expect(await lines(metrics, 'counterstamp_runs')).toEqual(
      OPEN_STATES.map((state) => `counterstamp_runs{state="${state}"} ${state === 'queued' ? 3 : 0}`),
    );
    const buckets = (await lines(metrics, 'counterstamp_run_age_seconds_bucket')).filter((line) =>
      line.includes('state="queued"'),
    );
    expect(buckets.map((line) => /le="([^"]+)".*\} (\d+)/.exec(line)?.slice(1))).toEqual([
      ['1', '1'],
      ['5', '2'],
      ['15', '2'],
      ['30', '2'],
      ['60', '2'],
      ...['120', '300', '600', '1800', '3600', '14400', '86400', '+Inf'].map((bound) => [bound, '3']),
    ]);
    expect(await lines(metrics, 'counterstamp_run_age_seconds_count')).toContain(
      'counterstamp_run_age_seconds_count{state="queued"} 3',
    );
    expect(await lines(metrics, 'counterstamp_runs_parked')).toContain(
      'counterstamp_runs_parked{reason="verification_mismatch"} 2',
    );
    expect(await lines(metrics, 'counterstamp_tenant_open_runs')).toContain(
      'counterstamp_tenant_open_runs{rank="1"} 9',
    );
  });

  test('that never succeeded shows no figures, and says so; one that fails keeps the last with its age', async () => {
    let answer: () => Promise<Census> = () => Promise.reject(new Error('gone'));
    const metrics = metricsOf('reconciler');
    metrics.onCensus(() => answer());
    const before = await metrics.text();
    expect(before).not.toContain('counterstamp_runs{');
    expect(before).toMatch(/^counterstamp_census_last_success_timestamp_seconds\{.*\} 0$/m);
    expect(before).toMatch(/^counterstamp_census_failures_total\{.*\} 1$/m);
    expect(warnings).toEqual(['the census failed; metrics show the last one, with its age']);
    answer = () => Promise.resolve(CENSUS);
    const late = metricsOf('reconciler');
    late.onCensus(() => answer());
    expect(await late.text()).toMatch(/^counterstamp_census_last_success_timestamp_seconds\{.*\} 1800000000$/m);
  });

  test('that hangs leaves the scrape its answer, ten at once too', async () => {
    const metrics = metricsOf('reconciler', impatient);
    let reads = 0;
    metrics.onCensus(() => {
      reads += 1;
      return new Promise(() => undefined);
    });
    const texts = await Promise.all(Array.from({ length: 10 }, () => metrics.text()));
    for (const text of texts) expect(text).toContain('counterstamp_census_age_seconds');
    expect(reads).toBe(1);
  });
});
