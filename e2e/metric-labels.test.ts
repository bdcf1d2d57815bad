import { randomUUID } from 'node:crypto';
import { request as httpRequest } from 'node:http';
import { METRICS } from '@counterstamp/telemetry';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { Fleet } from '../testing/fleet.ts';
import { testFleet } from '../testing/test-fleet.ts';

/** Requests of each kind in a round: enough that a label made of any of them would show. */
const READS = 1_000;
const OTHERS = 120;
const RUNS = 20;

let fleet: Fleet;
beforeAll(async () => {
  const many = '1000000';
  fleet = await testFleet('postgres', undefined, {
    COUNTERSTAMP_RATE_PER_PRINCIPAL: many,
    COUNTERSTAMP_RATE_PER_TENANT: many,
    COUNTERSTAMP_RATE_UNAUTHENTICATED: many,
  });
}, 90_000);
afterAll(async () => {
  await fleet?.stop();
}, 30_000);

async function scrape(): Promise<{ series: string[]; ms: number; api_rss: number }> {
  const began = performance.now();
  const texts = await Promise.all(
    fleet.processes.map(async ({ port }) => await (await fetch(`http://127.0.0.1:${port}/metrics`)).text()),
  );
  const ms = performance.now() - began;
  const series = texts.flatMap((text) =>
    text
      .split('\n')
      .filter((line) => line !== '' && !line.startsWith('#'))
      .map((line) => line.slice(0, line.lastIndexOf(' '))),
  );
  const api = texts.find((text) => text.includes('counterstamp_http_request_duration_seconds')) ?? '';
  return { series, ms, api_rss: Number(/^process_resident_memory_bytes\S* (\S+)/m.exec(api)?.[1]) };
}

/** What no client library would send. */
function odd(method: string, host: string): Promise<void> {
  const { port, hostname } = new URL(fleet.apiUrl);
  return new Promise((resolve) => {
    const sent = httpRequest({ port, hostname, method, path: '/v1/runs', headers: { host } }, (answer) => {
      answer.resume();
      answer.once('end', resolve);
    });
    sent.once('error', () => resolve());
    sent.end();
  });
}

/** At most sixteen at a time. */
async function times(count: number, work: (n: number) => Promise<unknown>): Promise<void> {
  let next = 0;
  await Promise.all(
    Array.from({ length: 16 }, async () => {
      while (next < count) await work(next++);
    }),
  );
}

const METHODS = ['PROPFIND', 'MKCOL', 'REPORT', 'PURGE', 'SEARCH', 'LOCK', 'COPY', 'TRACE'];

async function round(): Promise<void> {
  const headers = { authorization: `Bearer ${fleet.keys.requester}` };
  const read = async (path: string) => (await fetch(`${fleet.apiUrl}${path}`, { headers })).arrayBuffer();
  await times(READS, () => read(`/v1/runs/run_${randomUUID()}`));
  await times(OTHERS, () => read(`/${randomUUID()}/${randomUUID()}?q=${randomUUID()}`));
  await times(OTHERS, (n) => odd(METHODS[n % METHODS.length] ?? 'PURGE', `${randomUUID()}.example.com`));
  await times(OTHERS, async (n) => {
    const response = await fetch(`${fleet.apiUrl}/v1/runs`, {
      method: 'POST',
      headers: { ...headers, 'content-type': 'application/json' },
      body: JSON.stringify({
        request_id: `case_${randomUUID()}`,
        input: { order_id: 'order_1', requested_amount_minor: 100, currency: `X${n}`, reason: 'x' },
      }),
    });
    expect(response.status).toBeGreaterThanOrEqual(400);
    await response.arrayBuffer();
  });
  await times(RUNS, async () => {
    const run_id = await fleet.request(await fleet.seed());
    await fleet.until(run_id, ['awaiting_approval']);
  });
}

/** Values of all labels but the bounds of histograms and what the runtime says of itself. */
function valuesIn(series: readonly string[]): Set<string> {
  return new Set(
    series
      .filter((one) => one.startsWith('counterstamp_'))
      .flatMap((one) => [...one.matchAll(/(\w+)="([^"]*)"/g)])
      .filter(([, label]) => label !== 'le')
      .map(([, , value]) => value ?? ''),
  );
}
const CATALOGUE = Object.values(METRICS).flatMap(({ labels }) => Object.values(labels).flat());

test('O24: whatever callers send, series grow with routes, methods and status classes, and with nothing else', async () => {
  await round();
  const before = await scrape();
  await round();
  const after = await scrape();
  // What the second round happens to do for the first time, such as a swap lost, has a series more; a value of its own it never has.
  const known = new Set([...valuesIn(before.series), ...CATALOGUE]);
  expect([...valuesIn(after.series)].filter((value) => !known.has(value))).toEqual([]);
  const text = after.series.join('\n');
  expect(text).not.toMatch(/[0-9a-f]{8}-[0-9a-f]{4}|run_0|order_|case_|currency|example\.com|PROPFIND/);
  expect(text).toMatch(
    /counterstamp_http_request_duration_seconds_count\{.*method="GET",route="unmatched",status="4xx"/,
  );
  expect(text).toMatch(/counterstamp_http_request_duration_seconds_count\{.*method="other"/);
  const routes = new Set([...text.matchAll(/route="([^"]+)"/g)].map(([, route]) => route));
  expect(routes).toEqual(new Set(['/v1/runs', '/v1/runs/{run_id}', '/readyz', 'unmatched']));
  // One round fills whatever is kept; a second of the same size must not. With room for the garbage that was not collected yet.
  expect(after.api_rss - before.api_rss).toBeLessThan(96 * 1024 * 1024);
  console.log(`O24: ${after.series.length} series in five processes, scraped in ${Math.round(after.ms)} ms`);
}, 180_000);
