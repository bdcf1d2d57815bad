import { checkMoney, LEGACY_CREDITS_CONTRACT } from '@counterstamp/connectors';
import type { JsonObject } from '@counterstamp/manifest-core';
import type { z } from 'zod';
import type { WorkflowDoor } from '../define-workflow.ts';
import { CreditInput, CreditProposal } from './input.ts';

const { name: CONNECTOR, amounts, lookup } = LEGACY_CREDITS_CONTRACT;

/** What may ask for a credit, and how. */
export const creditDoor: WorkflowDoor = {
  name: 'credit',
  version: 1,
  contract: LEGACY_CREDITS_CONTRACT,
  operations: {
    read_request: 'read',
    read_customer_order: 'read',
    read_grant_status: 'read',
    grant_credit: 'write',
  },
  visibilityMs: lookup.consistency.kind === 'eventual' ? lookup.consistency.settleMs : 0,
  input: CreditInput as z.ZodType<JsonObject>,
  proposal: CreditProposal as z.ZodType<JsonObject>,
  checkInput(input) {
    const { requested_amount_minor, currency } = CreditInput.parse(input);
    const code = checkMoney(amounts, requested_amount_minor, currency);
    if (code === undefined) return undefined;
    const path = code === 'currency_unsupported' ? '/currency' : '/requested_amount_minor';
    return { code, path, detail: `${CONNECTOR} cannot carry ${requested_amount_minor} ${currency} exactly` };
  },
};
