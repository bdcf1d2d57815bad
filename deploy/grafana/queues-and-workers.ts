import type { Dashboard } from '@grafana/grafana-foundation-sdk/dashboard';
import { PercentUnit, Seconds, Short } from '@grafana/grafana-foundation-sdk/units';
import { lines, page, QUARTER, quantile, staleness, stat } from './panels.ts';

export function queuesAndWorkers(): Dashboard {
  return page('counterstamp-queues-and-workers', 'Queues and workers', 'Are there enough workers, and are they well?', [
    staleness(),
    stat({
      title: 'Workers that take hints, by stage',
      question: 'Does every stage have somebody? 0: its runs stand still.',
      unit: Short,
      asks: [{ expr: 'max by (stage) (counterstamp:queue_consumers)', legend: '{{stage}}' }],
      span: 3 * QUARTER,
    }),
    lines({
      title: 'Hints that wait',
      question: 'Which stage has more work than it can do?',
      unit: Short,
      asks: [{ expr: 'max by (stage) (counterstamp:queue_jobs{state="waiting"})', legend: '{{stage}}' }],
    }),
    lines({
      title: 'From sending a hint to taking it, 95 of 100',
      question: 'How long do runs wait for a free worker?',
      unit: Seconds,
      asks: [{ expr: quantile(0.95, 'stage', 'counterstamp_queue_wait_seconds'), legend: '{{stage}}' }],
    }),
    lines({
      title: 'Work on one hint, 95 of 100',
      question: 'Which stage is slow: an external system, or the database?',
      unit: Seconds,
      asks: [{ expr: quantile(0.95, 'stage', 'counterstamp_stage_duration_seconds'), legend: '{{stage}}' }],
    }),
    lines({
      title: 'Swaps lost',
      question: 'How much of the work had another worker done already? (dashed: the alert)',
      unit: PercentUnit,
      asks: [{ expr: 'counterstamp:swaps_lost:ratio10m', legend: '{{stage}}' }],
      wrong: 0.2,
    }),
    lines({
      title: 'Hints and workers that got lost, per minute',
      question:
        'Do hints get lost on the way, or workers in the middle of a job? Hints of the later stages are not counted here: the sweeper sends them for every wait that is over.',
      unit: Short,
      asks: [
        {
          expr: '60 * sum(rate(counterstamp_hints_resent_total{stage=~"preflight|collect|propose"}[$__rate_interval]))',
          legend: 'sent again by the sweeper',
        },
        { expr: '60 * sum(rate(counterstamp_queue_stalled_total[$__rate_interval]))', legend: 'worker fell silent' },
        {
          expr: '60 * sum(rate(counterstamp_hints_total{result="unavailable"}[$__rate_interval]))',
          legend: 'queue did not take it',
        },
      ],
    }),
    lines({
      title: 'Database connections that are busy',
      question: 'Does a process use up its pool? At 100 % the next statement waits.',
      unit: PercentUnit,
      asks: [
        {
          expr: 'max by (service) (counterstamp_database_pool_connections{state="busy"} / on (job, instance) group_left () counterstamp_database_pool_connections{state="limit"})',
          legend: '{{service}}',
        },
      ],
      wrong: 1,
    }),
    lines({
      title: 'Answer time of the database, 95 of 100',
      question: 'Is the database slow for everybody, or for one service?',
      unit: Seconds,
      asks: [
        { expr: quantile(0.95, 'service', 'counterstamp_database_statement_duration_seconds'), legend: '{{service}}' },
        { expr: 'max(counterstamp_database_oldest_statement_age_seconds)', legend: 'oldest unanswered, of all' },
      ],
    }),
    lines({
      title: 'Event loop lag, 99 of 100',
      question: 'Is a process too busy to answer in time?',
      unit: Seconds,
      asks: [{ expr: 'max by (service) (nodejs_eventloop_lag_p99_seconds)', legend: '{{service}}' }],
    }),
    lines({
      title: 'Clock against the database’s',
      question: 'Does a host’s clock run away? (dashed: the alert, half of ε)',
      unit: Seconds,
      asks: [{ expr: 'max by (service) (abs(counterstamp_clock_offset_seconds))', legend: '{{service}}' }],
      wrong: 1,
    }),
  ]);
}
