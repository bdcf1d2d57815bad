import type { Dashboard } from '@grafana/grafana-foundation-sdk/dashboard';
import { Seconds, Short } from '@grafana/grafana-foundation-sdk/units';
import { lines, page, perMinute, quantile, staleness, stat } from './panels.ts';

/** Open runs that have been in their state for longer than a bucket's bound. */
const olderThan = (le: number) => `sum(counterstamp:runs) - sum(counterstamp:run_age_seconds_bucket{le="${le}"})`;

export function stateAges(): Dashboard {
  return page('counterstamp-state-ages', 'State ages', 'What waits, how long, and why?', [
    staleness(),
    stat({
      title: 'Older than a minute',
      question: 'How many open runs have been in their state for more than a minute?',
      unit: Short,
      asks: [{ expr: olderThan(60), legend: 'runs' }],
    }),
    stat({
      title: 'Older than an hour',
      question: 'How many for more than an hour? Usually parked ones, or proposals from outside that did not come.',
      unit: Short,
      asks: [{ expr: olderThan(3_600), legend: 'runs' }],
      look: 1,
    }),
    stat({
      title: 'Due, not claimed',
      question: 'For how long has the longest-due run waited for a sweep? Above 30 s nobody sweeps.',
      unit: Seconds,
      asks: [{ expr: 'max(counterstamp:oldest_due_age_seconds)', legend: 'longest due' }],
      wrong: 30,
    }),
    lines({
      title: 'Oldest run by state',
      question: 'Which state holds the run that has waited longest, since when? (logarithmic)',
      unit: Seconds,
      asks: [{ expr: 'max by (state) (counterstamp:oldest_run_age_seconds)', legend: '{{state}}' }],
      logarithmic: true,
    }),
    lines({
      title: 'Age that 9 of 10 open runs stay below',
      question: 'Is it one old run, or do all of that state wait? A state without runs has no line.',
      unit: Seconds,
      asks: [
        {
          expr: 'histogram_quantile(0.9, sum by (state, le) (counterstamp:run_age_seconds_bucket))',
          legend: '{{state}}',
        },
      ],
    }),
    lines({
      title: 'Time spent in a state, 95 of 100',
      question:
        'How long do runs stay in each state until a worker moves them on? `verifying` is the verification lag.',
      unit: Seconds,
      asks: [{ expr: quantile(0.95, 'state', 'counterstamp_state_duration_seconds'), legend: '{{state}}' }],
      logarithmic: true,
    }),
    lines({
      title: 'Left alone for a while, per minute',
      question:
        'Why do runs wait on an unchanged revision: a hold, a busy resource, no connection? (The rest between looks at closed runs is left out.)',
      unit: Short,
      asks: [{ expr: perMinute('code', 'counterstamp_deferred_total{code!="closure_rest"}'), legend: '{{code}}' }],
    }),
    lines({
      title: 'Oldest doubt',
      question: 'How long has an effect been in doubt: while the fleet looks it up, and parked for a person?',
      unit: Seconds,
      asks: [
        { expr: 'max(counterstamp:oldest_doubt_age_seconds)', legend: 'being looked up' },
        { expr: 'max(counterstamp:oldest_parked_age_seconds)', legend: 'parked for a person' },
      ],
    }),
    lines({
      title: 'Runs that are due',
      question: 'Does the sweeper keep up with what is due?',
      unit: Short,
      asks: [
        { expr: 'max(counterstamp:runs_due)', legend: 'due now' },
        {
          expr: '60 * sum(rate(counterstamp_sweep_skipped_total[$__rate_interval]))',
          legend: 'skipped (locked) per minute',
        },
      ],
    }),
  ]);
}
