import type { CreditAction } from '@counterstamp/connectors';
import { type ApprovalTerms, approvalPolicy } from '../approval-policy.ts';

/**
 * Credits above this need two people, in minor units of each currency. Start values, one number for all: the owner of the policy sets what is
 * much in each.
 */
const TWO_PEOPLE_ABOVE_MINOR = { CHF: 10_000, EUR: 10_000, GBP: 10_000, JPY: 10_000, KWD: 10_000, USD: 10_000 };
/** Credits above this are not for an agent to propose at all, in minor units. */
const MAX_AMOUNT_MINOR = 100_000;

const POLICY = approvalPolicy({
  name: 'credit',
  version: 2,
  tiers: [
    { rule: 'one_person', above: null, approvals: 1, groups: {}, method: 'session', break_glass: false },
    {
      rule: 'two_people_above_10000',
      above: TWO_PEOPLE_ABOVE_MINOR,
      approvals: 2,
      groups: {},
      method: 'passkey',
      break_glass: false,
    },
  ],
});

/** The credit policy: which actions it permits and whom it asks. It can never ask nobody. */
export function creditPolicy(
  action: Pick<CreditAction, 'amount_minor' | 'currency'>,
  order: { status: string },
): { kind: 'asks'; terms: ApprovalTerms } | { kind: 'denies'; detail: string } {
  if (order.status === 'cancelled') return { kind: 'denies', detail: 'The order is cancelled.' };
  if (action.amount_minor > MAX_AMOUNT_MINOR)
    return { kind: 'denies', detail: `The amount is above the limit of ${MAX_AMOUNT_MINOR} minor units.` };
  return { kind: 'asks', terms: POLICY.termsFor(action.amount_minor, action.currency) };
}
