import type { Violation } from '@counterstamp/history-checker';
import { expect, test } from 'vitest';
import { summaryText } from './summary.ts';

const violation: Violation = { check: 'H1', code: 'revision_gap', severity: 'violation', run_id: null, message: 'm' };
const alarm: Violation = { ...violation, check: 'H4', code: 'late_send', severity: 'alarm' };
const ledger = { since: null, requests: [], effects: [] };
const good = { runs: 36, runs_before_ledger: 0, ledger, violations: [] };

test.each<[string, Parameters<typeof summaryText>[0], string]>([
  ['all is well', good, '✓ 36 runs, against 0 requests and 0 effects at the providers: no violation of H1 to H12.'],
  [
    'all is well as far as the database can show, and what was left out is named',
    { ...good, runs: 1, ledger: null },
    "✓ 1 run: no violation of what the database alone can show.\nNot checked, for want of the providers' ledger (--ledger URL): H3, H4, H7, and the providers' part of H5, H8, H9.",
  ],
  [
    'some runs are older than the ledger',
    { ...good, runs_before_ledger: 1 },
    "✓ 36 runs, against 0 requests and 0 effects at the providers: no violation of H1 to H12.\n1 run began before the providers' ledger did: judged by the database alone.",
  ],
  [
    'something is wrong, and an alarm is told apart',
    { ...good, runs: 2, violations: [violation, alarm] },
    '✗ 1 violation in 2 runs, against 0 requests and 0 effects at the providers.\n1 alarm: a sender paused for longer than the protocol assumes; look at what followed.',
  ],
])('the summary says when %s', (_, checked, expected) => {
  expect(summaryText(checked)).toBe(expected);
});
