import { expect, test } from 'vitest';
import { historyBuilder } from '../../../testing/history-builder.ts';
import { checkHistory } from './check-history.ts';
import { reportText, timeline, timelineText } from './timeline.ts';

test('a run’s history reads as what happened, in the order of time, the provider’s side included', () => {
  const { history, ledger } = historyBuilder()
    .approved()
    .dispatch()
    .arrives()
    .takesEffect()
    .after(2_500)
    .overdue()
    .lateEvidence()
    .found()
    .verified();
  const lines = timelineText(history, ledger);
  expect(lines[0]).toBe(`${history.run.run_id} of request case_1, generation 1, tenant shop_north: completed`);
  expect(lines.slice(8)).toEqual([
    '  2026-09-30T14:00:00.700123Z  run       8. awaiting_approval → executing (dispatched) by executor/ins_1',
    '  2026-09-30T14:00:00.700123Z  attempt   attempt 1 started by ins_1, may call until 2026-09-30T14:00:02.700123Z',
    '  2026-09-30T14:00:00.800000Z  provider  request 1 arrived at sandbox-payments: re_1_1 (now final)',
    '  2026-09-30T14:00:03.300123Z  run       9. executing → needs_reconciliation (attempt_overdue) by reconciler/ins_1: external_result_uncertain, The request may have been applied: the answer is missing or not understood. It is being looked up.',
    '  2026-09-30T14:00:03.300123Z  attempt   attempt 1 is uncertain (attempt_overdue)',
    '  2026-09-30T14:00:03.400123Z  evidence  late_effect of attempt 1 kept, at revision 9',
    '  2026-09-30T14:00:03.500123Z  run       10. needs_reconciliation → verifying (effect_found) by reconciler/ins_1',
    '  2026-09-30T14:00:03.600123Z  run       11. verifying → completed (effect_verified) by verifier/ins_1',
  ]);
});

test('a parked run says so, a retry is named, and an effect that no request made stands at the end', () => {
  const { history, ledger } = historyBuilder()
    .approved()
    .dispatch()
    .uncertain()
    .retryRecorded()
    .dispatch()
    .notSent()
    .parked()
    .takesEffect({ request_seq: null, settlement: 'pending' });
  const lines = timelineText(history, ledger);
  expect(lines[0]).toMatch(/: needs_reconciliation, parked \(effect_not_found\)$/);
  expect(lines.filter((line) => /retry allowed|parked: /.test(line)).map((line) => line.trim().slice(29))).toEqual([
    expect.stringMatching(
      /^run {7}10\. needs_reconciliation → needs_reconciliation \(retry_recorded\) .*; retry allowed$/,
    ),
    expect.stringMatching(/^run {7}13\. .* \(parked\) .*; parked: effect_not_found$/),
  ]);
  expect(lines.at(-1)).toBe('  made at sandbox-payments by hand: re_1_1 (now pending)');
});

test('without a ledger the timeline is the database’s alone', () => {
  const { history } = historyBuilder().approved().dispatch().arrives();
  expect(new Set(timeline(history, null).map(({ source }) => source))).toEqual(new Set(['run', 'attempt']));
});

test('a report names what each run is blamed for, an alarm as one, with the run’s timeline once below', () => {
  const first = historyBuilder({ number: 1 }).approved().dispatch().arrives().arrives().takesEffect().takesEffect();
  const second = historyBuilder({ number: 2, request_id: 'case_2' })
    .approved()
    .dispatch()
    .arrives({ seq: 3, arrived_at: '2026-09-30T14:00:05.000Z' });
  const runs = [first.history, second.history];
  const stray = { provider: 'sandbox-payments', seq: 4, arrived_at: '2026-09-30T14:00:06.000Z', run_id: null };
  const ledger = {
    since: null,
    requests: [
      ...first.ledger.requests,
      ...second.ledger.requests,
      { ...stray, idempotency_key: 'x', body_digest: 'sha256:x' },
    ],
    effects: first.ledger.effects,
  };
  const lines = reportText(checkHistory({ runs, ledger, settle: { pause_ms: 500, provider_ms: 1_000 } }), {
    runs,
    ledger,
  });
  expect(lines.filter((line) => !line.startsWith('  ')).map((line) => line.replace(/(: | of ).*/, ''))).toEqual([
    '✗ H3 key_twice',
    '✗ H7 sent_twice',
    first.history.run.run_id,
    '! H4 late_send',
    second.history.run.run_id,
    '✗ H4 no_attempt',
  ]);
  expect(lines).toContain('  2026-09-30T14:00:05.000000Z  provider  request 3 arrived at sandbox-payments: no effect');
});
