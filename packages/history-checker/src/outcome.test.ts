import { describe, expect, test } from 'vitest';
import { type Draft, doctored, historyBuilder, type LedgerDraft } from '../../../testing/history-builder.ts';
import { completedMeansObserved, evidenceHeeded, noEffectBehindClosedRun } from './outcome.ts';

const SETTLE = { pause_ms: 500, provider_ms: 1_000 };
type Builder = ReturnType<typeof historyBuilder>;
type Recorded = { history: Draft; ledger: LedgerDraft };
const recorded = ({ history, ledger }: Builder): Recorded => ({ history, ledger });
const dispatched = () => historyBuilder().approved().dispatch();

describe('H8, completed means observed', () => {
  const completed = () => recorded(dispatched().arrives().takesEffect().accepted().verified());
  const found = (change: (copy: Recorded) => void) => {
    const { history, ledger } = doctored(completed(), change);
    return completedMeansObserved(history, ledger, SETTLE).map(({ code }) => code);
  };
  const effect = ({ ledger }: Recorded) => ledger.effects[0] ?? expect.fail('no effect');

  test.each<[string, (copy: Recorded) => void]>([
    ['a final equal effect that a matching read saw', () => undefined],
    [
      'an effect that was undone since, while a later look is due',
      (copy) => {
        effect(copy).settlement = 'failed';
        copy.history.run.wake_at = '2026-09-30T15:00:00Z';
      },
    ],
    [
      'an effect beside one made by hand',
      ({ ledger }) =>
        void ledger.effects.unshift({
          ...(ledger.effects[0] ?? expect.fail('none')),
          ref: 're_hand',
          request_seq: null,
          run_id: null,
        }),
    ],
    [
      'an effect with our tag that a person made',
      (copy) => {
        copy.ledger.requests.splice(0);
        effect(copy).request_seq = null;
      },
    ],
  ])('holds for %s', (_, change) => {
    expect(found(change)).toEqual([]);
  });

  test('holds without a ledger as far as the database goes', () => {
    const { history } = completed();
    expect(completedMeansObserved(history, null, SETTLE)).toEqual([]);
  });

  test.each<[string, (copy: Recorded) => void, string[]]>([
    ['no read is recorded', ({ history }) => void history.observations.pop(), ['not_observed']],
    [
      'the read that completed it did not match',
      ({ history }) => void Object.assign(history.observations[0] ?? {}, { kind: 'found' }),
      ['not_observed'],
    ],
    [
      'the read was before any attempt',
      ({ history }) => void Object.assign(history.observations[0] ?? {}, { at: '2026-09-30T14:00:00.000Z' }),
      ['observed_too_early', 'observed_too_early'],
    ],
    ['nothing was ever sent', ({ history }) => void history.attempts.pop(), ['observed_too_early', 'effect_differs']],
    ['the provider has no effect', ({ ledger }) => void ledger.effects.pop(), ['no_effect']],
    [
      'the effect has another amount',
      (copy) => void Object.assign(effect(copy), { fields: { amount_minor: 4100 } }),
      ['effect_differs'],
    ],
    [
      'the effect has a field that nobody approved',
      (copy) => void Object.assign(effect(copy), { fields: { fee: 1 } }),
      ['effect_differs'],
    ],
    [
      'the effect is of another action',
      (copy) => void Object.assign(effect(copy), { action_digest: 'sha256:9' }),
      ['effect_differs'],
    ],
    ['the effect carries no tag', (copy) => void Object.assign(effect(copy), { run_id: null }), ['effect_differs']],
    [
      'the effect is not final',
      (copy) => void Object.assign(effect(copy), { settlement: 'pending' }),
      ['effect_differs'],
    ],
    [
      'the effect’s status is unknown',
      (copy) => void Object.assign(effect(copy), { settlement: 'unrecognised' }),
      ['effect_differs'],
    ],
    [
      'the effect was undone and nobody will look again',
      (copy) => void Object.assign(effect(copy), { settlement: 'failed' }),
      ['effect_undone'],
    ],
    [
      'the read saw another effect',
      (copy) => void Object.assign(effect(copy), { ref: 're_other' }),
      ['other_effect_observed'],
    ],
    [
      'the read was before the request that made the effect',
      ({ ledger }) => void Object.assign(ledger.requests[0] ?? {}, { arrived_at: '2026-09-30T14:00:09.000Z' }),
      ['observed_too_early'],
    ],
  ])('is broken when the run is completed and %s', (_, change, expected) => {
    expect(found(change)).toEqual(expected);
  });

  test('allows the read the skew between the two clocks, and looks at the request that made the effect', () => {
    const run = recorded(
      dispatched()
        .arrives()
        .uncertain()
        .after(5_000)
        .retryRecorded()
        .dispatch()
        .arrives()
        .takesEffect()
        .accepted()
        .verified(),
    );
    const codes = (arrived_at: string) => {
      const { history, ledger } = doctored(
        run,
        (copy) => void Object.assign(copy.ledger.requests[1] ?? {}, { arrived_at }),
      );
      return completedMeansObserved(history, ledger, SETTLE).map(({ code }) => code);
    };
    const read = Date.parse(run.history.observations.at(-1)?.at ?? '');
    expect(codes(new Date(read + 1).toISOString())).toEqual([]);
    expect(codes(new Date(read + 2).toISOString())).toEqual(['observed_too_early']);
  });

  test('is judged by the last read of a run that completed twice', () => {
    const { history, ledger } = recorded(
      dispatched()
        .arrives()
        .takesEffect({ ref: 're_undone', settlement: 'failed' })
        .accepted()
        .verified()
        .reversed()
        .takesEffect({ ref: 're_by_hand', request_seq: null })
        .found()
        .verified(),
    );
    expect(completedMeansObserved(history, ledger, SETTLE)).toEqual([]);
  });

  test('is broken by a completion that had no proof, though the run was reopened since', () => {
    const { history } = recorded(dispatched().arrives().takesEffect().accepted().verified().reversed());
    const wrong = doctored(history, (copy) => void Object.assign(copy.observations[0] ?? {}, { kind: 'pending' }));
    expect(completedMeansObserved(history, null, SETTLE)).toEqual([]);
    expect(completedMeansObserved(wrong, null, SETTLE)).toMatchObject([{ code: 'not_observed' }]);
  });
});

describe('H9, no effect behind a closed run', () => {
  const found = ({ history, ledger }: Recorded) =>
    noEffectBehindClosedRun(history, ledger.effects).map(({ code }) => code);
  const absent = () => dispatched().arrives().uncertain().parked().personSays('person_absent');
  const settled = () =>
    dispatched()
      .arrives()
      .takesEffect()
      .uncertain()
      .parked('effect_differs')
      .personSays('person_settled_with_difference', 're_1_1');

  test.each<[string, Builder]>([
    ['a rejected run', historyBuilder().asked().decide('prn_ada', 'reject')],
    ['an expired run', historyBuilder().asked().expired()],
    ['a clear rejection', dispatched().arrives().rejected()],
    ['a person’s absent', absent()],
    ['an effect that a person settled as different', settled()],
    [
      'an effect that failed definitely',
      dispatched().arrives().takesEffect({ settlement: 'failed' }).accepted().settlementFailed(),
    ],
    ['an effect that turned up and reopened the run', absent().takesEffect().lateEvidence().reopened()],
    ['an effect of a run that is not closed', dispatched().arrives().takesEffect().uncertain()],
    [
      'a rejected run whose id somebody wrote into a refund by hand',
      historyBuilder().asked().decide('prn_ada', 'reject').takesEffect({ request_seq: null }),
    ],
  ])('holds for %s', (_, run) => {
    expect(found(recorded(run))).toEqual([]);
  });

  test.each<[string, Builder, string[]]>([
    ['an effect behind a person’s absent', absent().takesEffect(), ['effect_behind']],
    ['an effect behind a clear rejection', dispatched().arrives().takesEffect().rejected(), ['effect_behind']],
    ['an effect that is not settled yet', absent().takesEffect({ settlement: 'pending' }), ['effect_behind']],
    ['an effect whose status nobody knows', absent().takesEffect({ settlement: 'unrecognised' }), ['effect_behind']],
    [
      'an effect that stands though it was recorded as failed',
      dispatched().arrives().takesEffect().accepted().settlementFailed(),
      ['effect_behind'],
    ],
    [
      'an effect with our tag by hand, of a run that had an attempt',
      absent().takesEffect({ request_seq: null }),
      ['effect_behind'],
    ],
    [
      'another effect than a person settled',
      settled().takesEffect({ ref: 're_9', settlement: 'pending' }),
      ['unrecorded_effect'],
    ],
    ['late evidence that did not reopen the run', absent().lateEvidence(), ['evidence_behind']],
    [
      'an attempt that succeeded behind a person’s absent',
      dispatched()
        .arrives()
        .accepted()
        .move('verification_failed', { stop_reason: null })
        .parked()
        .personSays('person_absent'),
      ['evidence_behind'],
    ],
    [
      'a rejection of a retry, while the first attempt is uncertain',
      dispatched().arrives().uncertain().retryRecorded().dispatch().arrives().rejected(),
      ['rejection_not_alone'],
    ],
  ])('is broken by %s', (_, run, expected) => {
    expect(found(recorded(run))).toEqual(expected);
  });

  test('is broken by a run that expired after an attempt', () => {
    const { history, ledger } = recorded(dispatched().arrives().takesEffect());
    const wrong = doctored(history, ({ run }) => void Object.assign(run, { state: 'expired' }));
    expect(found({ history: wrong, ledger })).toEqual(['attempt_behind', 'effect_behind']);
  });

  test('is judged without a ledger as far as the database goes', () => {
    const { history } = recorded(absent().lateEvidence());
    expect(noEffectBehindClosedRun(history, null)).toMatchObject([
      {
        code: 'evidence_behind',
        message: 'the run is failed (person_absent) despite evd_late_1 (late_effect) of revision 11',
      },
    ]);
  });
});

describe('H10, evidence is heeded', () => {
  const found = ({ history }: Builder) => evidenceHeeded(history).map(({ code }) => code);

  test.each<[string, Builder]>([
    ['a retry after absence', dispatched().uncertain().retryRecorded().dispatch()],
    [
      'a retry after a late answer that was no effect',
      dispatched().uncertain().lateEvidence('late_outcome').retryRecorded().dispatch(),
    ],
    ['a person’s absent without evidence', dispatched().uncertain().parked().personSays('person_absent')],
    [
      'evidence that came after the person’s absent',
      dispatched().uncertain().parked().personSays('person_absent').lateEvidence().reopened(),
    ],
    ['evidence that came after the retry', dispatched().uncertain().retryRecorded().dispatch().lateEvidence()],
    ['a retry that succeeded', dispatched().uncertain().retryRecorded().dispatch().accepted().verified()],
    [
      'evidence, and then a settlement with a difference',
      dispatched().uncertain().lateEvidence().parked().personSays('person_settled_with_difference'),
    ],
  ])('holds for %s', (_, run) => {
    expect(found(run)).toEqual([]);
  });

  test.each<[string, Builder, string[]]>([
    [
      'a retry that was recorded and sent although the provider had said that it was applied',
      dispatched().uncertain().lateEvidence().retryRecorded().dispatch(),
      ['retry_after_evidence', 'retry_after_evidence'],
    ],
    [
      'a retry that was recorded before the evidence and sent after it',
      dispatched().uncertain().retryRecorded().lateEvidence().dispatch(),
      ['retry_after_evidence'],
    ],
    [
      'a resend although an attempt had succeeded late',
      dispatched().notSent().lateEvidence().retryRecorded('resend_recorded'),
      ['retry_after_evidence'],
    ],
    [
      'a retry after an attempt that succeeded',
      dispatched().accepted().move('verification_failed', { stop_reason: null }).retryRecorded(),
      ['retry_after_evidence'],
    ],
    [
      'a person’s absent',
      dispatched().uncertain().lateEvidence().parked().personSays('person_absent'),
      ['absent_after_evidence'],
    ],
    [
      'a conclusion that nothing was sent',
      dispatched().notSent().lateEvidence().neverSent(),
      ['absent_after_evidence'],
    ],
    [
      'a rejection that closed the run',
      dispatched().uncertain().retryRecorded().dispatch().lateEvidence().rejected(),
      ['absent_after_evidence'],
    ],
  ])('is broken by %s', (_, run, expected) => {
    expect(found(run)).toEqual(expected);
  });
});
