import type { EpochMs } from '../clock.ts';
import { type Answer, problemAnswer } from '../http/answer.ts';
import { type Payment, paymentView } from './payment.ts';

export interface RefundAsked {
  /** Minor units; left out it means the whole rest. */
  readonly amount?: number | undefined;
  readonly currency: string;
}

export type RefundDecision =
  | { readonly kind: 'accepted'; readonly amount: number }
  | { readonly kind: 'refused'; readonly answer: Answer };

/** May this refund be made? The provider's own rules, on its own books. */
export function decideRefund(payment: Payment, asked: RefundAsked, now: EpochMs): RefundDecision {
  const { currency, disputed, refundable_amount_minor } = paymentView(payment, now, 'books');
  if (asked.currency !== currency) {
    return refused(400, 'currency_mismatch', `The payment is in ${currency}, not ${asked.currency}.`);
  }
  if (disputed) return refused(402, 'charge_disputed', 'The payment is disputed.');
  if (refundable_amount_minor === 0) {
    return refused(400, 'charge_already_refunded', 'Nothing is left to refund.');
  }
  // A real provider's trap, kept on purpose: no amount means everything that is left.
  const amount = asked.amount ?? refundable_amount_minor;
  if (amount > refundable_amount_minor) {
    return refused(400, 'amount_exceeds_refundable', `${refundable_amount_minor} is left, ${amount} was asked for.`);
  }
  return { kind: 'accepted', amount };
}

function refused(status: number, code: string, detail: string): RefundDecision {
  return { kind: 'refused', answer: problemAnswer(status, code, detail) };
}
