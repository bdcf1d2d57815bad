import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { METRICS, type MetricEntry } from '@counterstamp/telemetry';
import { describe, expect, test } from 'vitest';
import { fastRules } from './fast-rules.ts';
import { alertRules, expectations, recordingRules, ruleTests } from './rule-files.ts';

/** Milliseconds for promtool; it takes seconds. */
const PROMTOOL_MS = 60_000;

function promtool(...args: string[]): string {
  return execFileSync('promtool', args, { encoding: 'utf8', timeout: PROMTOOL_MS, stdio: ['ignore', 'pipe', 'pipe'] });
}

describe('promtool', () => {
  test('accepts the configuration with its rules', () => {
    expect(promtool('check', 'config', 'deploy/prometheus.yml')).toContain('is valid prometheus config file syntax');
  });

  test(
    'sees every story of every rule come true',
    () => {
      expect(promtool('test', 'rules', ...ruleTests()).match(/SUCCESS/g)).toHaveLength(ruleTests().length);
    },
    PROMTOOL_MS,
  );
});

describe('every rule is tested', () => {
  const all = expectations();

  test.each(alertRules().map(({ alert, labels }) => [alert, labels.severity] as const))(
    '%s (%s): a story in which it fires, and in which it does not, before and after',
    (alert, severity) => {
      const told = all.filter(({ expr }) => expr === `ALERTS{alertname="${alert}",alertstate="firing"}`);
      const fires = told.filter(({ samples }) =>
        samples.some(({ labels }) => labels.includes(`severity="${severity}"`)),
      );
      expect(fires.length).toBeGreaterThan(0);
      // In the story in which it fires the first word is silence, and so is the last.
      const complete = fires.filter(({ story }) => {
        const own = told.filter((one) => one.story === story);
        return own.at(-1)?.samples.length === 0;
      });
      expect(complete.length).toBeGreaterThan(0);
      expect(told.findIndex(({ samples }) => samples.length === 0)).toBeLessThan(
        told.findIndex(({ samples }) => samples.length > 0),
      );
    },
  );

  test.each(recordingRules().map(({ record }) => record))('%s: a story that knows its value', (record) => {
    const told = all.filter(
      ({ expr, samples }) => samples.length > 0 && new RegExp(`${record}(?![a-z0-9_])`).test(expr),
    );
    expect(told.length).toBeGreaterThan(0);
  });
});

describe('recording.yml', () => {
  const wholeFleet = Object.entries<MetricEntry>(METRICS).filter(([, entry]) => entry.whole_fleet);

  test.each(wholeFleet)('%s is taken of those reconcilers that can be believed, once', (name, { type }) => {
    const series = type === 'histogram' ? `${name}_bucket` : name;
    const believed = name.startsWith('counterstamp_queue_') ? 'queue_reading_believed' : 'census_believed';
    expect(recordingRules()).toContainEqual({
      record: series.replace('counterstamp_', 'counterstamp:'),
      expr: `max without (instance) (${series} and on (job, instance) counterstamp:${believed})`,
    });
  });
});

describe('the fast rules of the live test', () => {
  const withoutTimes = (text: string) =>
    text
      .replaceAll(/for: \d+[smh]/g, 'for')
      .replaceAll(/\[\d+[smh]\]/g, '[]')
      .replaceAll(/offset \d+[smh]/g, 'offset')
      .replaceAll(/([<>]) (30|10)\b/g, '$1');

  test.each(['alerts.yml', 'recording.yml'])('differ from %s in times only', (name) => {
    const deployed = readFileSync(`deploy/prometheus/${name}`, 'utf8');
    const fast = fastRules(deployed);
    expect(fast).not.toBe(deployed);
    expect(withoutTimes(fast)).toBe(withoutTimes(deployed));
  });

  test('a minute is a second, and a window holds at least five samples', () => {
    expect(fastRules('for: 2m\nfor: 30s\nx[15m] y[1m] offset 15m\ncounterstamp:census_age_seconds) > 30')).toBe(
      'for: 2s\nfor: 1s\nx[15s] y[5s] offset 15s\ncounterstamp:census_age_seconds) > 10',
    );
  });
});
