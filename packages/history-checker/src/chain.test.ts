import { type StoredEvent, sha256Text } from '@counterstamp/manifest-core';
import { describe, expect, test } from 'vitest';
import { type Draft, doctored, historyBuilder, rechained } from '../../../testing/history-builder.ts';
import { chainIntact } from './chain.ts';
import { checkHistory } from './check-history.ts';

/** A run that took nearly every kind of step: rejected by nobody, sent twice, verified. */
const whole = () =>
  historyBuilder().approved().dispatch().uncertain().after(5_000).retryRecorded().dispatch().accepted().verified()
    .history;

/** The checks and codes that name something in a doctored copy. */
function found(change: (copy: Draft) => void): string[] {
  const runs = [doctored(whole(), change)];
  const settle = { pause_ms: 500, provider_ms: 1_000 };
  return checkHistory({ runs, ledger: null, settle }).map(({ check, code }) => `${check} ${code}`);
}
function eventOf(history: Draft, trigger: string): StoredEvent {
  return history.events.find((event) => event.trigger === trigger) ?? expect.fail(`no ${trigger}`);
}

test('a history that is as it was written has nothing against it', () => {
  expect(found(() => undefined)).toEqual([]);
});

describe('H1 names', () => {
  test.each<[string, (history: Draft) => void, string[]]>([
    [
      'an event that was removed',
      (history) => {
        history.events.splice(3, 1);
      },
      ['H1 revision_gap'],
    ],
    [
      'an event that was removed where the state changed, even when the chain was hashed anew',
      (history) => {
        history.events.splice(2, 1);
        rechained(history);
      },
      ['H1 revision_gap', 'H1 from_differs'],
    ],
    [
      'a revision that is there twice',
      (history) => {
        const third = history.events[2] ?? expect.fail('no third');
        history.events.splice(3, 0, { ...third, from: third.to });
        rechained(history);
      },
      ['H1 revision_gap'],
    ],
    [
      'an event that does not start where the one before ended',
      (history) => {
        Object.assign(eventOf(history, 'checks_passed'), { from: 'queued' });
        rechained(history);
      },
      ['H1 from_differs'],
    ],
    [
      'events that were cut off the end',
      (history) => {
        history.events.pop();
        rechained(history);
      },
      ['H1 row_behind'],
    ],
    [
      'a row whose state no event led to',
      (history) => {
        history.run.state = 'verifying';
        history.run.wake_at = '2026-09-30T15:00:00.000Z';
      },
      ['H1 row_behind'],
    ],
    [
      'a run without any event',
      (history) => {
        history.events = [];
        rechained(history);
      },
      ['H1 no_events'],
    ],
  ])('%s', (_, change, expected) => {
    // What else follows from a missing event is the other checks' to say.
    expect(found(change).filter((one) => one.startsWith('H1 '))).toEqual(expected);
  });
});

describe('H2 names', () => {
  test.each<[string, (event: StoredEvent) => void, string[]]>([
    [
      'a trigger that no state accepts',
      (event) => void Object.assign(event, { trigger: 'approved' }),
      ['H2 illegal_move'],
    ],
    [
      'a trigger of another state',
      (event) => void Object.assign(event, { trigger: 'proposal_received' }),
      ['H2 illegal_move'],
    ],
    [
      'a worker that may not make the move',
      (event) => void Object.assign(event, { actor: 'executor/ins_1' }),
      ['H2 wrong_actor'],
    ],
    [
      'a principal that made a worker’s move',
      (event) => void Object.assign(event, { actor: 'principal/prn_1' }),
      ['H2 wrong_actor'],
    ],
    ['an actor that is nobody', (event) => void Object.assign(event, { actor: 'postgres' }), ['H2 wrong_actor']],
  ])('%s, even when the chain was hashed anew', (_, change, expected) => {
    expect(
      found((history) => {
        change(eventOf(history, 'checks_passed'));
        rechained(history);
      }),
    ).toEqual(expected);
  });

  test('a move that leads elsewhere than its trigger does', () => {
    expect(
      found((history) => {
        Object.assign(eventOf(history, 'effect_verified'), { to: 'failed' });
        rechained(history);
      }),
    ).toEqual(['H1 row_behind', 'H2 illegal_move']);
  });

  test('a state that does not exist', () => {
    expect(
      found((history) => {
        Object.assign(eventOf(history, 'checks_passed'), { from: 'pre-flight' });
        rechained(history);
      }),
    ).toEqual(['H1 from_differs', 'H2 illegal_move']);
  });
});

describe('H12 names', () => {
  test.each<[string, (history: Draft) => void, string[]]>([
    [
      'a payload that was changed',
      (history) =>
        void Object.assign(eventOf(history, 'checks_passed'), {
          payload: '{"set": {"state": "collecting"}, "refs": {}}',
        }),
      ['H12 payload_changed'],
    ],
    [
      'a payload that was changed with its digest',
      (history) => {
        const event = eventOf(history, 'checks_passed');
        event.payload = 'no JSON';
        event.payload_digest = sha256Text(event.payload);
      },
      ['H12 event_changed'],
    ],
    [
      'an actor that was changed',
      (history) => void Object.assign(eventOf(history, 'checks_passed'), { actor: 'preflight/ins_2' }),
      ['H12 event_changed'],
    ],
    [
      'a link that was broken',
      (history) => void Object.assign(eventOf(history, 'request_accepted'), { previous_hash: sha256Text('x') }),
      ['H12 link_broken', 'H12 event_changed'],
    ],
    [
      'a chain head that is another’s',
      (history) => void Object.assign(history.run, { chain_head: sha256Text('x') }),
      ['H12 head_differs'],
    ],
    [
      'a steering column that no event set so',
      (history) => void Object.assign(history.run, { retry_allowed: true }),
      ['H12 record_differs'],
    ],
    ['an attempt that was removed', (history) => void history.attempts.pop(), ['H12 record_differs']],
    [
      'an attempt that nobody dispatched',
      (history) => {
        const [first] = history.attempts;
        if (first !== undefined)
          history.attempts.push({ ...first, attempt_id: 'att_x', n: 3, revision: first.revision });
        const third = history.attempts[2];
        if (third !== undefined) Object.assign(third, { revision: first?.revision === undefined ? 0 : 99 });
      },
      ['H12 record_differs'],
    ],
    [
      'an attempt’s outcome that was changed',
      (history) => void Object.assign(history.attempts[0] ?? {}, { status: 'not_sent' }),
      ['H12 record_differs'],
    ],
    [
      'an attempt’s outcome that was taken back',
      (history) => void Object.assign(history.attempts[0] ?? {}, { status: 'started', closed_at: null }),
      ['H12 record_differs'],
    ],
    [
      'an attempt’s provider reference that was changed',
      (history) => void Object.assign(history.attempts[1] ?? {}, { provider_ref: 're_9' }),
      ['H12 record_differs'],
    ],
    [
      'an attempt’s call deadline that was moved',
      (history) => void Object.assign(history.attempts[0] ?? {}, { call_deadline: '2026-09-30T14:00:03.000Z' }),
      ['H12 record_differs'],
    ],
    [
      'an attempt’s start that was moved',
      (history) => void Object.assign(history.attempts[0] ?? {}, { started_at: '2026-09-30T14:00:00.900Z' }),
      ['H12 record_differs'],
    ],
    [
      'a decision that no event recorded',
      (history) => {
        const [approval] = history.approvals;
        const [decision] = approval?.decisions ?? [];
        if (decision !== undefined)
          approval?.decisions.push({ ...decision, decision_id: 'dec_x', principal_id: 'prn_eve' });
      },
      ['H12 record_differs'],
    ],
    [
      'a decision that was removed',
      (history) => void history.approvals[0]?.decisions.pop(),
      ['H6 decisions_insufficient', 'H6 decisions_insufficient', 'H12 record_differs'],
    ],
    [
      'an observation that was changed',
      (history) => void Object.assign(history.observations[0] ?? {}, { kind: 'inconclusive' }),
      ['H12 record_differs'],
    ],
    ['an observation that was removed', (history) => void history.observations.shift(), ['H12 record_differs']],
    [
      'an observation that no event recorded',
      (history) => {
        const [first] = history.observations;
        if (first !== undefined)
          history.observations.push({ ...first, revision: history.run.action_revision ?? first.revision });
      },
      ['H12 record_differs'],
    ],
  ])('%s', (_, change, expected) => {
    expect(found(change)).toEqual(expected);
  });
});

test('H12 names a person’s verdict that was changed', () => {
  const { history } = historyBuilder()
    .approved()
    .dispatch()
    .uncertain()
    .parked('effect_differs')
    .personSays('person_settled_with_difference', 're_1');
  const of = (change: object) => {
    const copy = doctored(history, ({ observations }) => void Object.assign(observations.at(-1) ?? {}, change));
    return chainIntact(copy).map(({ code }) => code);
  };
  expect(of({})).toEqual([]);
  expect(of({ provider_ref: 're_2' })).toEqual(['record_differs']);
  expect(of({ kind: 'absent' })).toEqual(['record_differs']);
});
