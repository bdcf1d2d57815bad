import type { Dashboard } from '@grafana/grafana-foundation-sdk/dashboard';
import { Seconds, Short } from '@grafana/grafana-foundation-sdk/units';
import { lines, page, perMinute, QUARTER, staleness, stat } from './panels.ts';

export function overview(): Dashboard {
  return page('counterstamp-overview', 'Overview', 'Is anything wrong, and what waits for whom?', [
    staleness(),
    stat({
      title: 'Alerts firing',
      question: 'Has anything crossed a line that somebody should know of? Each alert links its runbook.',
      unit: Short,
      // Without a firing alert Prometheus has no series, and none is the honest answer.
      asks: [{ expr: 'sum(ALERTS{alertname=~"Counterstamp.+",alertstate="firing"}) or vector(0)', legend: 'firing' }],
      wrong: 1,
    }),
    stat({
      title: 'Parked for a person',
      question: 'How many effects are in doubt that only a person can settle? (counterstamp reconcile)',
      unit: Short,
      asks: [{ expr: 'sum(counterstamp:runs_parked)', legend: 'parked' }],
      look: 1,
    }),
    stat({
      title: 'Approvals waiting',
      question: 'How many people’s decisions is the fleet waiting for?',
      unit: Short,
      asks: [{ expr: 'max(counterstamp:approvals_waiting)', legend: 'waiting' }],
    }),
    lines({
      title: 'Open runs by state',
      question: 'What is under way, and where does it pile up?',
      unit: Short,
      asks: [{ expr: 'max by (state) (counterstamp:runs)', legend: '{{state}}' }],
      stacked: true,
    }),
    lines({
      title: 'Runs that ended, per minute',
      question: 'Does work get done, and how does it end?',
      unit: Short,
      asks: [{ expr: perMinute('state', 'counterstamp_runs_finished_total'), legend: '{{state}}' }],
      stacked: true,
    }),
    lines({
      title: 'Longest wait for a worker, by state',
      question: 'Does a run stand still that a worker should have moved? (dashed: 5 minutes)',
      unit: Seconds,
      asks: [
        {
          expr: 'max by (state) (counterstamp:oldest_run_age_seconds{state!~"awaiting_approval|needs_reconciliation"})',
          legend: '{{state}}',
        },
      ],
      wrong: 300,
    }),
    lines({
      title: 'Requests for an effect, per minute',
      question: 'Does the provider take what is sent, and how much of it is uncertain?',
      unit: Short,
      asks: [{ expr: perMinute('outcome', 'counterstamp_attempts_total'), legend: '{{outcome}}' }],
      stacked: true,
    }),
    stat({
      title: 'Processes alive, as the database knows',
      question: 'Is every service there, and how often?',
      unit: Short,
      asks: [{ expr: 'max by (instance_of) (counterstamp:instances_alive)', legend: '{{instance_of}}' }],
      span: 3 * QUARTER,
    }),
    stat({
      title: 'Version',
      question: 'Does one release run everywhere? More than one line: a roll-out is under way, or was left half done.',
      unit: Short,
      asks: [{ expr: 'count by (version) (counterstamp_build_info)', legend: '{{version}}' }],
    }),
  ]);
}
