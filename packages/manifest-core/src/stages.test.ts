import { expect, test } from 'vitest';
import { type StageRow, stageOf } from './stages.ts';

const row: StageRow = {
  state: 'queued',
  evidence_complete: false,
  decisions_sufficient: false,
  retry_allowed: false,
  parked_reason: null,
  wake_at: '2026-01-01T00:00:00.000000Z',
};

test.each<[string, Partial<StageRow>, ReturnType<typeof stageOf>]>([
  ['queued', { state: 'queued' }, 'preflight'],
  ['preflight', { state: 'preflight' }, 'preflight'],
  ['collecting without evidence', { state: 'collecting' }, 'collect'],
  ['collecting with evidence', { state: 'collecting', evidence_complete: true }, 'propose'],
  ['proposed', { state: 'proposed', evidence_complete: true }, 'propose'],
  ['awaiting_approval without enough decisions', { state: 'awaiting_approval' }, null],
  ['awaiting_approval with enough decisions', { state: 'awaiting_approval', decisions_sufficient: true }, 'execute'],
  ['executing, which nobody may pick up', { state: 'executing', decisions_sufficient: true }, null],
  ['verifying', { state: 'verifying' }, 'verify'],
  ['needs_reconciliation', { state: 'needs_reconciliation' }, 'reconcile'],
  ['needs_reconciliation with a retry allowed', { state: 'needs_reconciliation', retry_allowed: true }, 'execute'],
  ['needs_reconciliation, parked', { state: 'needs_reconciliation', parked_reason: 'effect_differs' }, null],
  ['failed with an audit look to come', { state: 'failed' }, 'reconcile'],
  ['failed', { state: 'failed', wake_at: null }, null],
  ['completed', { state: 'completed', wake_at: null }, null],
  ['rejected', { state: 'rejected' }, null],
  ['expired', { state: 'expired' }, null],
])('%s', (_, change, stage) => {
  expect(stageOf({ ...row, ...change })).toBe(stage);
});
