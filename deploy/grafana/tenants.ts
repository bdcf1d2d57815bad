import type { Dashboard } from '@grafana/grafana-foundation-sdk/dashboard';
import { PercentUnit, Seconds, Short } from '@grafana/grafana-foundation-sdk/units';
import { lines, note, page, perMinute, staleness, stat } from './panels.ts';

export function tenants(): Dashboard {
  return page('counterstamp-tenants', 'Tenants', 'Does one tenant keep the others waiting?', [
    staleness(),
    note(
      'Who is rank 1?',
      'Who is behind a rank? Metrics never name a tenant.',
      'Ranks are places by open runs, at this moment: a tenant may change its place. Names are in the database only:\n\n`counterstamp tenant load`',
    ),
    stat({
      title: 'Tenants with open runs',
      question: 'How many share the fleet now?',
      unit: Short,
      asks: [{ expr: 'max(counterstamp:tenants_with_open_runs)', legend: 'tenants' }],
    }),
    stat({
      title: 'Share of the busiest tenant',
      question: 'How much of what is open is one tenant’s?',
      unit: PercentUnit,
      asks: [
        {
          expr: 'max(counterstamp:tenant_open_runs{rank="1"}) / clamp_min(sum(counterstamp:tenant_open_runs), 1)',
          legend: 'rank 1',
        },
      ],
    }),
    lines({
      title: 'Open runs by rank',
      question: 'Is one tenant far above the others?',
      unit: Short,
      asks: [{ expr: 'max by (rank) (counterstamp:tenant_open_runs)', legend: '{{rank}}' }],
      stacked: true,
    }),
    lines({
      title: 'Longest wait for a worker, by rank',
      question: 'Do small tenants wait because of a big one? Then the line of `rest` or of a low rank is high, too.',
      unit: Seconds,
      asks: [{ expr: 'max by (rank) (counterstamp:tenant_oldest_machine_wait_seconds)', legend: '{{rank}}' }],
    }),
    lines({
      title: 'Refused because they ask too often, per minute',
      question: 'Does a limit of the api hold somebody back, and which?',
      unit: Short,
      asks: [{ expr: perMinute('limiter', 'counterstamp_rate_limited_total'), legend: '{{limiter}}' }],
    }),
    lines({
      title: 'HTTP requests by status, per minute',
      question: 'Does the api answer its callers?',
      unit: Short,
      asks: [{ expr: perMinute('status', 'counterstamp_http_request_duration_seconds_count'), legend: '{{status}}' }],
    }),
  ]);
}
