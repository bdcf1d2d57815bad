import { ExternalId, type JsonObject, type ReadHttp } from '@counterstamp/manifest-core';
import { z } from 'zod';
import { jsonOf, type Read, type ReadOutcome, SaidWord, saysMissing, segment } from '../port.ts';

/** The business request behind a run, as its source keeps it. */
export const RequestFacts = z.object({
  request_id: ExternalId,
  tenant_id: ExternalId,
  order_id: ExternalId,
  status: z.string(),
  requested_amount_minor: z.int(),
  currency: z.string(),
});
export type RequestFacts = z.infer<typeof RequestFacts>;

/** An order as the shop sees it; amounts in ISO minor units. */
export const OrderFacts = z.object({
  order_id: ExternalId,
  tenant_id: ExternalId,
  payment_id: ExternalId,
  status: z.string(),
  captured_amount_minor: z.int(),
  refundable_amount_minor: z.int(),
  currency: z.string(),
});
export type OrderFacts = z.infer<typeof OrderFacts>;

/** Whose order it is: what a credit to its customer is judged by. Refunds and balances of the order are no part of it. */
export const CustomerOrderFacts = z.object({
  order_id: ExternalId,
  tenant_id: ExternalId,
  customer_id: ExternalId,
  status: z.string(),
  captured_amount_minor: z.int(),
  currency: z.string(),
});
export type CustomerOrderFacts = z.infer<typeof CustomerOrderFacts>;

/** The shop's own words on their way into the facts, where they stand escaped. Built once: zod compiles a schema when it first parses. */
const SAID = { status: SaidWord, currency: SaidWord };
const RequestRecord = RequestFacts.extend(SAID);
const OrderRecord = OrderFacts.extend(SAID);
const CustomerOrderRecord = CustomerOrderFacts.extend(SAID);
const Versioned = z.looseObject({ version: z.union([z.int(), SaidWord]) });

/** The shop: requests and orders, read only. */
export interface Shop {
  reads: Readonly<Record<'read_request' | 'read_order' | 'read_customer_order', Read>>;
}

export function createShop(options: { url: string; http: ReadHttp; timeoutMs: number }): Shop {
  const read = async (
    kind: string,
    path: string,
    missing: string,
    schema: z.ZodType<JsonObject>,
  ): Promise<ReadOutcome> => {
    const reply = await options.http.get(`${options.url}${path}`, { timeoutMs: options.timeoutMs });
    const source_ref = `shop:${path}`;
    if (reply.kind === 'unreachable') return { kind: 'failed', reason: reply.reason };
    if (saysMissing(reply, missing)) return { kind: 'missing', source_ref };
    if (reply.status !== 200) return { kind: 'failed', reason: `status_${reply.status}` };
    const body = Versioned.safeParse(jsonOf(reply));
    const facts = schema.safeParse(body.data);
    if (!body.success || !facts.success) return { kind: 'failed', reason: 'unrecognised_body' };
    return {
      kind: 'found',
      record: { kind, source_ref, version_marker: String(body.data.version), facts: facts.data },
    };
  };
  return {
    reads: {
      read_request: (args) =>
        read(
          'request_record',
          `/shop/tenants/${segment(args.tenant_id)}/requests/${segment(args.request_id)}`,
          'request_not_found',
          RequestRecord,
        ),
      read_order: (args) =>
        read('order_record', `/shop/orders/${segment(args.order_id)}`, 'order_not_found', OrderRecord),
      read_customer_order: (args) =>
        read('customer_order_record', `/shop/orders/${segment(args.order_id)}`, 'order_not_found', CustomerOrderRecord),
    },
  };
}
