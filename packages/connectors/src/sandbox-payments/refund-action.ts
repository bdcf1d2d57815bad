import {
  CurrencyCode,
  canonicalJson,
  type DisplayField,
  displayText,
  ExternalId,
  formatMoney,
  Json,
  MinorUnits,
} from '@counterstamp/manifest-core';
import { z } from 'zod';

/** Why money goes back: the outcomes that the refund policy knows. */
export const REFUND_REASONS = [
  'damaged_item',
  'not_received',
  'wrong_item',
  'duplicate_charge',
  'customer_request',
] as const;

/** The typed payload: only what the executor needs, each member able to change the effect and therefore inside the digest. */
export const RefundAction = z.strictObject({
  operation: z.literal('refund_order'),
  order_id: ExternalId,
  amount_minor: MinorUnits,
  currency: CurrencyCode,
  /** The payment that the money goes back to. */
  destination: ExternalId,
  reason: z.enum(REFUND_REASONS),
  evidence_refs: z.array(ExternalId).min(1).max(32),
  metadata: z.record(z.string(), Json),
});
export type RefundAction = z.infer<typeof RefundAction>;

/**
 * The lines that an approver sees, from the canonical action alone. Each free-form member is a line of its own, in its canonical JSON and under
 * a label of ours: a name that somebody else chose labels nothing.
 */
export function displayRefund(action: RefundAction): DisplayField[] {
  return [
    { field: 'operation', label: 'Operation', value: 'Refund an order', flagged: false },
    {
      field: 'amount_minor',
      label: 'Amount',
      value: formatMoney(action.amount_minor, action.currency),
      flagged: false,
    },
    { field: 'order_id', label: 'Order', value: action.order_id, flagged: false },
    { field: 'destination', label: 'To payment', value: action.destination, flagged: false },
    { field: 'reason', label: 'Reason', value: action.reason, flagged: false },
    { field: 'evidence_refs', label: 'Evidence', value: action.evidence_refs.join(', '), flagged: false },
    ...Object.entries(action.metadata)
      .sort(([one], [other]) => (one < other ? -1 : 1))
      .map(([name, value]) => ({
        field: 'metadata',
        label: 'Sent along (free-form)',
        ...displayText(canonicalJson({ [name]: value })),
      })),
  ];
}
