import type { CreditAction } from '@counterstamp/connectors';
import type { ApprovalTerms } from '../define-workflow.ts';

/** Credits above this need two people, in minor units. A start value: the owner of the policy sets it. */
const TWO_PEOPLE_ABOVE_MINOR = 10_000;
/** Credits above this are not for an agent to propose at all, in minor units. */
const MAX_AMOUNT_MINOR = 100_000;

/** The credit policy, version 1: which actions it permits and whom it asks. It can never ask nobody. */
export function creditPolicy(
  action: Pick<CreditAction, 'amount_minor'>,
  order: { status: string },
): { kind: 'asks'; terms: ApprovalTerms } | { kind: 'denies'; detail: string } {
  if (order.status === 'cancelled') return { kind: 'denies', detail: 'The order is cancelled.' };
  if (action.amount_minor > MAX_AMOUNT_MINOR)
    return { kind: 'denies', detail: `The amount is above the limit of ${MAX_AMOUNT_MINOR} minor units.` };
  const two = action.amount_minor > TWO_PEOPLE_ABOVE_MINOR;
  return {
    kind: 'asks',
    terms: {
      policy: 'credit',
      policy_version: 1,
      policy_rule: two ? 'two_people_above_10000' : 'one_person',
      approvals_required: two ? 2 : 1,
    },
  };
}
