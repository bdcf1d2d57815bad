import type { Observation } from '@counterstamp/connectors';
import { digestOf, type JsonObject, type RunId, type State } from '@counterstamp/manifest-core';
import type { UnsentRun } from '@counterstamp/manifest-store';
import { createSystems } from '@counterstamp/workflows';
import { describe, expect, test } from 'vitest';
import { type BookedEffect, judgeRestored, type RestoreFacts } from './restore-check.ts';

const http = { get: () => Promise.reject(new Error('a judgement reads nothing')) };
const systems = createSystems({
  shop_url: 'http://shop.test',
  payments_url: 'http://payments.test',
  payments_read_key: 'rk',
  payments_write_key: null,
  read_timeout_ms: 1_000,
  http,
});
const refund = systems.workflows.get('refund') ?? expect.fail('no refund');

const OPEN = 'run_019ad000-0000-7000-8000-000000000001' as RunId;
const GONE = 'run_019ad000-0000-7000-8000-000000000002';
const FIELDS: JsonObject = { amount_minor: 4200, currency: 'USD', destination: 'pay_1', reason: 'damaged_item' };

function unsent(state: State, action: JsonObject | null = FIELDS): UnsentRun {
  return {
    run_id: OPEN,
    tenant_id: 'shop_north',
    request_id: 'case_1',
    workflow: 'refund',
    workflow_version: refund.version,
    state,
    stop_reason: null,
    action: action === null ? null : { fields: action, digest: digestOf('cs.action.v1', '{}') },
  };
}
const booked = (change: Partial<BookedEffect> = {}): BookedEffect => ({
  provider: 'sandbox-payments',
  ref: 're_1',
  run_id: GONE,
  fields: { amount_minor: 4200, currency: 'USD', destination: 'pay_1' },
  ...change,
});
const there: Observation = {
  kind: 'found',
  match: 'exact',
  effect: {
    provider_ref: 're_7',
    amount_minor: 4200,
    currency: 'USD',
    destination: 'pay_1',
    status: 'succeeded',
    reason: null,
    settlement: 'final',
    run_id: OPEN,
  },
};
const absent: Observation = { kind: 'absent', strength: 'strong' };

function judge(run: UnsentRun | undefined, seen: Observation | undefined, change: Partial<RestoreFacts> = {}) {
  const { safe, undecided, findings } = judgeRestored({
    runs: run === undefined ? [] : [run],
    recovering: 0,
    looks: new Map(seen === undefined ? [] : [[OPEN, seen]]),
    known: new Map(),
    effects: null,
    systems,
    ...change,
  });
  return { safe, undecided, kinds: findings.map(({ kind }) => kind) };
}

describe('an open run without a send on record', () => {
  test('is safe when its look-up finds nothing', () => {
    expect(judge(unsent('awaiting_approval'), absent)).toEqual({ safe: true, undecided: 0, kinds: [] });
  });

  test.each<[string, Observation]>([
    ['exactly', there],
    ['differently', { ...there, match: 'different', differing: [] }],
    ['as something alike', { kind: 'found', match: 'lookalike', effects: [there.effect] }],
  ])('would act again when its effect is there %s', (_, seen) => {
    expect(judge(unsent('awaiting_approval'), seen)).toEqual({ safe: false, undecided: 0, kinds: ['acted_already'] });
  });

  test('would act again when the list names it, whatever the look-up says, even before its action is fixed', () => {
    const known = new Map([[OPEN as string, { state: 'collecting' as const, has_attempt: false }]]);
    const effects = [booked({ run_id: OPEN })];
    for (const [run, seen] of [
      [unsent('awaiting_approval'), absent],
      [unsent('collecting', null), undefined],
    ] as const)
      expect(judge(run, seen, { effects, known }).kinds).toEqual(['acted_already']);
  });

  test('is not told to be safe when the look-up says nothing, nor while its action is not fixed', () => {
    expect(judge(unsent('awaiting_approval'), { kind: 'unknown', reason: 'status_503' })).toMatchObject({
      safe: false,
      kinds: ['cannot_tell'],
    });
    expect(judge(unsent('collecting', null), undefined)).toEqual({ safe: false, undecided: 1, kinds: [] });
  });

  test.each<[string, Partial<BookedEffect>, boolean]>([
    ['equals', {}, true],
    ['has another amount than', { fields: { amount_minor: 4100, currency: 'USD', destination: 'pay_1' } }, false],
    ['is at another system than', { provider: 'legacy-credits' }, false],
    ['shows too little of', { fields: { amount_minor: 4200 } }, false],
  ])('is named as repeated when an effect of a lost run %s it: %o', (_, change, named) => {
    const { safe, kinds } = judge(unsent('awaiting_approval'), absent, { effects: [booked(change)] });
    expect(kinds).toEqual(named ? ['same_as_lost', 'run_lost'] : ['run_lost']);
    expect(safe).toBe(!named);
  });
});

test.each(['rejected', 'expired', 'failed'] as const)(
  'a run that was closed as %s without a send acts no more, and is named with the effect that it has',
  (state) => {
    expect(judge(unsent(state), there)).toEqual({ safe: true, undecided: 0, kinds: ['closed_without_it'] });
    const known = new Map([[OPEN as string, { state, has_attempt: false }]]);
    expect(judge(undefined, undefined, { effects: [booked({ run_id: OPEN })], known }).kinds).toEqual([
      'closed_without_it',
    ]);
  },
);

test('an effect of a run whose send is on record is nothing new', () => {
  const known = new Map([[OPEN as string, { state: 'failed' as const, has_attempt: true }]]);
  expect(judge(undefined, undefined, { effects: [booked({ run_id: OPEN })], known })).toEqual({
    safe: true,
    undecided: 0,
    kinds: [],
  });
});
