import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import type { ApiClient } from '@counterstamp/api-contract';
import type { Service } from '@counterstamp/manifest-core';
import { connect, type Sql } from '@counterstamp/manifest-store';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { parse } from 'yaml';
import { dashboardQueries } from '../testing/dashboard-queries.ts';
import { writeFastRules } from '../testing/fast-rules.ts';
import { type Fleet, poll, prepareFleetDatabase, startFleet } from '../testing/fleet.ts';
import { type PrometheusServer, startPrometheus } from '../testing/prometheus-server.ts';
import { runbookQueries } from '../testing/runbook-pages.ts';
import { redisUrl, type TestDatabase, testDatabase } from '../testing/services.ts';
import { TEST_ROLE_PREFIX, TEST_SECRET } from '../testing/store-fixture.ts';
import { startTcpProxy, type TcpProxy } from '../testing/tcp-proxy.ts';
import { approved, mismatched, operatorOf, settleMismatch, workInAllWays } from '../testing/varied-work.ts';

/** Milliseconds for an alert to fire or clear; with the fast rules it takes seconds. */
const ALERT_MS = 40_000;
/** The bound of the issue on an answer of /metrics, whatever hangs. */
const METRICS_MS = 2_000;
const ACCESS = { rolePrefix: TEST_ROLE_PREFIX, secret: TEST_SECRET };

let folder: string;
let database: TestDatabase;
/** Between every process and Postgres: what it holds back, nobody hears. */
let wire: TcpProxy;
/** Past the proxy: the truth to compare with. */
let truth: Sql;
let fleet: Fleet;
let operator: ApiClient;
let prometheus: PrometheusServer;
let startedAtS: number;

beforeAll(async () => {
  folder = mkdtempSync(path.join(tmpdir(), 'cs-testing-prometheus-'));
  database = await testDatabase({
    version: 18,
    name: 'fleet',
    prepare: (url) => prepareFleetDatabase(url, ACCESS),
  });
  const through = new URL(database.url);
  wire = await startTcpProxy({ host: through.hostname, port: Number(through.port) });
  through.hostname = '127.0.0.1';
  through.port = String(wire.port);
  truth = connect(database.url, { max: 1, applicationName: 'test-truth' });
  fleet = await startFleet({ ownerUrl: through.href, ...ACCESS, redisUrl: await redisUrl() });
  await Promise.all([fleet.start('reconciler'), fleet.start('reconciler')]);
  operator = await operatorOf(fleet);
  prometheus = await startPrometheus(folder, writeFastRules(path.join(folder, 'rules')));
  scrapeAll();
  startedAtS = Date.now() / 1_000;
}, 120_000);
afterAll(async () => {
  await wire?.heal();
  await prometheus?.stop();
  await fleet?.stop();
  await truth?.end({ timeout: 1 });
  await wire?.close();
  await database?.drop();
  rmSync(folder, { recursive: true, force: true });
}, 60_000);

const living = () => fleet.processes.filter(({ child }) => child.exitCode === null && child.signalCode === null);
const of = (service: Service) => living().filter((started) => started.service === service);
const scrapeAll = () => prometheus.scrape(living().map(({ port }) => port));

/** The recorded totals, as dashboards ask for them. */
async function recorded(): Promise<Record<string, number>> {
  const runs = await prometheus.query('max by (state) (counterstamp:runs)');
  return Object.fromEntries(runs.filter(({ value }) => value > 0).map(({ metric, value }) => [metric.state, value]));
}

/** The same, counted in the tables. */
async function counted(): Promise<Record<string, number>> {
  const rows = await truth<{ state: string; runs: number }[]>`
    select state, count(*)::int as runs from cs.run
    where state not in ('completed', 'rejected', 'expired', 'failed') group by state`;
  return Object.fromEntries(rows.map(({ state, runs }) => [state, runs]));
}

async function untilRecordedIsTrue(): Promise<Record<string, number>> {
  let seen = {};
  await poll(
    async () => {
      seen = await recorded();
      expect(seen).toEqual(await counted());
      return true;
    },
    ALERT_MS,
    `the recorded totals (${JSON.stringify(seen)}) did not become those of the tables`,
  );
  return seen;
}

const fresh = async () => (await prometheus.query('counterstamp:census_fresh')).map(({ value }) => value);

test('work in all ways: three reconcilers count each run once, and every process is scraped', async () => {
  await workInAllWays(fleet, operator);
  await approved(fleet); // Ends by itself.
  // Two wait for a person, and stay.
  for (let n = 0; n < 2; n++) {
    const seeded = await fleet.seed();
    await fleet.until(await fleet.request(seeded), ['awaiting_approval']);
  }
  expect(await untilRecordedIsTrue()).toMatchObject({ awaiting_approval: 2 });
  expect(await fresh()).toEqual([1]);
  await poll(
    async () => (await prometheus.query('up == 1')).length === living().length,
    ALERT_MS,
    'not every process is scraped',
  );
  // Whatever became of these runs is no reason to wake anybody.
  await poll(
    async () => (await prometheus.alerts()).every(({ labels }) => labels.severity !== 'page'),
    ALERT_MS,
    'somebody is paged',
  );
}, 90_000);

const fires = async () => (await prometheus.alerts()).map(({ name }) => name);

test('every verifier killed: the alert names the stage and its runbook, and clears when one is back', async () => {
  expect(await fires()).not.toContain('CounterstampQueueWithoutConsumer');
  await Promise.all(of('verifier').map((verifier) => fleet.end(verifier, 'SIGKILL')));
  const [alert] = await prometheus.untilAlert('CounterstampQueueWithoutConsumer', true, ALERT_MS);
  expect(alert).toMatchObject({
    labels: { stage: 'verify', severity: 'page' },
    annotations: {
      summary: 'no process takes hints of the stage verify',
      runbook_url: 'docs/operations/runbooks/queue-without-consumer.md',
    },
  });
  await prometheus.untilAlert('CounterstampTargetDown', true, ALERT_MS);
  await prometheus.untilAlert('CounterstampServiceMissing', true, ALERT_MS);
  await fleet.start('verifier');
  scrapeAll();
  for (const name of ['QueueWithoutConsumer', 'TargetDown', 'ServiceMissing'])
    await prometheus.untilAlert(`Counterstamp${name}`, false, ALERT_MS);
}, 150_000);

test('another amount booked: pages at once, and clears when a person has settled it', async () => {
  expect(await fires()).not.toContain('CounterstampVerificationMismatch');
  const runs = [await mismatched(fleet), await mismatched(fleet)];
  await poll(
    async () =>
      (await prometheus.query('sum(counterstamp:runs_parked{reason="verification_mismatch"})'))[0]?.value === 2,
    ALERT_MS,
    'the parked runs are not counted',
  );
  const [alert] = await prometheus.untilAlert('CounterstampVerificationMismatch', true, ALERT_MS);
  expect(alert?.labels.severity).toBe('page');
  for (const run_id of runs) await settleMismatch(fleet, operator, run_id);
  await prometheus.untilAlert('CounterstampVerificationMismatch', false, ALERT_MS);
}, 120_000);

test('one reconciler of three killed: the totals stay those of the tables', async () => {
  const [victim] = of('reconciler');
  if (victim === undefined) throw new Error('no reconciler');
  await fleet.end(victim, 'SIGKILL');
  await poll(
    async () => (await prometheus.query('counterstamp_runs{state="queued"}')).length === 2,
    ALERT_MS,
    'the killed reconciler is still counted',
  );
  expect(await untilRecordedIsTrue()).toMatchObject({ awaiting_approval: 2 });
  expect(await fresh()).toEqual([1]);
  scrapeAll();
}, 60_000);

test('Postgres frozen: /metrics answers all the same, the last truth stays and is marked as old, somebody is paged, and it heals', async () => {
  const before = await untilRecordedIsTrue();
  expect(await fires()).not.toContain('CounterstampCensusStale');
  wire.holdReplies();
  await prometheus.untilAlert('CounterstampCensusStale', true, ALERT_MS);
  for (const { port, service } of living()) {
    // Ten at once, as several Prometheus and people do.
    const answers = await Promise.all(
      Array.from({ length: 10 }, async () => {
        const response = await fetch(`http://127.0.0.1:${port}/metrics`, { signal: AbortSignal.timeout(METRICS_MS) });
        return { status: response.status, text: await response.text() };
      }),
    );
    for (const { status, text } of answers) {
      expect(status, service).toBe(200);
      expect(text).toContain(`counterstamp_build_info{`);
    }
  }
  expect(await fresh()).toEqual([0]);
  expect(await recorded()).toEqual(before);
  expect(await prometheus.query('up{job="counterstamp"} == 0')).toEqual([]);
  await wire.heal();
  await prometheus.untilAlert('CounterstampCensusStale', false, ALERT_MS);
  await poll(async () => (await fresh())[0] === 1, ALERT_MS, 'nothing is fresh again');
  await untilRecordedIsTrue();
}, 120_000);

test('every expression of the dashboards and of the recording rules returned data, and no rule failed', async () => {
  const rules = parse(readFileSync('deploy/prometheus/recording.yml', 'utf8')) as {
    groups: { rules: { record: string }[] }[];
  };
  const all = [
    ...dashboardQueries('10s').map(({ dashboard, panel, expr }) => ({ where: `${dashboard}: ${panel}`, expr })),
    ...rules.groups.flatMap((group) => group.rules).map(({ record }) => ({ where: record, expr: record })),
  ];
  expect(all.length).toBeGreaterThan(60);
  const endS = Date.now() / 1_000;
  const empty: string[] = [];
  for (const { where, expr } of all) {
    const found = await prometheus.range(expr, startedAtS, endS, 1);
    if (found.every(({ values }) => values.every(([, value]) => Number.isNaN(value))))
      empty.push(`${where}\n  ${expr}`);
  }
  expect(empty).toEqual([]);
  // What a runbook tells to paste is understood; some of it has rightly nothing to show when all is well.
  for (const { where, expr } of runbookQueries())
    await prometheus.query(expr).catch((error: unknown) => expect.fail(`${where}: ${String(error)}`));
  // Each rule was evaluated without an error.
  const response = await fetch(`${prometheus.url}/api/v1/rules`);
  const { data } = (await response.json()) as {
    data: { groups: { rules: { name: string; health: string; lastError?: string }[] }[] };
  };
  expect(data.groups.flatMap((group) => group.rules).filter(({ health }) => health !== 'ok')).toEqual([]);
}, 60_000);
