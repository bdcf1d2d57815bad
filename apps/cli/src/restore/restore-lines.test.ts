import type { RunId } from '@counterstamp/manifest-core';
import type { RestoreReport } from '@counterstamp/reconciler';
import { expect, test } from 'vitest';
import { restoreLines } from './restore-lines.ts';

const LOST = 'run_019ad000-0000-7000-8000-000000000009';
const run = {
  run_id: 'run_019ad000-0000-7000-8000-000000000001' as RunId,
  tenant_id: 'shop_north',
  request_id: 'case_7',
  workflow: 'refund',
  workflow_version: 1,
  state: 'awaiting_approval' as const,
  stop_reason: null,
  action: null,
};
const report: RestoreReport = { safe: true, looked_up: 1, undecided: 0, recovering: 0, effects: null, findings: [] };

test('says that nothing was found, and what was not compared', () => {
  expect(restoreLines(report)).toEqual([
    '✓ 1 run looked up: no open run would act again.',
    'Not compared, for want of --effects: what runs did that are not in this database at all.',
  ]);
});

test('names what would act again first, each with the command that stops it, then what cannot be helped any more', () => {
  const lines = restoreLines({
    safe: false,
    looked_up: 3,
    undecided: 1,
    recovering: 2,
    effects: 9,
    findings: [
      { kind: 'run_lost', run_id: LOST, refs: ['re_19'] },
      { kind: 'closed_without_it', run_id: LOST, state: 'expired', stop_reason: null, refs: ['re_20'] },
      { kind: 'cannot_tell', run, reason: 'status_503' },
      { kind: 'same_as_lost', run, refs: ['re_19'], lost: LOST },
      { kind: 'acted_already', run, refs: ['re_17'], match: 'exact' },
    ],
  });
  expect(lines.map((line) => line.slice(0, 1))).toEqual(['✗', ' ', '✗', ' ', '✗', '!', '!', '…', '…', '✗']);
  expect(lines[1]).toBe(`    counterstamp run cancel ${run.run_id} --reason "performed before the restore: re_17"`);
  expect(lines[3]).toContain(`--reason "performed by ${LOST} before the restore: re_19"`);
  expect(lines.at(-1)).toContain('3 runs looked up, beside 9 effects');
});

test('what a provider wrote cannot move the cursor', () => {
  const findings = [{ kind: 'acted_already' as const, run, refs: ['re_\u001b[2J'], match: 'exact' }];
  expect(restoreLines({ ...report, safe: false, findings }).join('\n')).not.toContain('\u001b');
});
