import {
  CurrencyCode,
  canonicalJson,
  type DisplayField,
  ExternalId,
  formatMoney,
  Json,
  type JsonObject,
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
  evidence_refs: z.array(z.string()).min(1).max(32),
  metadata: z.record(z.string(), Json),
});
export type RefundAction = z.infer<typeof RefundAction>;

/** The lines that an approver sees, from the canonical action alone. */
export function displayRefund(action: RefundAction): DisplayField[] {
  const lines: DisplayField[] = [
    { field: 'operation', label: 'Operation', value: 'Refund an order' },
    { field: 'amount_minor', label: 'Amount', value: formatMoney(action.amount_minor, action.currency) },
    { field: 'order_id', label: 'Order', value: action.order_id },
    { field: 'destination', label: 'To payment', value: action.destination },
    { field: 'reason', label: 'Reason', value: action.reason },
    { field: 'evidence_refs', label: 'Evidence', value: action.evidence_refs.join(', ') },
  ];
  const metadata: JsonObject = action.metadata;
  if (Object.keys(metadata).length > 0)
    lines.push({ field: 'metadata', label: 'Sent along (free-form)', value: canonicalJson(metadata) });
  return lines;
}
