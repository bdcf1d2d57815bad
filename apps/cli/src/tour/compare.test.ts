import { describe, expect, test } from 'vitest';
import { differences, expectedText, type Seen, seenText } from './compare.ts';
import type { Result } from './scenario.ts';

const EXPECTED: Result = {
  state: 'completed',
  through: ['executing', 'needs_reconciliation', 'verifying'],
  refused: ['409 digest_mismatch'],
  refunds: [4_200],
  requests: 1,
};
const SEEN: Seen = {
  state: 'completed',
  stop: undefined,
  parked: false,
  trail: ['queued', 'preflight', 'executing', 'needs_reconciliation', 'needs_reconciliation', 'verifying', 'completed'],
  message: '',
  refused: ['409 digest_mismatch'],
  refunds: [4_200],
  requests: 1,
  approvedBytes: true,
};

describe('what was seen is compared with what was expected', () => {
  test('nothing differs when all of it is as expected', () => {
    expect(differences(EXPECTED, SEEN)).toEqual([]);
  });

  test.each<[string, Partial<Seen>, string]>([
    ['another state', { state: 'failed' }, 'state is failed, not completed'],
    ['a stop reason', { stop: 'policy_denied' }, 'stop reason is policy_denied, not none'],
    ['a parked run', { parked: true }, 'it is parked'],
    [
      'a state left out',
      { trail: ['queued', 'executing', 'verifying'] },
      'not through executing → needs_reconciliation',
    ],
    ['states in another order', { trail: ['needs_reconciliation', 'executing', 'verifying'] }, 'it went'],
    ['an answer that was not refused', { refused: ['accepted'] }, 'the answers are accepted, not 409 digest_mismatch'],
    ['a second refund', { refunds: [4_200, 4_200] }, '2 refunds (USD 42.00, USD 42.00), not one refund of USD 42.00'],
    ['no refund', { refunds: [] }, 'no refund, not one refund'],
    ['another amount', { refunds: [4_300] }, 'one refund of USD 43.00, not one refund of USD 42.00'],
    ['a second request', { requests: 2 }, '2 requests arrived, not 1'],
    ['other bytes', { approvedBytes: false }, 'other bytes than were approved'],
  ])('%s is a difference, and only that', (_, change, words) => {
    const found = differences(EXPECTED, { ...SEEN, ...change });
    expect(found).toHaveLength(1);
    expect(found[0]).toContain(words);
  });

  test('a parked run must say what is expected of its message', () => {
    const expected: Result = {
      state: 'needs_reconciliation',
      stop: 'verification_mismatch',
      parked: true,
      says: 'amount_minor: approved 4200, observed 4300',
      refunds: [4_300],
      requests: 1,
    };
    const seen: Seen = {
      ...SEEN,
      state: 'needs_reconciliation',
      stop: 'verification_mismatch',
      parked: true,
      refused: [],
      refunds: [4_300],
    };
    expect(
      differences(expected, { ...seen, message: 'It differs. amount_minor: approved 4200, observed 4300.' }),
    ).toEqual([]);
    expect(
      differences(expected, { ...seen, message: 'It differs. currency: approved USD, observed EUR.' }),
    ).toHaveLength(1);
  });
});

test('expected and seen are told in the same words', () => {
  expect(expectedText(EXPECTED)).toBe(
    '409 digest_mismatch, needs_reconciliation → completed, one refund of USD 42.00, one request',
  );
  expect(seenText(EXPECTED, SEEN)).toBe(`${expectedText(EXPECTED)} with the approved bytes`);
  expect(expectedText({ state: 'failed', stop: 'scope_mismatch', refunds: [], requests: 0 })).toBe(
    'failed (scope_mismatch), no refund, nothing sent',
  );
});
