import { canonicalJson, type Digest, digestOf } from '@counterstamp/manifest-core';
import { describe, expect, test } from 'vitest';
import { type Draft, doctored, historyBuilder, type LedgerDraft } from '../../../testing/history-builder.ts';
import { approvedAtDispatch, approvedBytes } from './approval.ts';

const OTHER = digestOf('cs.request-bytes.v1', 'other') satisfies Digest;

const retried = () => {
  const { history, ledger } = historyBuilder()
    .approved()
    .dispatch()
    .arrives()
    .uncertain()
    .after(5_000)
    .retryRecorded()
    .dispatch()
    .arrives()
    .takesEffect();
  return { history, ledger };
};

describe('H5, bytes arrived = bytes stored = action approved', () => {
  const found = (change: (copy: { history: Draft; ledger: LedgerDraft }) => void) => {
    const { history, ledger } = doctored(retried(), change);
    return approvedBytes(history, ledger.requests).map(({ code }) => code);
  };

  test('holds for the same bytes and the same key on both attempts', () => {
    expect(found(() => undefined)).toEqual([]);
  });

  test('holds for a body that did not arrive whole: it is nobody’s', () => {
    expect(found(({ ledger }) => void Object.assign(ledger.requests[0] ?? {}, { body_digest: null }))).toEqual([]);
  });

  test('holds for a provider that takes no key', () => {
    expect(found(({ ledger }) => void Object.assign(ledger.requests[0] ?? {}, { idempotency_key: null }))).toEqual([]);
  });

  test.each<[string, (copy: { history: Draft; ledger: LedgerDraft }) => void, string[]]>([
    [
      'the stored action was changed after the approval',
      ({ history }) => void Object.assign(history.actions[0] ?? {}, { canonical: '{"amount_minor":9900}' }),
      ['action_differs', 'action_differs'],
    ],
    [
      'the stored action was changed with its digest',
      ({ history }) => {
        const canonical = '{"amount_minor":9900}';
        Object.assign(history.actions[0] ?? {}, { canonical, digest: digestOf('cs.action.v1', canonical) });
      },
      ['action_differs', 'action_differs', 'action_differs', 'action_differs'],
    ],
    ['the stored action is missing', ({ history }) => void history.actions.pop(), Array(4).fill('action_differs')],
    [
      'the second attempt is for another action',
      ({ history }) => void Object.assign(history.attempts[1] ?? {}, { action_digest: OTHER }),
      ['action_differs'],
    ],
    [
      'the second attempt has another key',
      ({ history }) => void Object.assign(history.attempts[1] ?? {}, { idempotency_key: 'cs-1' }),
      ['key_differs'],
    ],
    [
      'the second attempt has other bytes',
      ({ history }) => void Object.assign(history.attempts[1] ?? {}, { request_digest: OTHER }),
      ['bytes_differ'],
    ],
    [
      'a body arrived that no attempt stored',
      ({ ledger }) => void Object.assign(ledger.requests[1] ?? {}, { body_digest: OTHER }),
      ['body_differs'],
    ],
    [
      'a request arrived with a key of its own',
      ({ ledger }) => void Object.assign(ledger.requests[1] ?? {}, { idempotency_key: 'random' }),
      ['key_differs'],
    ],
  ])('is broken when %s', (_, change, expected) => {
    expect(found(change)).toEqual(expected);
  });

  test('is judged without a ledger as far as the database goes', () => {
    const { history } = retried();
    expect(approvedBytes(history, null)).toEqual([]);
    const wrong = doctored(history, (copy) => void Object.assign(copy.attempts[1] ?? {}, { request_digest: OTHER }));
    expect(approvedBytes(wrong, null)).toMatchObject([
      {
        code: 'bytes_differ',
        message: `attempt 2 has the bytes ${OTHER}, attempt 1 had ${history.attempts[0]?.request_digest}`,
      },
    ]);
  });
});

describe('H6, a sufficient and unexpired approval at every dispatch', () => {
  const twoPeople = () => historyBuilder({ approvals_required: 2 }).approved().dispatch().history;
  const found = (change: (history: Draft) => void) =>
    approvedAtDispatch(doctored(twoPeople(), change)).map(({ code }) => code);
  const decision = (history: Draft, i: number) => history.approvals[0]?.decisions[i] ?? expect.fail('no decision');
  /** Changes a bound member in the request and in what its digest covers. */
  const rebound = (history: Draft, change: object) => {
    const [approval] = history.approvals;
    if (approval === undefined) return expect.fail('no approval');
    Object.assign(approval, change);
    const { approval_id, action_digest, action_revision, approvals_required, expires_at } = approval;
    const { run_id } = history.run;
    approval.canonical = canonicalJson({
      approval_id,
      run_id,
      action_digest,
      action_revision,
      approvals_required,
      expires_at,
    });
    approval.approval_digest = digestOf('cs.approval.v1', approval.canonical);
    for (const event of history.events)
      if (event.trigger === 'decision_recorded')
        event.payload = event.payload.replace(
          /"approval_digest":"[^"]+"/,
          `"approval_digest":"${approval.approval_digest}"`,
        );
  };

  test('holds for two people who approved what was asked', () => {
    expect(found(() => undefined)).toEqual([]);
  });

  test('looks at the approval of each dispatch, not at one that was superseded before', () => {
    const { history } = historyBuilder().approved().askedAnew().decide('prn_2').dispatch();
    expect(approvedAtDispatch(history)).toEqual([]);
    const undecided = historyBuilder().approved().askedAnew().dispatch();
    expect(approvedAtDispatch(undecided.history)).toMatchObject([{ code: 'decisions_insufficient' }]);
  });

  test.each<[string, (history: Draft) => void, string[]]>([
    ['nothing was asked', (history) => void history.approvals.pop(), ['no_approval']],
    [
      'the request asks for fewer people than its digest covers',
      (history) => void Object.assign(history.approvals[0] ?? {}, { approvals_required: 1 }),
      ['approval_changed'],
    ],
    [
      'the request expires later than its digest covers',
      (history) => void Object.assign(history.approvals[0] ?? {}, { expires_at: '2026-09-30T16:00:00.000Z' }),
      ['approval_changed'],
    ],
    [
      'the text of the request was changed',
      (history) => void Object.assign(history.approvals[0] ?? {}, { canonical: '{}' }),
      ['approval_changed'],
    ],
    [
      'the request is another run’s',
      (history) =>
        void Object.assign(history.run, {
          run_id: 'run_00000000-0000-7000-8000-000000000009' as typeof history.run.run_id,
        }),
      ['approval_changed'],
    ],
    [
      'it had expired at the dispatch',
      (history) => rebound(history, { expires_at: history.attempts[0]?.started_at ?? '' }),
      ['approval_expired'],
    ],
    [
      'the call may outlast it',
      (history) => rebound(history, { expires_at: '2026-09-30T14:00:01.000Z' }),
      ['approval_expired'],
    ],
    [
      'somebody rejected',
      (history) => void Object.assign(decision(history, 1), { decision: 'reject' }),
      ['rejected', 'decisions_insufficient'],
    ],
    ['one of two is missing', (history) => void history.approvals[0]?.decisions.pop(), ['decisions_insufficient']],
    [
      'both are the same person',
      (history) => void Object.assign(decision(history, 1), { principal_id: decision(history, 0).principal_id }),
      ['decisions_insufficient'],
    ],
    [
      'one is the requester’s own',
      (history) => void Object.assign(decision(history, 1), { principal_id: history.run.requested_by }),
      ['decisions_insufficient'],
    ],
    [
      'one was about another action',
      (history) => void Object.assign(decision(history, 1), { action_digest: OTHER }),
      ['decisions_insufficient'],
    ],
    [
      'one was about an earlier action',
      (history) => void Object.assign(decision(history, 1), { action_revision: history.events[0]?.revision as never }),
      ['decisions_insufficient'],
    ],
    [
      'one came after the dispatch',
      (history) =>
        void Object.assign(decision(history, 1), {
          revision: (history.run.revision + 1) as typeof history.run.revision,
        }),
      ['decisions_insufficient'],
    ],
    [
      'one is dated after the dispatch',
      (history) => void Object.assign(decision(history, 1), { decided_at: '2026-09-30T15:00:00.000Z' }),
      ['decisions_insufficient'],
    ],
    [
      'one was given on another request than was shown',
      (history) => {
        const event = history.events.findLast((one) => one.trigger === 'decision_recorded') ?? expect.fail('none');
        event.payload = event.payload.replace(/"approval_digest":"[^"]+"/, `"approval_digest":"${OTHER}"`);
      },
      ['decisions_insufficient'],
    ],
    [
      'the request asks nobody',
      (history) => {
        rebound(history, { approvals_required: 0 });
        history.approvals[0]?.decisions.splice(0);
      },
      ['decisions_insufficient'],
    ],
  ])('is broken when %s', (_, change, expected) => {
    expect(found(change)).toEqual(expected);
  });
});
