// Draws what every panel of every dashboard would show, from a live Prometheus: a viewing aid for people who have no Grafana at hand.
// Usage: npm run dashboards:render -- --out FOLDER [--seconds 90]
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { createClient } from '@counterstamp/api-contract';
import { createApiKey } from '@counterstamp/manifest-store';
import { chromium } from 'playwright-core';
import { startOwnPostgres } from '../chaos/own-postgres.ts';
import { DASHBOARDS } from '../deploy/grafana/dashboards.ts';
import { startOwnRedis } from '../packages/stage-queue/testing/own-redis.ts';
import { panelsOf, type ShownPanel } from './dashboard-queries.ts';
import { writeFastRules } from './fast-rules.ts';
import { type Fleet, prepareFleetDatabase, startFleet } from './fleet.ts';
import { startOrphanGuard } from './orphan-guard.ts';
import { type PrometheusServer, type Range, startPrometheus } from './prometheus-server.ts';
import { testIds } from './test-ids.ts';
import { mismatched, operatorOf, workInAllWays } from './varied-work.ts';

const ACCESS = { rolePrefix: 'cs_render_', secret: 'render-secret-of-this-run-only' };
const WIDTH = 1_440;
const ROW = 34;
const CHART = { width: 460, height: 230 };
const COLOURS = [
  '#3274d9',
  '#e0752d',
  '#56a64b',
  '#a352cc',
  '#e02f44',
  '#e0b400',
  '#37a2a5',
  '#8f3bb8',
  '#6b7280',
  '#b45309',
];

const { values } = parseArgs({ options: { out: { type: 'string' }, seconds: { type: 'string', default: '90' } } });
if (values.out === undefined) {
  console.error('Usage: npm run dashboards:render -- --out FOLDER [--seconds 90]');
  process.exit(64);
}
mkdirSync(values.out, { recursive: true });
await main(values.out, Number(values.seconds));

async function main(out: string, seconds: number): Promise<void> {
  const folder = mkdtempSync(path.join(tmpdir(), 'cs-testing-render-'));
  const guard = startOrphanGuard(folder);
  const closers: (() => Promise<unknown>)[] = [];
  try {
    const postgres = await startOwnPostgres(folder);
    closers.push(() => postgres.stop());
    writeFileSync(path.join(folder, `postgres${guard.pidFileEnding}`), String(postgres.pid()));
    const redis = await startOwnRedis();
    closers.push(() => redis.dispose());
    await prepareFleetDatabase(postgres.url, ACCESS);
    const fleet = await startFleet({ ownerUrl: postgres.url, ...ACCESS, redisUrl: redis.url });
    closers.push(() => fleet.stop());
    await fleet.start('reconciler');
    const prometheus = await startPrometheus(folder, writeFastRules(path.join(folder, 'rules')));
    closers.push(() => prometheus.stop());
    prometheus.scrape(fleet.processes.map(({ port }) => port));
    const startS = Date.now() / 1_000;
    await work(fleet, seconds);
    await draw(prometheus, out, startS, Date.now() / 1_000);
  } finally {
    for (const close of closers.reverse()) await close().catch(() => undefined);
    rmSync(folder, { recursive: true, force: true });
    guard.dismiss();
  }
}

/** Everything that may become of a run, bursts of two tenants, some that nobody decides, and two that a person has to settle. */
async function work(fleet: Fleet, seconds: number): Promise<void> {
  const endsAt = performance.now() + seconds * 1_000;
  const operator = await operatorOf(fleet);
  const { key } = await createApiKey(fleet.owner, testIds, {
    tenant_id: 'shop_south',
    name: 'requester',
    role: 'requester',
  });
  const south = createClient({ baseUrl: fleet.apiUrl, key, fetch });
  for (let round = 0; performance.now() < endsAt; round++) {
    const burst = Promise.all(
      Array.from({ length: 24 }, async (_, n) => {
        const run_id = await fleet.request(await fleet.seed(), { approval_life_ms: 4_000 + 500 * n });
        // People decide on half of them, one later than the other.
        if (n % 2 === 0) return;
        await delay(200 * n);
        await fleet.approve(run_id).catch(() => undefined);
      }),
    );
    for (let n = 0; n < 5; n++) {
      const { request_id, order_id } = await fleet.seed({ tenant_id: 'shop_south' });
      const input = { order_id, requested_amount_minor: 4_200, currency: 'USD', reason: 'item arrived damaged' };
      await south.createRun({ request_id, input, approval_life_ms: 10_000 });
    }
    await workInAllWays(fleet, operator);
    if (round < 2) await mismatched(fleet);
    await burst;
  }
}

async function draw(prometheus: PrometheusServer, out: string, startS: number, endS: number): Promise<void> {
  const browser = await chromium.launch({
    executablePath: '/usr/bin/chromium',
    args: ['--no-sandbox', '--disable-gpu', '--no-first-run', '--disable-background-networking', '--disable-sync'],
  });
  try {
    const tab = await browser.newPage({ viewport: { width: WIDTH, height: 900 } });
    for (const [name, dashboard] of Object.entries(DASHBOARDS)) {
      const panels = panelsOf(dashboard);
      const drawn: string[] = [];
      for (const panel of panels) drawn.push(await panelHtml(prometheus, panel, startS, endS));
      await tab.setContent(pageHtml(dashboard.title ?? name, dashboard.description ?? '', drawn));
      await tab.screenshot({ path: path.join(out, `${name}.png`), fullPage: true });
      console.log(`${path.join(out, `${name}.png`)}: ${panels.length} panels`);
    }
  } finally {
    await browser.close();
  }
}

async function panelHtml(
  prometheus: PrometheusServer,
  panel: ShownPanel,
  startS: number,
  endS: number,
): Promise<string> {
  const { x, y, w, h } = panel.gridPos ?? { x: 0, y: 0, w: 12, h: 8 };
  const place = `grid-column:${x + 1}/span ${w};grid-row:${y + 1}/span ${h}`;
  const head = `<header title="${escaped(panel.description ?? '')}">${escaped(panel.title)}</header><p>${escaped(panel.description ?? '')}</p>`;
  if (panel.type === 'text')
    return `<section style="${place}">${head}<pre>${escaped(panel.options?.content ?? '')}</pre></section>`;
  const lines: { name: string; values: Range['values'] }[] = [];
  for (const { expr, legendFormat = '' } of panel.targets ?? []) {
    const asked = expr.replaceAll('$__rate_interval', '10s');
    for (const { metric, values } of await prometheus.range(asked, startS, endS, 1)) {
      const finite = values.filter(([, value]) => Number.isFinite(value));
      if (finite.length > 0)
        lines.push({
          name: legendFormat.replaceAll(/\{\{(\w+)\}\}/g, (_, label: string) => metric[label] ?? ''),
          values: finite,
        });
    }
  }
  const unit = panel.fieldConfig?.defaults?.unit ?? '';
  const highest = ({ values }: (typeof lines)[number]) => Math.max(...values.map(([, value]) => value));
  if (panel.type !== 'stat') lines.sort((one, other) => highest(other) - highest(one));
  const isLogarithmic = panel.fieldConfig?.defaults?.custom?.scaleDistribution?.type === 'log';
  const body =
    lines.length === 0
      ? '<b class="none">no data</b>'
      : panel.type === 'stat'
        ? lines
            .map(({ name, values }) => `<b>${shown(values.at(-1)?.[1] ?? 0, unit)}</b><i>${escaped(name)}</i>`)
            .join(' ')
        : chart(lines, unit, startS, endS, isLogarithmic);
  return `<section style="${place}">${head}<div>${body}</div></section>`;
}

function chart(
  lines: readonly { name: string; values: Range['values'] }[],
  unit: string,
  startS: number,
  endS: number,
  isLogarithmic: boolean,
): string {
  const top = Math.max(...lines.flatMap(({ values }) => values.map(([, value]) => value)), 1e-3);
  const { width, height } = CHART;
  const scale = (value: number) => (isLogarithmic ? Math.log1p(value) : value);
  const paths = lines.map(({ values }, at) => {
    const points = values.map(
      ([time, value]) =>
        `${(((time - startS) / (endS - startS)) * width).toFixed(1)},${(height - (scale(value) / scale(top)) * (height - 8)).toFixed(1)}`,
    );
    return `<polyline fill="none" stroke-width="1.6" stroke="${COLOURS[at % COLOURS.length]}" points="${points.join(' ')}"/>`;
  });
  const legend = lines
    .map(
      ({ name, values }, at) =>
        `<tr><td style="color:${COLOURS[at % COLOURS.length]}">▬</td><td>${escaped(name)}</td><td>${shown(values.at(-1)?.[1] ?? 0, unit)}</td><td>${shown(Math.max(...values.map(([, value]) => value)), unit)}</td></tr>`,
    )
    .join('');
  return `<div class="chart"><svg viewBox="0 0 ${width} ${height}" preserveAspectRatio="none"><line x1="0" x2="${width}" y1="${height}" y2="${height}" stroke="#ccc"/>${paths.join('')}</svg>
    <table><tr><th></th><th>max ${shown(top, unit)}</th><th>last</th><th>max</th></tr>${legend}</table></div>`;
}

function shown(value: number, unit: string): string {
  if (unit === 'percentunit') return `${(100 * value).toFixed(0)} %`;
  if (unit === 's') return value < 1 ? `${(1_000 * value).toFixed(0)} ms` : `${value.toFixed(1)} s`;
  return Number.isInteger(value) ? String(value) : value.toFixed(1);
}

function pageHtml(title: string, description: string, sections: readonly string[]): string {
  return `<!doctype html><meta charset="utf-8"><style>
    body{font:12px system-ui,sans-serif;margin:12px;background:#f4f5f7;color:#1f2937}h1{font-size:18px;margin:0 0 2px}
    main{display:grid;grid-template-columns:repeat(24,1fr);grid-auto-rows:${ROW}px;gap:6px}
    section{background:#fff;border:1px solid #d8dbe0;border-radius:3px;padding:6px 8px;overflow:hidden}
    header{font-weight:600}p{margin:1px 0 4px;color:#6b7280;font-size:10.5px}b{font-size:22px}i{font-style:normal;margin:0 12px 0 4px;color:#4b5563}
    .none{color:#e02f44}.chart{display:flex;gap:8px}svg{flex:1;height:${CHART.height}px;background:#fbfbfc}table{font-size:10.5px;align-self:start}td,th{padding:0 4px;text-align:left;white-space:nowrap}
    pre{white-space:pre-wrap;margin:0}</style><h1>${escaped(title)}</h1><p>${escaped(description)}</p><main>${sections.join('')}</main>`;
}

function escaped(text: string): string {
  return text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('"', '&quot;');
}
