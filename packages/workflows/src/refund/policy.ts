import type { RefundAction } from '@counterstamp/connectors';
import { type ApprovalTerms, approvalPolicy } from '../approval-policy.ts';

/**
 * Refunds above this need two people, in minor units of each currency. Start values, one number for all: the owner of the policy sets what is
 * much in each.
 */
const TWO_PEOPLE_ABOVE_MINOR = {
  AUD: 50_000,
  BHD: 50_000,
  CAD: 50_000,
  CHF: 50_000,
  EUR: 50_000,
  GBP: 50_000,
  HUF: 50_000,
  JPY: 50_000,
  KRW: 50_000,
  KWD: 50_000,
  PLN: 50_000,
  SEK: 50_000,
  USD: 50_000,
};
/** Refunds above this are not for an agent to propose at all, in minor units. */
const MAX_AMOUNT_MINOR = 1_000_000;
/** Orders in these states may be refunded. */
const REFUNDABLE_ORDER_STATUSES: readonly string[] = ['paid', 'delivered'];

const POLICY = approvalPolicy({
  name: 'refund',
  version: 2,
  tiers: [
    { rule: 'one_person', above: null, approvals: 1, groups: {}, method: 'passkey', break_glass: false },
    {
      rule: 'two_people_above_50000',
      above: TWO_PEOPLE_ABOVE_MINOR,
      approvals: 2,
      groups: { finance: 1 },
      method: 'passkey',
      break_glass: true,
    },
  ],
});

/** The refund policy: which actions it permits and whom it asks. It can never ask nobody. */
export function refundPolicy(
  action: Pick<RefundAction, 'amount_minor' | 'currency'>,
  order: { status: string },
): { kind: 'asks'; terms: ApprovalTerms } | { kind: 'denies'; detail: string } {
  if (!REFUNDABLE_ORDER_STATUSES.includes(order.status))
    return { kind: 'denies', detail: `The order is ${order.status}.` };
  if (action.amount_minor > MAX_AMOUNT_MINOR)
    return { kind: 'denies', detail: `The amount is above the limit of ${MAX_AMOUNT_MINOR} minor units.` };
  return { kind: 'asks', terms: POLICY.termsFor(action.amount_minor, action.currency) };
}
