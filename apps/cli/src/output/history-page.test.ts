import { TRANSITIONS } from '@counterstamp/manifest-core';
import { expect, test } from 'vitest';
import { historyPage, whatHappened } from './history-page.ts';

const T = (second: number) => `2026-09-30T14:00:${String(second).padStart(2, '0')}.000000Z`;
function event(trigger: string, second: number, refs: unknown = {}, set: unknown = {}) {
  return { trigger, at: T(second), payload: JSON.stringify({ set, refs }) };
}
const dispatch = (trigger: string, n: number, second: number) =>
  event(trigger, second, { attempt_id: `att_${n}`, call_deadline: T(second + 20) }, { attempts: n });

test('a killed executor, a retry and a second lost answer read as what happened', () => {
  const uncertain = { class: 'uncertain', reason: 'no outcome was recorded in time' };
  expect(
    whatHappened([
      event('decision_recorded', 0),
      dispatch('dispatched', 1, 1),
      event('attempt_overdue', 3, { attempt: { attempt_id: 'att_1', response: uncertain } }),
      event('look_inconclusive', 4, { observation: { kind: 'inconclusive', body: { why: 'absent so far' } } }),
      event('retry_recorded', 30, { observation: { kind: 'absent', body: { why: 'absent' } } }),
      dispatch('retry_dispatched', 2, 31),
      event(
        'outcome_uncertain',
        33,
        { attempt: { attempt_id: 'att_2', response: { class: 'uncertain', reason: 'timeout' } } },
        { stop_reason: { code: 'external_result_uncertain', message: '' } },
      ),
      event('parked', 59, {}, { parked_reason: 'effect_not_found', stop_reason: { code: 'effect_not_found' } }),
      event('person_unsure', 59, { verdict: { verdict: 'still_unknown', evidence: 'the dashboard is down' } }),
      event('person_unsure', 59, { verdict: { verdict: 'look_again', evidence: 'it is up again' } }),
      event('person_landed', 59, { verdict: { verdict: 'landed', evidence: 're_7 is there' } }),
      event('effect_verified', 59),
    ]),
  ).toEqual([
    'a person decided',
    'attempt 1 was committed; its request may leave from here on',
    'attempt 1: its executor is gone; looked up early, before the call deadline',
    'looked up: absent so far',
    'looked up: absent and settled; a retry with the same key and bytes is recorded',
    'attempt 2, same key and same bytes, was committed; its request may leave from here on',
    'attempt 2: the answer is missing or unclear (timeout)',
    'parked for a person: effect_not_found',
    'a person could not tell: the dashboard is down',
    'a person asked for another look: it is up again',
    'a person saw the effect: re_7 is there; an independent read must prove it',
    'an independent read showed exactly the approved effect',
  ]);
});

test('an attempt that is overdue after its deadline was not swept early', () => {
  const told = whatHappened([
    dispatch('dispatched', 1, 1),
    event('attempt_overdue', 40, { attempt: { attempt_id: 'att_1' } }),
  ]);
  expect(told[1]).toBe('attempt 1: no outcome was recorded in time; looked up');
});

test.each([...new Set(TRANSITIONS.map((rule) => rule.on))])(
  '%s has a sentence, also with an empty payload',
  (trigger) => {
    const [sentence = ''] = whatHappened([event(trigger, 1)]);
    expect(sentence).not.toBe('');
    expect(sentence).not.toMatch(/undefined|null|\[object/);
  },
);

test('what this version does not know is left out, and the event is shown all the same', () => {
  expect(whatHappened([event('teleported', 1), { trigger: 'parked', at: T(2), payload: 'no json' }])).toEqual(['', '']);
  const page = historyPage([
    {
      ...event('person_absent', 1, { verdict: { verdict: 'did_not_land', evidence: 'two\nlines' } }),
      run_id: 'run_1' as never,
      revision: 7,
      from: 'needs_reconciliation',
      to: 'failed',
      actor: 'principal/prn_1',
      at_us: '1',
      payload_digest: 'sha256:0' as never,
      previous_hash: null,
      hash: 'sha256:0' as never,
    },
  ]);
  expect(page.split('\n')).toHaveLength(2);
  expect(page).toContain('a person saw that nothing happened: two\\u{a}lines');
});
