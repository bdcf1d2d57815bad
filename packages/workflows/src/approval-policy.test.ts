import { LEGACY_CREDITS_CONTRACT, SANDBOX_PAYMENTS_CONTRACT } from '@counterstamp/connectors';
import { CurrencyCode, MinorUnits } from '@counterstamp/manifest-core';
import { describe, expect, test } from 'vitest';
import { type ApprovalTerms, approvalPolicy, type PolicyTier } from './approval-policy.ts';
import { creditPolicy } from './credit/policy.ts';
import { refundPolicy } from './refund/policy.ts';

const minor = (amount: number) => MinorUnits.parse(amount);

/** What is asked, in the words of the tables below. */
function inWords({ policy_rule, approvals_required, groups_required, method, break_glass }: ApprovalTerms): string {
  const groups = Object.entries(groups_required).map(([group, count]) => `${count} of ${group}`);
  const asked = [`${approvals_required} by ${method}`, ...groups, ...(break_glass ? ['break-glass'] : [])];
  return `${policy_rule}: ${asked.join(', ')}`;
}

const FIRST: PolicyTier = {
  rule: 'one_person',
  above: null,
  approvals: 1,
  groups: {},
  method: 'session',
  break_glass: false,
};
const SECOND: PolicyTier = {
  rule: 'two_people',
  above: { USD: 100, JPY: 1_000 },
  approvals: 2,
  groups: { legal: 1, finance: 1 },
  method: 'passkey',
  break_glass: false,
};
const THIRD: PolicyTier = {
  rule: 'three_people',
  above: { JPY: 5_000, USD: 500 },
  approvals: 3,
  groups: {},
  method: 'passkey',
  break_glass: true,
};
const define = (...tiers: PolicyTier[]) => approvalPolicy({ name: 'test', version: 7, tiers });

describe('a policy', () => {
  const policy = define(FIRST, SECOND, THIRD);

  test.each<[number, string, string]>([
    [1, 'USD', 'one_person'],
    [100, 'USD', 'one_person'],
    [101, 'USD', 'two_people'],
    [500, 'USD', 'two_people'],
    [501, 'USD', 'three_people'],
    [Number.MAX_SAFE_INTEGER, 'USD', 'three_people'],
    [501, 'JPY', 'one_person'],
    [1_001, 'JPY', 'two_people'],
    [5_001, 'JPY', 'three_people'],
    // Nobody has said what is little in it.
    [1, 'EUR', 'three_people'],
    [1, 'constructor', 'three_people'],
  ])('asks about %i %s by the rule %s alone', (amount, currency, rule) => {
    expect(policy.termsFor(minor(amount), currency).policy_rule).toBe(rule);
  });

  test('names itself, its version and everything that it asks for, the groups in order', () => {
    const terms = policy.termsFor(minor(101), 'USD');
    expect(terms).toEqual({
      policy: 'test',
      policy_version: 7,
      policy_rule: 'two_people',
      approvals_required: 2,
      groups_required: { finance: 1, legal: 1 },
      method: 'passkey',
      break_glass: false,
    });
    expect(Object.keys(terms.groups_required)).toEqual(['finance', 'legal']);
  });

  test('is not changed by who holds its terms', () => {
    policy.termsFor(minor(101), 'USD').groups_required.finance = 0;
    expect(policy.termsFor(minor(101), 'USD').groups_required).toEqual({ finance: 1, legal: 1 });
  });

  test('of a single tier asks it about everything', () => {
    expect(define(FIRST).termsFor(minor(Number.MAX_SAFE_INTEGER), 'USD').policy_rule).toBe('one_person');
  });
});

test.each<[string, PolicyTier[], string]>([
  ['without a tier', [], 'no tier'],
  ['whose first tier leaves small amounts to nobody', [SECOND], 'every amount'],
  ['whose higher tier would hide a lower one', [FIRST, { ...SECOND, above: null }], 'no lower tier'],
  ['with two tiers of one name', [FIRST, { ...SECOND, rule: 'one_person' }], 'one rule name'],
  ['that asks nobody', [{ ...FIRST, approvals: 0 }], 'at least one person'],
  ['that asks half a person', [{ ...FIRST, approvals: 1.5 }], 'at least one person'],
  ['that asks nobody of a group', [FIRST, { ...SECOND, groups: { finance: 0 } }], 'of finance'],
  ['that asks more of a group than in all', [FIRST, { ...SECOND, groups: { finance: 3 } }], 'only 2 in all'],
  ['that names a group which looks like another', [{ ...FIRST, groups: { 'fin\u0430nce': 1 } }], 'no identifier'],
  ['with a threshold for no currency', [FIRST, { ...SECOND, above: {} }], 'names no currency'],
  ['with a currency that is none', [FIRST, { ...SECOND, above: { usd: 100 } }], '"usd"'],
  ['with a threshold of a fraction', [FIRST, { ...SECOND, above: { USD: 0.5 } }], 'whole threshold for USD'],
  ['with a threshold that no amount is above', [FIRST, { ...SECOND, above: { USD: Number.NaN } }], 'USD'],
  ['with a threshold below nothing', [FIRST, { ...SECOND, above: { USD: -1 } }], 'USD'],
  ['whose tiers name different currencies', [FIRST, SECOND, { ...THIRD, above: { USD: 500 } }], 'other currencies'],
  ['whose thresholds do not grow', [FIRST, SECOND, { ...THIRD, above: { USD: 500, JPY: 1_000 } }], 'for JPY'],
])('a policy %s is refused when it is defined', (_, tiers, why) => {
  expect(() => define(...tiers)).toThrow(why);
});

test.each([0, 1.5, -1])('a policy of version %d is refused: approvals name the version', (version) => {
  expect(() => approvalPolicy({ name: 'test', version, tiers: [FIRST] })).toThrow('version');
});

describe('the refund policy', () => {
  const asks = (amount: number, currency: string) => {
    const answer = refundPolicy(
      { amount_minor: minor(amount), currency: CurrencyCode.parse(currency) },
      { status: 'paid' },
    );
    return answer.kind === 'asks' ? inWords(answer.terms) : answer.kind;
  };
  const ONE = 'one_person: 1 by passkey';
  const TWO = 'two_people_above_50000: 2 by passkey, 1 of finance, break-glass';
  test.each<[number, string, string]>([
    [1, 'USD', ONE],
    [50_000, 'USD', ONE],
    [50_001, 'USD', TWO],
    [50_000, 'JPY', ONE],
    [50_001, 'JPY', TWO],
    [1_000_000, 'USD', TWO],
    [1_000_001, 'USD', 'denies'],
    [1, 'XXX', TWO],
  ])('for %i minor units of %s: %s', (amount, currency, expected) => {
    expect(asks(amount, currency)).toBe(expected);
  });

  test.each(Object.keys(SANDBOX_PAYMENTS_CONTRACT.amounts))('says what is little in %s', (currency) => {
    expect(asks(1, currency)).toBe(ONE);
  });
});

describe('the credit policy', () => {
  const asks = (amount: number, currency: string) => {
    const answer = creditPolicy(
      { amount_minor: minor(amount), currency: CurrencyCode.parse(currency) },
      { status: 'paid' },
    );
    return answer.kind === 'asks' ? inWords(answer.terms) : answer.kind;
  };
  const ONE = 'one_person: 1 by session';
  const TWO = 'two_people_above_10000: 2 by passkey';
  test.each<[number, string, string]>([
    [1, 'USD', ONE],
    [10_000, 'USD', ONE],
    [10_001, 'USD', TWO],
    [100_000, 'USD', TWO],
    [100_001, 'USD', 'denies'],
    [1, 'XXX', TWO],
  ])('for %i minor units of %s: %s', (amount, currency, expected) => {
    expect(asks(amount, currency)).toBe(expected);
  });

  test.each(Object.keys(LEGACY_CREDITS_CONTRACT.amounts))('says what is little in %s', (currency) => {
    expect(asks(1, currency)).toBe(ONE);
  });
});
