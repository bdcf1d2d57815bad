import { describe, expect, test } from 'vitest';
import {
  type AttemptFact,
  absenceCounts,
  attemptOverdue,
  type CloseAbsentFacts,
  compareEffect,
  type DispatchFacts,
  keyStillKnown,
  type Look,
  mayCloseAbsent,
  mayCloseNotSent,
  mayDispatch,
  mayRetry,
  type NextLook,
  type NextLookFacts,
  nextLook,
  nothingLeft,
  type RetryFacts,
  SENDS_MAX,
  type Settlement,
} from './recovery-guards.ts';

/** An attempt of each kind; `safe(ms)`: its answer permits the same request again after that span. */
const UNSENT: AttemptFact = { status: 'not_sent' };
const DOUBT: AttemptFact = { status: 'uncertain', retry_safe_in: null };
const safe = (retry_safe_in: number): AttemptFact => ({ status: 'uncertain', retry_safe_in });

describe('a dispatch', () => {
  const ready: DispatchFacts = {
    approval_bound: true,
    digest_matches: true,
    rejected: false,
    approvals: 2,
    approvals_required: 2,
    operation_allowed: true,
    until_expiry: 31,
    until_run_deadline: 1,
    expiry_margin: 30,
    other_generation_open: false,
    on_hold: false,
    resource_busy: false,
  };
  /** Each way to fail with its reason, in the order in which the database asks. */
  const FAILING: [Partial<DispatchFacts>, string][] = [
    [{ approval_bound: false }, 'approval_invalid'],
    [{ digest_matches: false }, 'digest_mismatch'],
    [{ rejected: true }, 'approval_invalid'],
    [{ approvals: 1 }, 'decisions_insufficient'],
    [{ operation_allowed: false }, 'operation_unavailable'],
    [{ until_expiry: 0 }, 'approval_expired'],
    [{ until_run_deadline: 0 }, 'deadline_exceeded'],
    [{ until_expiry: 30 }, 'expires_too_soon'],
    [{ other_generation_open: true }, 'other_generation_open'],
    [{ on_hold: true }, 'on_hold'],
    [{ resource_busy: true }, 'resource_busy'],
  ];

  test('is permitted when everything holds, at the last unit of every span', () => {
    expect(mayDispatch(ready)).toBeNull();
    expect(mayDispatch({ ...ready, approvals: 3 })).toBeNull();
  });
  test.each(FAILING)('is refused for %j as %s', (change, reason) => {
    expect(mayDispatch({ ...ready, ...change })).toBe(reason);
  });
  test.each([-1, -60_000])('is refused as expired or overdue %i past the end', (span) => {
    expect(mayDispatch({ ...ready, until_expiry: span })).toBe('approval_expired');
    expect(mayDispatch({ ...ready, until_run_deadline: span })).toBe('deadline_exceeded');
  });
  test('names the first of several reasons, in the order of the database', () => {
    for (const [index, [change, reason]] of FAILING.entries()) {
      // Everything behind it fails as well, save that one span cannot be both over and merely short.
      const rest = Object.assign(
        {},
        ...FAILING.slice(index + 1)
          .map(([later]) => later)
          .toReversed(),
      );
      expect(mayDispatch({ ...ready, ...rest, ...change })).toBe(reason);
    }
  });
});

describe('an absence', () => {
  test.each([
    [99, false],
    [100, true],
    [101, true],
    [-1, false],
  ])('observed %i after the last call deadline, with settle 100, counts: %s', (since_deadline, counts) => {
    expect(absenceCounts({ since_deadline, settle: 100 })).toBe(counts);
  });
});

describe('nothing left', () => {
  test.each<[string, AttemptFact[], boolean]>([
    ['no attempt at all', [], false],
    ['one that was not sent', [UNSENT], true],
    ['several that were not sent', [UNSENT, UNSENT], true],
    ['one in doubt among them', [UNSENT, DOUBT], false],
    ['one still open', [{ status: 'started' }], false],
    ['one rejected', [{ status: 'rejected' }, UNSENT], false],
    ['one that succeeded', [{ status: 'succeeded' }], false],
  ])('%s: %s', (_, attempts, nothing) => {
    expect(nothingLeft(attempts)).toBe(nothing);
    expect(mayCloseNotSent({ attempts, evidence_of_effect: false })).toBe(nothing);
    expect(mayCloseNotSent({ attempts, evidence_of_effect: true })).toBe(false);
  });
});

describe('a key', () => {
  test.each([
    [69, true],
    [70, false],
    [71, false],
  ])('that is %i old, of 100, is still known for a retry that takes 30: %s', (since_first_send, known) => {
    expect(keyStillKnown({ since_first_send, reserve: 30, retention: 100 })).toBe(known);
  });
});

const settled = { since_deadline: 100, settle: 100 };
const retryable: RetryFacts = {
  attempts: [DOUBT],
  evidence_of_effect: false,
  retries_refused: 0,
  until_expiry: 31,
  expiry_margin: 30,
  not_sent_retries: 0,
  not_sent_retries_max: 5,
  absence: settled,
  key: { retention: 100 },
  since_first_send: 69,
  reserve: 30,
};

describe('the same request may be sent again', () => {
  const unsent: RetryFacts = { ...retryable, attempts: [UNSENT, UNSENT], absence: null, key: null };
  test.each<[string, RetryFacts, ReturnType<typeof mayRetry>]>([
    ['once absence has settled', retryable, 'after_absence'],
    [
      'after attempts that were not sent and one that was',
      { ...retryable, attempts: [UNSENT, DOUBT, UNSENT] },
      'after_absence',
    ],
    [
      'after an attempt that is still open, once it has settled',
      { ...retryable, attempts: [{ status: 'started' }] },
      'after_absence',
    ],
    ['while nothing ever left, without absence and without a key', unsent, 'after_not_sent'],
    ['a last time within the limit of its kind', { ...unsent, not_sent_retries: 4 }, 'after_not_sent'],
    [
      'at the moment that the answer named',
      { ...retryable, attempts: [safe(0)], absence: { ...settled, since_deadline: 0 } },
      'after_retry_safe',
    ],
    ['as settled rather than permitted where both hold', { ...retryable, attempts: [safe(0)] }, 'after_absence'],
  ])('%s', (_, facts, kind) => {
    expect(mayRetry(facts)).toBe(kind);
  });

  const early: RetryFacts = { ...retryable, absence: { since_deadline: 99, settle: 100 } };
  test.each<[string, RetryFacts, ReturnType<typeof mayRetry>]>([
    ['the provider said that it was applied', { ...retryable, evidence_of_effect: true }, 'evidence_stands'],
    ['that was said of a run of which nothing left', { ...unsent, evidence_of_effect: true }, 'evidence_stands'],
    ['the executor refused one for good', { ...retryable, retries_refused: 1 }, 'refused_before'],
    ['the approval is within its margin', { ...retryable, until_expiry: 30 }, 'approval_expired'],
    [
      'the approval is within its margin, of a run of which nothing left',
      { ...unsent, until_expiry: 30 },
      'approval_expired',
    ],
    ['as many as permitted were not sent', { ...unsent, not_sent_retries: 5 }, 'retries_used_up'],
    ['two attempts may have left', { ...retryable, attempts: [DOUBT, UNSENT, DOUBT] }, 'retries_used_up'],
    ['the target has no key', { ...retryable, key: null }, 'no_key'],
    ['the key may be forgotten', { ...retryable, since_first_send: 70 }, 'key_too_old'],
    ['nothing was looked up', { ...retryable, absence: null }, 'not_settled'],
    ['absence has not settled', early, 'not_settled'],
    ['the answer’s time has not come', { ...early, attempts: [safe(1)] }, 'not_settled'],
    ['the answer permits nothing', early, 'not_settled'],
    ['the answer permits it and the target has no key', { ...early, attempts: [safe(0)], key: null }, 'no_key'],
    [
      'the answer permits it and nothing was looked up',
      { ...early, attempts: [safe(0)], absence: null },
      'not_settled',
    ],
    ['one attempt has no answer yet', { ...early, attempts: [{ status: 'started' }] }, 'not_settled'],
  ])('not when %s', (_, facts, reason) => {
    expect(mayRetry(facts)).toBe(reason);
  });

  test('twice at most, whatever they were answered', () => {
    expect(SENDS_MAX).toBe(2);
    for (const sent of [
      DOUBT,
      safe(0),
      { status: 'rejected' },
      { status: 'started' },
      { status: 'succeeded' },
    ] as AttemptFact[])
      expect(mayRetry({ ...retryable, attempts: [DOUBT, sent] })).toBe('retries_used_up');
  });
});

describe('a person may close a run as absent', () => {
  const facts: CloseAbsentFacts = {
    absence: settled,
    evidence_of_effect: false,
    instances_fenced: true,
    fencing_waived: false,
  };
  test.each<[string, Partial<CloseAbsentFacts>, ReturnType<typeof mayCloseAbsent>]>([
    ['at settle, with every instance fenced', {}, null],
    ['when a second person takes the missing fence on', { instances_fenced: false, fencing_waived: true }, null],
    [
      'not before settle, fenced or waived',
      { absence: { since_deadline: 99, settle: 100 }, fencing_waived: true },
      'not_settled',
    ],
    [
      'not against evidence of the effect, whatever else holds',
      { evidence_of_effect: true, fencing_waived: true },
      'evidence_stands',
    ],
    ['not while an instance may still send', { instances_fenced: false }, 'instance_not_fenced'],
  ])('%s', (_, change, reason) => {
    expect(mayCloseAbsent({ ...facts, ...change })).toBe(reason);
  });
});

describe('an effect with our reference', () => {
  test.each<[Settlement, ReturnType<typeof compareEffect>]>([
    ['final', 'match'],
    ['failed', 'failed'],
    ['pending', 'pending'],
    ['unrecognised', 'pending'],
  ])('that is equal and %s: %s; and different in one field: different', (settlement, compared) => {
    expect(compareEffect({ settlement, differing: [] })).toBe(compared);
    expect(compareEffect({ settlement, differing: ['amount_minor'] })).toBe('different');
  });
});

describe('a look', () => {
  const at: NextLookFacts = { ...retryable, look: { seen: 'absent' }, verifier_gave_up: false };
  const ours = (settlement: Settlement, differing: string[] = []): Look => ({
    seen: 'ours',
    effects: [{ settlement, differing }],
  });
  const two: Look = {
    seen: 'ours',
    effects: [
      { settlement: 'final', differing: [] },
      { settlement: 'failed', differing: [] },
    ],
  };
  const early = { since_deadline: 99, settle: 100 };
  const unsent = { attempts: [UNSENT], absence: null };
  const wait: NextLook = { to: 'wait' };
  const park = (why: Extract<NextLook, { to: 'park' }>['why']): NextLook => ({ to: 'park', why });
  const retry = (kind: Extract<NextLook, { to: 'retry' }>['kind']): NextLook => ({ to: 'retry', kind });

  test.each<[string, Partial<NextLookFacts>, NextLook]>([
    ['finds the effect, final', { look: ours('final') }, { to: 'verifying' }],
    ['finds the effect, failed', { look: ours('failed') }, { to: 'verifying' }],
    ['finds the effect, pending', { look: ours('pending') }, { to: 'verifying' }],
    ['finds the effect pending once the verifier gave up', { look: ours('pending'), verifier_gave_up: true }, wait],
    [
      'finds a status nobody knows once the verifier gave up',
      { look: ours('unrecognised'), verifier_gave_up: true },
      wait,
    ],
    [
      'finds the effect final once the verifier gave up',
      { look: ours('final'), verifier_gave_up: true },
      { to: 'verifying' },
    ],
    [
      'finds it before settle and without a key: presence waits for nothing',
      { look: ours('final'), absence: early, key: null },
      { to: 'verifying' },
    ],
    ['finds another than was approved', { look: ours('final', ['amount_minor']) }, park('different')],
    ['finds two', { look: two }, park('multiple')],
    ['finds a list without one', { look: { seen: 'ours', effects: [] } }, wait],
    ['finds one that is only like it', { look: { seen: 'lookalike' } }, park('lookalike')],
    [
      'finds one that is only like it although nothing was sent',
      { look: { seen: 'lookalike' }, ...unsent },
      park('lookalike'),
    ],
    ['finds nothing, settled, with a key', {}, retry('after_absence')],
    ['finds nothing, settled, without a key', { key: null }, park('absent')],
    ['finds nothing, settled, against evidence', { evidence_of_effect: true }, park('evidence_stands')],
    ['finds nothing before settle', { absence: early }, wait],
    ['finds nothing before settle, without a key', { absence: early, key: null }, wait],
    ['finds nothing where a retry was permitted', { absence: early, attempts: [safe(0)] }, retry('after_retry_safe')],
    ['has no answer, whatever has settled', { look: { seen: 'unknown' } }, wait],
    ['has no answer where a retry was permitted', { look: { seen: 'unknown' }, attempts: [safe(0)] }, wait],
    ['has no answer and nothing was sent', { look: { seen: 'unknown' }, ...unsent }, retry('after_not_sent')],
    ['finds nothing and nothing was sent', unsent, retry('after_not_sent')],
    ['finds nothing, nothing was sent and no retry is left', { ...unsent, not_sent_retries: 5 }, { to: 'not_sent' }],
    [
      'has no answer, nothing was sent and the approval is over',
      { look: { seen: 'unknown' }, ...unsent, until_expiry: 0 },
      { to: 'not_sent' },
    ],
    [
      'finds nothing, nothing was sent, and somebody said that it was applied',
      { ...unsent, evidence_of_effect: true },
      wait,
    ],
  ])('that %s', (_, change, next) => {
    expect(nextLook({ ...at, ...change })).toEqual(next);
  });
});

describe('an attempt', () => {
  test.each([
    ['before the grace is over', -1, false, false],
    ['at the end of the grace', 0, false, true],
    ['after it', 1, false, true],
    ['long before its deadline, once its instance lost its lease', -60_000, true, true],
  ])('%s is taken over from its worker', (_, pastGrace, lease_lost, overdue) => {
    expect(attemptOverdue({ since_deadline: 100 + pastGrace, grace: 100, lease_lost })).toBe(overdue);
  });
});
