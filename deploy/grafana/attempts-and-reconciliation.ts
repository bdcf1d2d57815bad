import type { Dashboard } from '@grafana/grafana-foundation-sdk/dashboard';
import { PercentUnit, Seconds, Short } from '@grafana/grafana-foundation-sdk/units';
import { lines, page, perMinute, quantile, staleness, stat } from './panels.ts';

export function attemptsAndReconciliation(): Dashboard {
  return page(
    'counterstamp-attempts-and-reconciliation',
    'Attempts and reconciliation',
    'What was sent, what is not known of it, and who finds out?',
    [
      staleness(),
      stat({
        title: 'Mismatches and late effects',
        question: 'Is an effect in the world that nobody approved like that? One is too many.',
        unit: Short,
        asks: [
          {
            expr: 'sum(counterstamp:runs_parked{reason=~"verification_mismatch|late_effect_found|effect_differs|effect_ambiguous"})',
            legend: 'runs',
          },
        ],
        wrong: 1,
      }),
      stat({
        title: 'Looked up by the fleet',
        question: 'How many doubts does the fleet still try to settle by itself?',
        unit: Short,
        asks: [
          {
            expr: 'sum(counterstamp:runs{state="needs_reconciliation"}) - sum(counterstamp:runs_parked)',
            legend: 'in doubt, not parked',
          },
        ],
      }),
      stat({
        title: 'Uncertain requests, last 15 minutes',
        question: 'Which share of the requests ended without a known outcome? Empty: nothing was sent.',
        unit: PercentUnit,
        asks: [{ expr: 'counterstamp:attempts_uncertain:ratio15m', legend: 'uncertain' }],
        look: 0.05,
        wrong: 0.1,
      }),
      lines({
        title: 'Requests for an effect by outcome, per minute',
        question: 'What does the provider answer?',
        unit: Short,
        asks: [{ expr: perMinute('outcome', 'counterstamp_attempts_total'), legend: '{{outcome}}' }],
        stacked: true,
      }),
      lines({
        title: 'From the dispatch commit to the answer, 95 of 100',
        question: 'How slow is the provider, by what it answered? (the call deadline is 20 s)',
        unit: Seconds,
        asks: [{ expr: quantile(0.95, 'outcome', 'counterstamp_attempt_duration_seconds'), legend: '{{outcome}}' }],
      }),
      lines({
        title: 'Looks at the business record, per minute',
        question: 'What do verification, look-ups and closure audits see? What was not seen has no line.',
        unit: Short,
        asks: [
          {
            expr: `${perMinute('purpose, result', 'counterstamp_looks_total')} > 0`,
            legend: '{{purpose}}: {{result}}',
          },
        ],
      }),
      lines({
        title: 'Tried again, per minute',
        question: 'What is tried again, and why?',
        unit: Short,
        asks: [{ expr: perMinute('trigger', 'counterstamp_retries_total'), legend: '{{trigger}}' }],
      }),
      lines({
        title: 'Parked, by reason',
        question: 'What do people have to settle, and does it become less?',
        unit: Short,
        asks: [{ expr: 'max by (reason) (counterstamp:runs_parked)', legend: '{{reason}}' }],
        stacked: true,
      }),
      lines({
        title: 'Longest parked, by reason',
        question: 'Does somebody get to them? (dashed: an hour, the ticket)',
        unit: Seconds,
        asks: [{ expr: 'max by (reason) (counterstamp:oldest_parked_age_seconds)', legend: '{{reason}}' }],
        wrong: 3_600,
      }),
      lines({
        title: 'Looks at closed runs, per minute',
        question: 'Are closed runs looked at again, and does an effect turn up?',
        unit: Short,
        asks: [{ expr: perMinute('result', 'counterstamp_closure_audits_total'), legend: '{{result}}' }],
      }),
    ],
  );
}
