import type { RunView } from '@counterstamp/api-contract';
import { dispatchGuards, type Manifest, type Revision, STOP_REASONS } from '@counterstamp/manifest-core';
import { expect, test } from 'vitest';
import { asked, at, attempt, evidence, manifest, START_MS } from '../../../../testing/manifest-builder.ts';
import { guardLines, runPage } from './run-page.ts';

const DURATIONS = { epsilon_ms: 200 };

function viewOf(run: Manifest): RunView {
  return { ...run, guards: [], next: null, as_of: at(START_MS), settles_at: null };
}

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
    as_of: at(START_MS),
    settles_at: null,
  });
  expect(page).toContain('needs_reconciliation (parked for a person)');
  expect(page).toContain(`Why: effect_not_found: ${STOP_REASONS.effect_not_found.message}`);
  expect(page).toContain(`Next: ${STOP_REASONS.effect_not_found.next}`);
  expect(page).toContain(`Settle it: counterstamp reconcile ${run.run_id}`);
  expect(page).toContain('✗ fail  state');
});

test('a run after a kill shows both attempts, who sent them, what was seen, and a person’s words', () => {
  const approved = asked(manifest(), { operation: 'x' });
  const observed: RunView['observations'] = [
    { revision: 9 as Revision, at: at(START_MS + 9_000), kind: 'absent', provider_ref: null, body: { why: 'absent' } },
    {
      revision: 14 as Revision,
      at: at(START_MS + 60_000),
      kind: 'person',
      provider_ref: 're_7',
      body: { verdict: 'landed', evidence: 'refund re_7 in the dashboard', observed_at: null, effect: null },
    },
  ];
  const page = runPage(
    viewOf({
      ...approved,
      state: 'verifying',
      attempts: [
        attempt(approved, { instance_id: 'ins_killed' }),
        attempt(approved, { n: 2, instance_id: 'ins_next', started_at: at(START_MS + 10_000) }),
      ],
      observations: observed,
      evidence: [
        evidence('late_effect', { class: 'applied' }, { round: 0, source_ref: 'att_1' }),
        evidence('order_record', { status: 'open' }),
      ],
    }),
  );
  expect(page).toMatch(/\n {2}1 .* uncertain .* ins_killed +class: uncertain, reason: timeout\n/);
  expect(page).toMatch(/\n {2}2 .* ins_next /);
  expect(page).toMatch(/ absent .*why: absent\n.* person +re_7 +landed: refund re_7 in the dashboard$/m);
  expect(page).toMatch(/Answers that came late\n.*\n .* the provider accepted +att_1 +class: applied$/m);
  expect(page).not.toContain('order_record');
});

test('a recorded retry is told beside the state', () => {
  const run = manifest({ state: 'needs_reconciliation', retry_allowed: true });
  expect(runPage(viewOf(run))).toContain('needs_reconciliation (a retry is recorded)');
});

test('text that came from outside cannot move the cursor on the approver’s terminal', () => {
  const run = manifest({
    stop_reason: { code: 'policy_denied', message: 'No.\u001b[2K\u001b[1AAll is well.' },
  });
  const page = runPage(viewOf(run));
  expect(page).not.toContain('\u001b');
  expect(page).toContain('No.\\u{1b}[2K');
});

test('a run whose personal data was erased says so, and shows the rest', () => {
  const run = viewOf({ ...asked(manifest(), { operation: 'x' }), input: {}, erased_at: at(START_MS) });
  expect(runPage(run)).toContain(`Erased: input, context, proposals and evidence, at ${at(START_MS)}`);
  expect(runPage({ ...run, erased_at: null })).not.toContain('Erased');
  expect(runPage(run)).toContain('action_digest');
});
