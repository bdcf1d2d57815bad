import type { RefundAction } from '@counterstamp/connectors';
import type { ApprovalTerms } from '../define-workflow.ts';

/** Refunds above this need two people, in minor units. A start value: the owner of the policy sets it. */
const TWO_PEOPLE_ABOVE_MINOR = 50_000;
/** Refunds above this are not for an agent to propose at all, in minor units. */
const MAX_AMOUNT_MINOR = 1_000_000;
/** Orders in these states may be refunded. */
const REFUNDABLE_ORDER_STATUSES: readonly string[] = ['paid', 'delivered'];

/** The refund policy, version 1: which actions it permits and whom it asks. It can never ask nobody. */
export function refundPolicy(
  action: Pick<RefundAction, 'amount_minor'>,
  order: { status: string },
): { kind: 'asks'; terms: ApprovalTerms } | { kind: 'denies'; detail: string } {
  if (!REFUNDABLE_ORDER_STATUSES.includes(order.status))
    return { kind: 'denies', detail: `The order is ${order.status}.` };
  if (action.amount_minor > MAX_AMOUNT_MINOR)
    return { kind: 'denies', detail: `The amount is above the limit of ${MAX_AMOUNT_MINOR} minor units.` };
  const two = action.amount_minor > TWO_PEOPLE_ABOVE_MINOR;
  return {
    kind: 'asks',
    terms: {
      policy: 'refund',
      policy_version: 1,
      policy_rule: two ? 'two_people_above_50000' : 'one_person',
      approvals_required: two ? 2 : 1,
    },
  };
}
