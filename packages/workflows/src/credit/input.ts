import { MemoText } from '@counterstamp/connectors';
import { CurrencyCode, ExternalId, MinorUnits } from '@counterstamp/manifest-core';
import { z } from 'zod';

/** What a request for a credit may say. Amounts in ISO minor units. The customer is the order's, never the caller's to name. */
export const CreditInput = z.strictObject({
  order_id: ExternalId,
  requested_amount_minor: MinorUnits,
  currency: CurrencyCode,
  reason: z.string().min(1).max(500),
  /** What the customer reads beside the credit. */
  memo: MemoText,
});
export type CreditInput = z.infer<typeof CreditInput>;

/** What a proposer may say. What it leaves out the application fills from evidence and input; what it says is checked, never corrected. */
export const CreditProposal = z.strictObject({
  operation: z.literal('grant_credit'),
  amount_minor: MinorUnits,
  currency: CurrencyCode,
  reason: z.string().min(1).max(100),
  customer_id: ExternalId.optional(),
  memo: MemoText.optional(),
  evidence_refs: z.array(ExternalId).min(1).max(32).optional(),
  /** For the approver to read; nothing is decided by it. */
  explanation: z.string().max(2_000).optional(),
});
export type CreditProposal = z.infer<typeof CreditProposal>;
