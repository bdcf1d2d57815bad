import { checkMoney, SANDBOX_PAYMENTS_CONTRACT } from '@counterstamp/connectors';
import type { JsonObject } from '@counterstamp/manifest-core';
import type { z } from 'zod';
import type { WorkflowDoor } from '../define-workflow.ts';
import { RefundInput, RefundProposal } from './input.ts';

/** What may ask for a refund, and how. */
export const refundDoor: WorkflowDoor = {
  name: 'refund',
  version: 1,
  contract: SANDBOX_PAYMENTS_CONTRACT,
  operations: {
    read_request: 'read',
    read_order: 'read',
    read_payment: 'read',
    read_refund_status: 'read',
    refund_order: 'write',
  },
  visibilityMs: 0,
  input: RefundInput as z.ZodType<JsonObject>,
  proposal: RefundProposal as z.ZodType<JsonObject>,
  checkInput(input) {
    const { requested_amount_minor, currency } = RefundInput.parse(input);
    const code = checkMoney(SANDBOX_PAYMENTS_CONTRACT.amounts, requested_amount_minor, currency);
    if (code === undefined) return undefined;
    const path = code === 'currency_unsupported' ? '/currency' : '/requested_amount_minor';
    return {
      code,
      path,
      detail: `${SANDBOX_PAYMENTS_CONTRACT.name} cannot carry ${requested_amount_minor} ${currency} exactly`,
    };
  },
};
