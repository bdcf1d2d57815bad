import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { METRICS, type MetricEntry } from '@counterstamp/telemetry';
import { createProgram } from 'counterstamp';
import { describe, expect, test } from 'vitest';
import { DASHBOARDS } from '../deploy/grafana/dashboards.ts';
import { dashboardQueries, panelsOf } from './dashboard-queries.ts';
import { alertRules, recordingRules } from './rule-files.ts';
import { MONITORING, RUNBOOKS, runbookPages, runbookQueries } from './runbook-pages.ts';

const pages = runbookPages().map((file) => file.slice(RUNBOOKS.length + 1));
const page = (name: string) => readFileSync(`${RUNBOOKS}/${name}`, 'utf8');
const alerts = [...new Map(alertRules().map((rule) => [rule.alert, rule])).values()];
const pageOf = (alert: string) =>
  `${alert
    .replace(/^Counterstamp/, '')
    .replaceAll(/(?<!^)[A-Z]/g, (capital) => `-${capital}`)
    .toLowerCase()}.md`;

describe('runbooks', () => {
  test('every alert has a page, and every page an alert', () => {
    expect(pages.sort()).toEqual(alerts.map(({ alert }) => pageOf(alert)).sort());
  });

  test.each(alertRules())(
    '$alert ($labels.severity) says what is wrong, what to do first and where to read on',
    (rule) => {
      expect(['page', 'ticket']).toContain(rule.labels.severity);
      expect(rule.alert).toMatch(/^Counterstamp[A-Z]/);
      expect(rule.annotations.summary).toBeTruthy();
      expect(rule.annotations.description).toMatch(/First: /);
      expect(rule.annotations.runbook_url).toBe(`${RUNBOOKS}/${pageOf(rule.alert)}`);
    },
  );

  test.each(pages)('%s says what it means, how to look, what is safe and what is not, and when it clears', (name) => {
    const text = page(name);
    expect(text.match(/^## .*$/gm)).toEqual([
      '## What it means',
      '## How to look',
      '## What is safe, and what is not',
      '## When it clears',
    ]);
    expect(text).toMatch(/^# Counterstamp/);
    expect(pageOf(text.slice(2, text.indexOf('\n')))).toBe(name);
    expect(text).toContain('**Safe**\n\n- ');
    expect(text).toContain('**Not safe**\n\n- ');
    // One query at least to paste.
    expect(text).toMatch(/```promql\n/);
  });

  test.each([...pages.map((name) => `${RUNBOOKS}/${name}`), MONITORING])('%s links pages that exist', (file) => {
    const folder = file.slice(0, file.lastIndexOf('/'));
    const links = [...readFileSync(file, 'utf8').matchAll(/\]\(([^)#]+)(?:#[^)]*)?\)/g)].map(([, link]) => link ?? '');
    expect(links.filter((link) => !/^https?:/.test(link) && !existsSync(`${folder}/${link}`))).toEqual([]);
  });

  test('the table of monitoring.md names every alert with its page', () => {
    const text = readFileSync(MONITORING, 'utf8');
    for (const { alert } of alerts) expect(text).toContain(`| [${alert}](runbooks/${pageOf(alert)}) |`);
  });
});

describe('commands of the runbooks', () => {
  const told = [...pages.map(page), readFileSync(MONITORING, 'utf8')].flatMap((text) => [
    ...[...text.matchAll(/`(counterstamp [^`]+)`/g)].map(([, command]) => command ?? ''),
    ...[...text.matchAll(/```sh\n([\s\S]*?)```/g)].flatMap(([, block]) =>
      (block ?? '').split('\n').filter((line) => line.startsWith('counterstamp ')),
    ),
  ]);

  test.each([...new Set(told)])(
    '%s',
    (line) => {
      const words = line
        .replaceAll(/"[^"]*"/g, 'TEXT')
        .split(/\s+/)
        .slice(1);
      let command = createProgram();
      while (words[0] !== undefined) {
        const next = command.commands.find((one) => one.name() === words[0]);
        if (next === undefined) break;
        command = next;
        words.shift();
      }
      expect(command.name()).not.toBe('counterstamp');
      // What is left are placeholders and options with their values; `verdict RUN` hands its options to a command below it.
      const options = [command, ...command.commands].flatMap((one) => one.options);
      while (words.length > 0) {
        const word = words.shift() ?? '';
        if (!word.startsWith('--')) {
          expect(word).not.toMatch(/^[a-z]+$/);
          continue;
        }
        const option = options.find(({ long }) => long === word);
        expect(option, word).toBeDefined();
        if (option?.required !== true && (option?.optional !== true || words[0]?.startsWith('--') === true)) continue;
        const value = words.shift() ?? '';
        if (option.argChoices !== undefined && value !== value.toUpperCase())
          expect(option.argChoices).toContain(value);
      }
    },
    10_000,
  );
});

describe('log lines of the runbooks', () => {
  const told = pages.flatMap((name) =>
    page(name)
      .split('\n')
      .filter((line) => line.startsWith('In the log'))
      .flatMap((line) => [...line.matchAll(/`([^`]+)`/g)].map(([, text = '']) => text))
      .filter((text) => text.includes(' ')),
  );
  const sources = ['packages', 'services']
    .flatMap((parent) => readdirSync(parent).map((name) => `${parent}/${name}/src`))
    .flatMap((folder) => readdirSync(folder, { recursive: true, encoding: 'utf8' }).map((name) => `${folder}/${name}`))
    .filter((name) => name.endsWith('.ts') && !name.endsWith('.test.ts'))
    .map((name) => readFileSync(name, 'utf8'))
    .join('\n');

  test.each([...new Set(told)])('%s', (text) => {
    expect(sources).toContain(text);
  });
});

describe('what rules, dashboards and runbooks ask for', () => {
  /** Labels that every series may carry beside those of the catalogue. */
  const COMMON = { job: [], instance: [], service: [] };
  /** What is recorded from several metrics, with its own labels. */
  const DERIVED: Readonly<Record<string, Readonly<Record<string, readonly string[]>>>> = {
    'counterstamp:census_believed': {},
    'counterstamp:census_fresh': {},
    'counterstamp:queue_reading_believed': {},
    'counterstamp:queue_consumers': METRICS.counterstamp_consuming.labels,
    'counterstamp:attempts_uncertain:ratio15m': {},
    'counterstamp:swaps_lost:ratio10m': METRICS.counterstamp_swaps_lost_total.labels,
    'counterstamp:runs_expired:ratio15m': {},
  };

  /** Labels with their values, of a series by its name; `undefined`: there is none. */
  function labelsOf(name: string): Readonly<Record<string, readonly string[]>> | undefined {
    if (Object.hasOwn(DERIVED, name)) return DERIVED[name];
    const plain = name.replace('counterstamp:', 'counterstamp_');
    if (name.startsWith('counterstamp:') && !recordingRules().some(({ record }) => record === name)) return undefined;
    const entries: Readonly<Record<string, MetricEntry>> = METRICS;
    const base = Object.hasOwn(entries, plain) ? plain : plain.replace(/_(bucket|sum|count)$/, '');
    const entry = Object.hasOwn(entries, base) ? entries[base] : undefined;
    if (entry === undefined || (base !== plain && entry.type !== 'histogram')) return undefined;
    if (entry.type !== 'histogram') return entry.labels;
    return base === plain ? undefined : { ...entry.labels, le: (entry.buckets ?? []).map(String) };
  }

  const asked = [
    ...alertRules().map(({ alert, expr }) => ({ where: alert, expr })),
    ...recordingRules().map(({ record, expr }) => ({ where: record, expr })),
    ...dashboardQueries('1m').map(({ dashboard, panel, expr }) => ({ where: `${dashboard}: ${panel}`, expr })),
    ...runbookQueries(),
  ];

  test.each(asked)('$where: $expr', ({ expr }) => {
    const withoutTexts = expr.replaceAll(/"[^"]*"/g, '""');
    for (const [, name = '', , selector = ''] of expr.matchAll(
      /\b(counterstamp[_:][a-z0-9_:]*[a-z0-9])(\{([^}]*)\})?/g,
    )) {
      const labels = labelsOf(name);
      expect(labels, name).toBeDefined();
      const known: Readonly<Record<string, readonly string[]>> = { ...COMMON, ...labels };
      for (const [, label = '', , value = ''] of selector.matchAll(/(\w+)(=~|!~|!=|=)"([^"]*)"/g)) {
        expect(Object.keys(known), `${name}{${label}}`).toContain(label);
        const values = known[label] ?? [];
        if (values.length === 0) continue;
        for (const one of value.split('|')) {
          const pattern = new RegExp(`^(?:${one})$`);
          expect(
            values.some((each) => pattern.test(each)),
            `${name}{${label}="${one}"}`,
          ).toBe(true);
        }
      }
    }
    // A label to group by belongs to one of the series at least.
    const names = [...withoutTexts.matchAll(/\b(counterstamp[_:][a-z0-9_:]*[a-z0-9])/g)].map(([, name]) => name ?? '');
    const groupable = new Set([
      ...Object.keys(COMMON),
      'alertname',
      ...names.flatMap((name) => Object.keys(labelsOf(name) ?? {})),
    ]);
    for (const [, labels = ''] of withoutTexts.matchAll(/\b(?:by|on) \(([^)]*)\)/g))
      for (const label of labels
        .split(',')
        .map((one) => one.trim())
        .filter(Boolean))
        expect([...groupable], expr).toContain(label);
  });

  test('series that are not ours are those that Prometheus and prom-client bring', () => {
    const others = asked.flatMap(({ expr }) => expr.match(/\b(?:nodejs|process)_\w+/g) ?? []);
    expect([...new Set(others)].sort()).toEqual([
      'nodejs_eventloop_lag_p99_seconds',
      'process_resident_memory_bytes',
      'process_start_time_seconds',
    ]);
  });
});

describe('dashboards', () => {
  test.each(Object.entries(DASHBOARDS))(
    '%s: each panel has a question, a unit and named lines; its first panel says how old the figures are',
    (_, dashboard) => {
      const panels = panelsOf(dashboard);
      expect(panels[0]?.title).toBe('Age of the figures');
      expect(panels.length).toBeLessThanOrEqual(12);
      for (const { title, description, targets, fieldConfig, options } of panels) {
        expect(description, title).toMatch(/\?/);
        if (options?.content !== undefined) continue;
        expect(fieldConfig?.defaults?.unit, title).toBeTruthy();
        expect(targets?.length, title).toBeGreaterThan(0);
        for (const { legendFormat } of targets ?? []) expect(legendFormat, title).toBeTruthy();
      }
    },
  );

  test.each(dashboardQueries('1m'))(
    '$dashboard: $panel names its lines by labels that the expression keeps',
    ({ expr, legend }) => {
      for (const [, label] of legend.matchAll(/\{\{(\w+)\}\}/g))
        expect(expr.includes(`by (`) || expr.startsWith('counterstamp:swaps_lost'), `${label} of ${expr}`).toBe(true);
    },
  );

  test('tenants are shown by their rank alone', () => {
    const text = JSON.stringify(DASHBOARDS.tenants);
    expect(text).not.toMatch(/tenant_id|\{\{tenant/);
    expect(text).toContain('counterstamp tenant load');
  });
});
