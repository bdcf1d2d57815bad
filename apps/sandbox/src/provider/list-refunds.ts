import type { EpochMs } from '../clock.ts';
import { type Answer, jsonAnswer, problemAnswer } from '../http/answer.ts';
import { isVisible, type Payment, refundView } from './payment.ts';

/** Refunds on a page, as many as the providers in connectors.md give. */
export const PAGE_SIZE_MAX = 100;

export interface Page {
  /** Id of the last refund of the page before. */
  readonly after: string | undefined;
  readonly limit: number;
}

/** One page of a payment's refunds, newest first, complete at `now` but for those that a fault hides. */
export function listRefunds(payment: Payment, page: Page, now: EpochMs): Answer {
  const newestFirst = payment.refunds.toReversed();
  const cursor = page.after === undefined ? -1 : newestFirst.findIndex((refund) => refund.refund_id === page.after);
  if (page.after !== undefined && cursor === -1) {
    return problemAnswer(400, 'cursor_unknown', 'This payment has no refund with the id in `after`.');
  }
  const rest = newestFirst.slice(cursor + 1).filter((refund) => isVisible(refund, now, 'reader'));
  return jsonAnswer(200, {
    refunds: rest.slice(0, page.limit).map((refund) => refundView(refund, now)),
    has_more: rest.length > page.limit,
  });
}
