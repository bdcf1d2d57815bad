import {
  CurrencyCode,
  type DisplayField,
  displayText,
  ExternalId,
  formatMoney,
  MinorUnits,
  RunId,
} from '@counterstamp/manifest-core';
import { z } from 'zod';

/** Why a customer is credited: the outcomes that the credit policy knows. */
export const CREDIT_REASONS = ['goodwill', 'late_delivery', 'service_failure', 'price_adjustment'] as const;

/** Characters of a memo at the target. */
const WIRE_MEMO_MAX = 140;
/** `run_` and a UUID. */
const RUN_ID_LENGTH = 40;
/** Characters of text that fit into a memo beside the run id and a space. */
export const MEMO_TEXT_MAX = WIRE_MEMO_MAX - RUN_ID_LENGTH - 1;

/** Text of a memo: printable ASCII without a space at either end, since nobody says what the target does to anything else. */
export const MemoText = z
  .string()
  .max(MEMO_TEXT_MAX, `must be at most ${MEMO_TEXT_MAX} characters: the run id takes the rest of the memo`)
  .regex(/^[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?$/, 'must be printable ASCII without a space at either end');

/** The typed payload of a credit. The reason stays with us; the rest is what the target is told. */
export const CreditAction = z.strictObject({
  operation: z.literal('grant_credit'),
  customer_id: ExternalId,
  amount_minor: MinorUnits,
  currency: CurrencyCode,
  /** The customer reads it, after the run id. */
  memo: MemoText,
  reason: z.enum(CREDIT_REASONS),
  evidence_refs: z.array(ExternalId).min(1).max(32),
});
export type CreditAction = z.infer<typeof CreditAction>;

/** The lines that an approver sees, from the canonical action alone. */
export function displayCredit(action: CreditAction): DisplayField[] {
  return [
    { field: 'operation', label: 'Operation', value: 'Credit a customer', flagged: false },
    {
      field: 'amount_minor',
      label: 'Amount',
      value: formatMoney(action.amount_minor, action.currency),
      flagged: false,
    },
    { field: 'customer_id', label: 'To customer', value: action.customer_id, flagged: false },
    { field: 'memo', label: 'Memo', ...displayText(action.memo) },
    { field: 'reason', label: 'Reason', value: action.reason, flagged: false },
    { field: 'evidence_refs', label: 'Evidence', value: action.evidence_refs.join(', '), flagged: false },
  ];
}

/** The memo on the wire: our tag first, so that no text can stand in its place. */
export function taggedMemo(run_id: string, text: string): string {
  return `${run_id} ${text}`;
}

/** Tag and text of a memo as the target shows it; `run_id` is null for one that does not begin with a run id of ours. */
export function readMemo(memo: string): { run_id: string | null; text: string } {
  const tag = RunId.safeParse(memo.slice(0, RUN_ID_LENGTH));
  const rest = memo.slice(RUN_ID_LENGTH);
  return tag.success && rest.startsWith(' ') ? { run_id: tag.data, text: rest.slice(1) } : { run_id: null, text: memo };
}
