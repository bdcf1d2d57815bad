import { dispatchGuards, STOP_REASONS } from '@counterstamp/manifest-core';
import { expect, test } from 'vitest';
import { manifest, START_MS } from '../../../../testing/manifest-builder.ts';
import { guardLines, runPage } from './run-page.ts';

const DURATIONS = { epsilon_ms: 200 };

test('each condition of a dispatch is shown with pass or fail and why', () => {
  const lines = guardLines({
    guards: [
      { guard: 'state', pass: true, detail: 'the run is awaiting_approval' },
      { guard: 'decisions_sufficient', pass: false, detail: '1 of 2 approvals' },
    ],
  });
  expect(lines).toEqual([
    '✓ pass  state                 the run is awaiting_approval',
    '✗ fail  decisions_sufficient  1 of 2 approvals',
  ]);
});

test('a parked run says why it stopped and what is safe to do next', () => {
  const run = manifest({
    state: 'needs_reconciliation',
    parked_reason: 'effect_not_found',
    stop_reason: { code: 'effect_not_found', message: STOP_REASONS.effect_not_found.message },
  });
  const page = runPage({
    ...run,
    guards: dispatchGuards(run, START_MS, DURATIONS),
    next: STOP_REASONS.effect_not_found.next,
  });
  expect(page).toContain('needs_reconciliation (parked for a person)');
  expect(page).toContain(`Why: effect_not_found: ${STOP_REASONS.effect_not_found.message}`);
  expect(page).toContain(`Next: ${STOP_REASONS.effect_not_found.next}`);
  expect(page).toContain('✗ fail  state');
});

test('text that came from outside cannot move the cursor on the approver’s terminal', () => {
  const run = manifest({
    stop_reason: { code: 'policy_denied', message: 'No.\u001b[2K\u001b[1AAll is well.' },
  });
  const page = runPage({ ...run, guards: [], next: null });
  expect(page).not.toContain('\u001b');
  expect(page).toContain('No.\\u{1b}[2K');
});
