import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { parse } from 'yaml';

const FOLDER = 'deploy/prometheus';

export interface AlertRule {
  alert: string;
  expr: string;
  for?: string;
  labels: { severity: string };
  annotations: { summary: string; description: string; runbook_url: string };
}

export interface RecordingRule {
  record: string;
  expr: string;
}

/** One expectation of a unit test of rules. */
export interface Expectation {
  /** The block that it stands in. */
  story: string;
  expr: string;
  samples: readonly { labels: string; value: number }[];
}

export function alertRules(): AlertRule[] {
  return rulesOf<AlertRule>('alerts.yml');
}

export function recordingRules(): RecordingRule[] {
  return rulesOf<RecordingRule>('recording.yml');
}

/** Files of unit tests. */
export function ruleTests(): string[] {
  return readdirSync(path.join(FOLDER, 'tests')).map((name) => path.join(FOLDER, 'tests', name));
}

export function expectations(): Expectation[] {
  return ruleTests().flatMap((file) => {
    const { tests } = parse(readFileSync(file, 'utf8')) as {
      tests: { name: string; promql_expr_test: { expr: string; exp_samples: Expectation['samples'] }[] }[];
    };
    return tests.flatMap(({ name, promql_expr_test }) =>
      promql_expr_test.map(({ expr, exp_samples }) => ({ story: `${file}: ${name}`, expr, samples: exp_samples })),
    );
  });
}

function rulesOf<T>(name: string): T[] {
  const { groups } = parse(readFileSync(path.join(FOLDER, name), 'utf8')) as { groups: { rules: T[] }[] };
  return groups.flatMap(({ rules }) => rules);
}
