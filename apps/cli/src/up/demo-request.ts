import { replacePrivate, type StateFolder } from './state-folder.ts';

/** A refund that a newcomer can ask for: seeds its case in the sandbox and writes the request to a file. */
export async function offerDemoRequest(folder: StateFolder, sandboxUrl: string): Promise<void> {
  const id = Date.now().toString(36); // The sandbox forgets its cases, the database remembers its runs: new names each time.
  const refund = { order_id: `order_${id}`, amount_minor: 4_200, currency: 'USD', reason: 'item arrived damaged' };
  const response = await fetch(`${sandboxUrl}/admin/cases`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ tenant_id: 'shop_north', request_id: `case_${id}`, ...refund }),
    signal: AbortSignal.timeout(5_000),
  });
  if (!response.ok) throw new Error(`the sandbox did not take the demo case: ${response.status}`);
  const { order_id, amount_minor, currency, reason } = refund;
  const body = {
    request_id: `case_${id}`,
    input: { order_id, requested_amount_minor: amount_minor, currency, reason },
  };
  await replacePrivate(folder.request, `${JSON.stringify(body, null, 2)}\n`);
}
