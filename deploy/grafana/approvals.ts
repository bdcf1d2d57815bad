import type { Dashboard } from '@grafana/grafana-foundation-sdk/dashboard';
import { PercentUnit, Seconds, Short } from '@grafana/grafana-foundation-sdk/units';
import { lines, page, perMinute, quantile, staleness, stat } from './panels.ts';

export function approvals(): Dashboard {
  return page(
    'counterstamp-approvals',
    'Approvals',
    'Do people decide in time, and is what they decided carried out?',
    [
      staleness(),
      stat({
        title: 'Waiting for a decision',
        question: 'How many approvals wait for people now?',
        unit: Short,
        asks: [{ expr: 'max(counterstamp:approvals_waiting)', legend: 'waiting' }],
      }),
      stat({
        title: 'Expire within 5 minutes',
        question: 'How many of them are lost if nobody decides now?',
        unit: Short,
        asks: [{ expr: 'max(counterstamp:approvals_expiring_soon)', legend: 'expiring soon' }],
        look: 1,
      }),
      stat({
        title: 'Holds',
        question: 'Is the brake on? Nothing that it covers is sent, and approved runs expire.',
        unit: Short,
        asks: [{ expr: 'max by (scope) (counterstamp:holds)', legend: '{{scope}}' }],
        look: 1,
      }),
      lines({
        title: 'Approvals that wait',
        question: 'Do approvers keep up with what is asked?',
        unit: Short,
        asks: [
          { expr: 'max(counterstamp:approvals_waiting)', legend: 'waiting' },
          { expr: 'max(counterstamp:approvals_expiring_soon)', legend: 'of these, expire within 5 minutes' },
        ],
      }),
      lines({
        title: 'Decisions, per minute',
        question: 'Do people decide, and which way?',
        unit: Short,
        asks: [{ expr: perMinute('decision', 'counterstamp_decisions_total'), legend: '{{decision}}' }],
        stacked: true,
      }),
      lines({
        title: 'Time to a decision',
        question: 'How long do people take? An approval lives 15 minutes (dashed).',
        unit: Seconds,
        asks: [
          { expr: quantile(0.5, 'decision', 'counterstamp_time_to_decision_seconds'), legend: '{{decision}}, half' },
          { expr: quantile(0.9, 'decision', 'counterstamp_time_to_decision_seconds'), legend: '{{decision}}, 9 of 10' },
        ],
        wrong: 900,
      }),
      lines({
        title: 'Where approvals end, per minute',
        question: 'Performed, rejected, expired, or refused at the dispatch?',
        unit: Short,
        asks: [
          {
            expr: perMinute('to', 'counterstamp_transitions_total{from="awaiting_approval",to!="awaiting_approval"}'),
            legend: '{{to}}',
          },
        ],
        stacked: true,
      }),
      lines({
        title: 'Ended because nobody decided, last 15 minutes',
        question: 'Which share of what ended expired? (dashed: the alert)',
        unit: PercentUnit,
        asks: [{ expr: 'counterstamp:runs_expired:ratio15m', legend: 'expired' }],
        wrong: 0.5,
      }),
      lines({
        title: 'Alarms',
        question:
          'Was anything found that only tampering or a broken glass explains? Counted since each process began; the audit has them for ever.',
        unit: Short,
        asks: [{ expr: 'sum by (code) (counterstamp_alarms_total)', legend: '{{code}}' }],
        wrong: 1,
      }),
    ],
  );
}
