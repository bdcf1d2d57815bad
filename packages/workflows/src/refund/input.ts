import {
  CurrencyCode,
  canonicalJson,
  ExternalId,
  Json,
  type JsonObject,
  MinorUnits,
} from '@counterstamp/manifest-core';
import { z } from 'zod';

/** Canonical bytes of the free-form member at most. */
const METADATA_MAX_BYTES = 4_096;

const Metadata: z.ZodType<JsonObject> = z
  .record(z.string(), Json)
  .refine(
    (value) => Buffer.byteLength(canonicalJson(value)) <= METADATA_MAX_BYTES,
    `must be at most ${METADATA_MAX_BYTES} bytes`,
  );

/** What a refund request may say. Amounts in ISO minor units. */
export const RefundInput = z.strictObject({
  order_id: ExternalId,
  requested_amount_minor: MinorUnits,
  currency: CurrencyCode,
  reason: z.string().min(1).max(500),
  metadata: Metadata.optional(),
});
export type RefundInput = z.infer<typeof RefundInput>;

/** What a proposer may say. What it leaves out the application fills from evidence; what it says is checked, never corrected. */
export const RefundProposal = z.strictObject({
  operation: z.literal('refund_order'),
  order_id: ExternalId,
  amount_minor: MinorUnits,
  currency: CurrencyCode,
  reason: z.string().min(1).max(100),
  destination: ExternalId.optional(),
  evidence_refs: z.array(ExternalId).min(1).max(32).optional(),
  metadata: Metadata.optional(),
  /** For the approver to read; nothing is decided by it. */
  explanation: z.string().max(2_000).optional(),
});
export type RefundProposal = z.infer<typeof RefundProposal>;
