import { describe, expect, test } from 'vitest';
import { doctored, type HistoryOptions, historyBuilder, type LedgerDraft } from '../../../testing/history-builder.ts';
import { checkHistory } from './check-history.ts';
import type { RunHistory } from './history.ts';
import { type LedgerEffect, type LedgerRequest, ledgerOf } from './ledger.ts';

const SETTLE = { pause_ms: 500, provider_ms: 1_000 };
type Builder = ReturnType<typeof historyBuilder>;

const found = (...runs: Builder[]) => {
  const ledger: LedgerDraft = { since: null, requests: [], effects: [] };
  // One provider numbers the requests of all runs.
  for (const run of runs) {
    const before = ledger.requests.length;
    ledger.requests.push(...run.ledger.requests.map((request) => ({ ...request, seq: request.seq + before })));
    ledger.effects.push(
      ...run.ledger.effects.map((effect) => ({
        ...effect,
        request_seq: effect.request_seq === null ? null : effect.request_seq + before,
      })),
    );
  }
  const histories: RunHistory[] = runs.map(({ history }) => history);
  return checkHistory({ runs: histories, ledger, settle: SETTLE }).map(
    ({ check, code, severity }) => `${check} ${code}${severity === 'alarm' ? ' (alarm)' : ''}`,
  );
};
const dispatched = (options?: HistoryOptions) => historyBuilder(options).approved().dispatch();
const arrivesTwice = (second: Partial<LedgerRequest> = {}) => dispatched().arrives().takesEffect().arrives(second);

describe('H3, one effect', () => {
  test('holds for an effect and for an equal one that a person made by hand', () => {
    const byHand = { request_seq: null, run_id: null, idempotency_key: null };
    expect(
      found(
        dispatched()
          .arrives()
          .takesEffect({ ...byHand, ref: 're_hand' })
          .takesEffect()
          .accepted()
          .verified(),
      ),
    ).toEqual([]);
  });

  test.each<[string, Builder, string[]]>([
    ['one request that was booked twice', dispatched().arrives().takesEffect().takesEffect(), ['H3 key_twice']],
    [
      'a key that the provider had forgotten',
      dispatched().arrives().takesEffect().uncertain().after(5_000).retryRecorded().dispatch().arrives().takesEffect(),
      ['H3 key_twice'],
    ],
    [
      'two sends to a provider that takes no key',
      dispatched()
        .arrives({ idempotency_key: null })
        .takesEffect()
        .uncertain()
        .retryRecorded()
        .dispatch()
        .arrives({ idempotency_key: null })
        .takesEffect(),
      ['H3 action_twice'],
    ],
    [
      'a second effect without a tag, which its request gives away',
      dispatched().arrives().takesEffect().arrives().takesEffect({ run_id: null, idempotency_key: null }),
      ['H3 key_twice', 'H7 sent_twice'],
    ],
    [
      'a second key',
      dispatched()
        .arrives()
        .takesEffect()
        .arrives({ idempotency_key: 'random' })
        .takesEffect({ idempotency_key: 'random' }),
      ['H3 action_twice', 'H5 key_differs', 'H7 sent_twice'],
    ],
  ])('is broken by %s', (_, run, expected) => {
    expect(found(run)).toEqual(expected);
  });

  const closed = (options: HistoryOptions) =>
    dispatched(options).arrives().uncertain().parked().personSays('person_absent');
  const completed = (options: HistoryOptions) => dispatched(options).arrives().takesEffect().accepted().verified();

  test('holds for a successor after a run without an effect', () => {
    expect(found(closed({ number: 1 }), completed({ number: 2, generation: 2 }))).toEqual([]);
  });

  test('holds for equal actions of two requests', () => {
    expect(found(completed({ number: 1, request_id: 'a' }), completed({ number: 2, request_id: 'b' }))).toEqual([]);
  });

  test('holds for a successor of a run whose effect did not stand', () => {
    const failed = dispatched({ number: 1 })
      .arrives()
      .takesEffect({ settlement: 'failed' })
      .accepted()
      .settlementFailed();
    expect(found(failed, completed({ number: 2, generation: 2 }))).toEqual([]);
  });

  test('holds for a successor that completes what a person settled as different', () => {
    const settled = dispatched({ number: 1 })
      .arrives()
      .takesEffect({ fields: { amount_minor: 4100 } })
      .uncertain()
      .parked('effect_differs')
      .personSays('person_settled_with_difference', 're_1_1');
    expect(found(settled, completed({ number: 2, generation: 2, amount_minor: 100 }))).toEqual([]);
  });

  test('is broken when a successor’s effect stands beside that of the run it replaced', () => {
    const late = closed({ number: 1 })
      .arrives({ arrived_at: '2026-09-30T14:00:02.000Z' })
      .takesEffect()
      .lateEvidence()
      .reopened();
    const codes = found(late, completed({ number: 2, generation: 2 }));
    expect(codes).toContain('H3 request_twice');
    expect(codes.at(-1)).toBe('H3 request_twice');
  });
});

describe('H4, every request has an attempt before it and arrived in time', () => {
  // The attempt starts at 700.123 ms and may call until 2,700.123 ms; Z + P is 1,500 ms, and the provider's clock cuts to the millisecond.
  const at = (iso: string) =>
    dispatched()
      .arrives({ arrived_at: `2026-09-30T14:00:0${iso}Z` })
      .uncertain();

  test.each<[string, string, string[]]>([
    ['in the millisecond in which the attempt started', '0.700', []],
    ['a millisecond before it started', '0.699', ['H4 no_attempt']],
    ['at the call deadline', '2.700', []],
    ['at the last moment that Z + P grants', '4.200', []],
    ['within the skew of the two clocks after that', '4.201', []],
    ['later than Z + P grants', '4.202', ['H4 late_send (alarm)']],
    ['long before it started', '0.100', ['H4 no_attempt']],
  ])('a request that arrived %s', (_, iso, expected) => {
    expect(found(at(iso))).toEqual(expected);
  });

  test.each<[string, Builder]>([
    ['the run has no attempt', historyBuilder().approved()],
    ['the only attempt says that nothing was sent', dispatched().notSent()],
  ])('is broken when a request arrived and %s', (_, run) => {
    const { run_id } = run.history.run;
    run.ledger.requests.push({
      provider: 'sandbox-payments',
      seq: 1,
      arrived_at: '2026-09-30T14:00:02.000Z',
      run_id,
      idempotency_key: null,
      body_digest: null,
    });
    expect(found(run)).toEqual(['H4 no_attempt']);
  });

  test('is broken by a request at another provider than the run’s', () => {
    expect(found(dispatched().arrives({ provider: 'legacy-credits' }))).toEqual(['H4 no_attempt']);
  });

  test('is broken by a request that no run sent', () => {
    const stranger = {
      run_id: 'run_00000000-0000-7000-8000-000000000099',
      idempotency_key: 'cs-9',
      body_digest: 'sha256:9',
    };
    expect(found(dispatched().arrives().arrives(stranger))).toEqual(['H4 no_attempt']);
  });

  test('knows a request without a tag by its key, and one without either by its bytes', () => {
    expect(found(dispatched().arrives({ run_id: null, body_digest: null }))).toEqual([]);
    expect(found(dispatched().arrives({ run_id: null, idempotency_key: null }))).toEqual([]);
  });

  test.each([
    ['a body that names no run, without a key', { idempotency_key: null, body_digest: 'sha256:9' }],
    ['a key that is no attempt’s, without a whole body', { idempotency_key: 'cs-9', body_digest: null }],
  ])('is broken by %s', (_, stranger) => {
    expect(
      found(
        dispatched()
          .arrives()
          .arrives({ run_id: null, ...stranger }),
      ),
    ).toEqual(['H4 no_attempt']);
  });

  test('leaves out a body that was cut off before it said whose it was', () => {
    expect(found(dispatched().arrives({ run_id: null, idempotency_key: null, body_digest: null }))).toEqual([]);
  });

  test('gives a provider’s clock the skew that it is granted', () => {
    const run = dispatched().arrives({ arrived_at: '2026-09-30T14:00:00.500Z' });
    const { history, ledger } = run;
    const settle = { ...SETTLE, skew_ms: 250 };
    expect(checkHistory({ runs: [history], ledger, settle })).toEqual([]);
  });

  test('of two attempts counts a request for the one that could still send it', () => {
    // The second attempt starts while the first one’s request may still be on its way; both arrive late in their windows.
    const run = dispatched().uncertain().after(3_000).retryRecorded().dispatch();
    const first = { arrived_at: '2026-09-30T14:00:04.150Z' };
    const second = { arrived_at: '2026-09-30T14:00:06.000Z' };
    expect(found(run.arrives(first).arrives(second))).toEqual([]);
  });
});

describe('H7, one request per attempt', () => {
  test('holds for two attempts and two requests', () => {
    expect(found(dispatched().arrives().uncertain().after(5_000).retryRecorded().dispatch().arrives())).toEqual([]);
  });

  test.each<[string, Builder, string[]]>([
    ['two requests of one attempt', arrivesTwice(), ['H7 sent_twice']],
    ['a second one that was cut off on its way', arrivesTwice({ run_id: null, body_digest: null }), ['H7 sent_twice']],
    [
      'three requests of two attempts',
      dispatched().arrives().uncertain().after(5_000).retryRecorded().dispatch().arrives().arrives(),
      ['H7 sent_twice'],
    ],
    [
      'two requests before the second attempt had started',
      dispatched().arrives().arrives().uncertain().after(5_000).retryRecorded().dispatch(),
      ['H7 sent_twice'],
    ],
    [
      'a second request of an attempt whose retry sent nothing',
      dispatched().arrives().uncertain().after(5_000).retryRecorded().dispatch().arrives().notSent(),
      ['H7 sent_twice'],
    ],
  ])('is broken by %s', (_, run, expected) => {
    expect(found(run)).toEqual(expected);
  });
});

test('a look at some runs of many leaves out what speaks of others', () => {
  const { history, ledger } = dispatched().arrives().takesEffect();
  const others = doctored(ledger, (copy) => {
    copy.requests.push({
      ...(copy.requests[0] as LedgerRequest),
      seq: 2,
      run_id: 'run_x',
      idempotency_key: 'x',
      body_digest: 'x',
    });
    copy.effects.push({
      ...(copy.effects[0] as LedgerEffect),
      ref: 're_x',
      request_seq: 2,
      run_id: 'run_x',
      idempotency_key: 'x',
    });
  });
  expect(checkHistory({ runs: [history], ledger: others, settle: SETTLE })).toHaveLength(1);
  expect(ledgerOf([history], others)).toEqual(ledger);
});
