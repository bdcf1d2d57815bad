import { describe, expect, test } from 'vitest';
import { doctored, historyBuilder } from '../../../testing/history-builder.ts';
import { checkHistory } from './check-history.ts';
import { CHECKS } from './checks.ts';

const SETTLE = { pause_ms: 500, provider_ms: 1_000 };
type Builder = ReturnType<typeof historyBuilder>;

/** Every way in which a run may rightly go; each holds under all checks, with the ledger and without. */
const RIGHT: [string, () => Builder][] = [
  ['waits for its approval', () => historyBuilder().asked()],
  ['was rejected', () => historyBuilder().asked().decide('prn_ada', 'reject')],
  ['expired', () => historyBuilder().asked().after(60_000).expired()],
  ['is under way', () => historyBuilder().approved().dispatch().arrives()],
  [
    'was performed and verified',
    () => historyBuilder().approved().dispatch().arrives().takesEffect().accepted().verified(),
  ],
  [
    'was approved by two people, one so late that the call may last only as long as the approval',
    () =>
      historyBuilder({ approvals_required: 2 })
        .asked()
        .decide('prn_1')
        .after(58_500)
        .decide('prn_2')
        .dispatch()
        .arrives(),
  ],
  [
    'lost its answer, was swept, found and verified',
    () => historyBuilder().approved().dispatch().arrives().takesEffect().after(2_500).overdue().found().verified(),
  ],
  [
    'was absent after settle and sent once more with the same key',
    () =>
      historyBuilder()
        .approved()
        .dispatch()
        .arrives()
        .uncertain()
        .after(5_000)
        .retryRecorded()
        .dispatch()
        .arrives()
        .takesEffect()
        .accepted()
        .verified(),
  ],
  [
    'could not connect, and then could',
    () =>
      historyBuilder()
        .approved()
        .dispatch()
        .notSent()
        .retryRecorded('resend_recorded')
        .dispatch()
        .arrives()
        .takesEffect()
        .accepted()
        .verified(),
  ],
  ['could never connect', () => historyBuilder().approved().dispatch().notSent().neverSent()],
  ['was clearly rejected', () => historyBuilder().approved().dispatch().arrives().rejected()],
  [
    'was clearly rejected after an attempt that sent nothing',
    () =>
      historyBuilder().approved().dispatch().notSent().retryRecorded('resend_recorded').dispatch().arrives().rejected(),
  ],
  [
    'failed to settle',
    () =>
      historyBuilder()
        .approved()
        .dispatch()
        .arrives()
        .takesEffect({ settlement: 'failed' })
        .accepted()
        .settlementFailed(),
  ],
  ['is parked', () => historyBuilder().approved().dispatch().arrives().uncertain().parked()],
  [
    'was closed by a person as absent',
    () => historyBuilder().approved().dispatch().uncertain().parked().personSays('person_absent'),
  ],
  [
    'was settled with a difference, which is recorded',
    () =>
      historyBuilder()
        .approved()
        .dispatch()
        .arrives()
        .takesEffect({ fields: { amount_minor: 4100 } })
        .uncertain()
        .parked('effect_differs')
        .personSays('person_settled_with_difference', 're_1_1'),
  ],
  [
    'was closed as absent and reopened by a late answer',
    () =>
      historyBuilder()
        .approved()
        .dispatch()
        .uncertain()
        .parked()
        .personSays('person_absent')
        .arrives({ arrived_at: '2026-09-30T14:00:01.500Z' })
        .takesEffect()
        .lateEvidence()
        .reopened(),
  ],
  [
    'got its answer late, after it had been found',
    () =>
      historyBuilder()
        .approved()
        .dispatch()
        .arrives()
        .takesEffect()
        .after(2_500)
        .overdue()
        .lateEvidence()
        .found()
        .verified(),
  ],
  [
    'completed and was undone by the provider',
    () =>
      historyBuilder()
        .approved()
        .dispatch()
        .arrives()
        .takesEffect({ settlement: 'failed' })
        .accepted()
        .verified()
        .reversed(),
  ],
];

test.each(RIGHT)('a run that %s holds under every check, with a ledger and without one', (_, make) => {
  const { history, ledger } = make();
  expect(checkHistory({ runs: [history], ledger, settle: SETTLE })).toEqual([]);
  expect(checkHistory({ runs: [history], ledger: null, settle: SETTLE })).toEqual([]);
});

describe('a snapshot of several runs', () => {
  test('is judged run by run, each against its own part of the ledger', () => {
    const runs = [1, 2, 3].map((number) =>
      historyBuilder({ number, request_id: `case_${number}` })
        .approved()
        .dispatch()
        .arrives({ seq: number })
        .takesEffect()
        .accepted()
        .verified(),
    );
    const ledger = {
      since: null,
      requests: runs.flatMap((run) => run.ledger.requests),
      effects: runs.flatMap((run) => run.ledger.effects),
    };
    const histories = runs.map(({ history }) => history);
    expect(checkHistory({ runs: histories, ledger, settle: SETTLE })).toEqual([]);
    const wrong = doctored(histories, ([, second]) => {
      Object.assign(second?.run ?? {}, { state: 'verifying', wake_at: null });
    });
    expect(checkHistory({ runs: wrong, ledger, settle: SETTLE })).toMatchObject([
      { check: 'H1', code: 'row_behind', severity: 'violation', run_id: histories[1]?.run.run_id },
      { check: 'H11', code: 'stuck', severity: 'violation', run_id: histories[1]?.run.run_id },
    ]);
  });

  test('is judged by the ledger where only it can tell: an effect behind a run that a person closed as absent', () => {
    const { history, ledger } = historyBuilder()
      .approved()
      .dispatch()
      .arrives()
      .takesEffect()
      .uncertain()
      .parked()
      .personSays('person_absent');
    const codes = (of: typeof ledger | null) =>
      checkHistory({ runs: [history], ledger: of, settle: SETTLE }).map(({ code }) => code);
    expect(codes(ledger)).toEqual(['effect_behind']);
    expect(codes(null)).toEqual([]);
  });

  test('without a ledger leaves out exactly the checks that say that they need all of it', () => {
    const whole = Object.entries(CHECKS).filter(([, { ledger }]) => ledger === 'whole');
    expect(whole.map(([check]) => check)).toEqual(['H3', 'H4', 'H7']);
  });
});
