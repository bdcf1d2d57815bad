import type { JsonObject, ReadHttp } from '@counterstamp/manifest-core';
import { READ_ONLY_KEY, startSandbox, WRITE_KEY } from '@counterstamp/sandbox';
import { CALL_MS, type ConnectorUnderTest, describeConnector } from '../../../../testing/connector-conformance.ts';
import { createLegacyCredits } from './legacy-credits.ts';

const HOLD_MS = CALL_MS * 100;

async function start(http: ReadHttp): Promise<ConnectorUnderTest> {
  const sandbox = await startSandbox();
  const admin = async (method: string, path: string, body?: unknown): Promise<Record<string, unknown>> => {
    const response = await fetch(`${sandbox.url}${path}`, {
      method,
      ...(body === undefined ? {} : { headers: { 'content-type': 'application/json' }, body: JSON.stringify(body) }),
    });
    if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${await response.text()}`);
    return (await response.json()) as Record<string, unknown>;
  };
  let cases = 0;
  const actionOf = async (amount_minor: number, currency: string): Promise<JsonObject> => {
    const order_id = `order_${++cases}`;
    await admin('POST', '/admin/cases', {
      tenant_id: 'shop_north',
      request_id: `case_${cases}`,
      order_id,
      amount_minor,
      currency,
    });
    return {
      operation: 'grant_credit',
      customer_id: `cus_${order_id}`,
      amount_minor,
      currency,
      memo: 'Sorry for the late parcel',
      reason: 'late_delivery',
      evidence_refs: ['evd_1'],
    };
  };
  const action = await actionOf(4200, 'USD');
  const list = async (path: string, name: string) => {
    const body = await admin('GET', `${path}?customer_id=cus_order_1`);
    return (body[name] as unknown[]).length;
  };
  return {
    connector: createLegacyCredits({
      url: sandbox.url,
      writeKey: WRITE_KEY,
      readKey: READ_ONLY_KEY,
      http,
      timeoutMs: 5_000,
    }),
    action,
    fields: ['amount_minor', 'currency', 'customer_id', 'memo'],
    actionOf,
    arm: async (fault) => void (await admin('PUT', '/admin/credits/faults/cus_order_1', fault)),
    breakNextRead: async () =>
      void (await admin('PUT', '/admin/credits/faults/cus_order_1', { kind: 'read_error', status: 503 })),
    requests: () => list('/admin/credits/ledger', 'entries'),
    effects: () => list('/admin/credits/effects', 'effects'),
    bookLookalike: async () =>
      void (await admin('POST', '/admin/credits/grants', {
        customer_id: 'cus_order_1',
        amount: 4200,
        currency: 'USD',
        memo: 'Sorry for the late parcel',
      })),
    passTime: async (ms) => void (await admin('POST', '/admin/clock', { advance_ms: ms })),
    secrets: [WRITE_KEY, READ_ONLY_KEY],
    close: () => sandbox.close(),
  };
}

describeConnector(
  'legacy-credits',
  [
    ['a documented rejection', { kind: 'reject', code: 'customer_not_found', status: 404 }, 'rejected', 0],
    ['a refused credential', { kind: 'reject', code: 'unauthorized', status: 401 }, 'rejected', 0],
    ['a rate limit', { kind: 'reject', code: 'rate_limited', status: 429 }, 'uncertain', 0],
    ['a rejection with a code nobody documented', { kind: 'reject', code: 'strange', status: 400 }, 'uncertain', 0],
    [
      'a documented code under another status',
      { kind: 'reject', code: 'customer_not_found', status: 409 },
      'uncertain',
      0,
    ],
    ['a redirect', { kind: 'redirect' }, 'uncertain', 0],
    ['a connection cut before accepting', { kind: 'cut_before_accept' }, 'uncertain', 0],
    ['a connection reset before accepting', { kind: 'cut_before_accept', reset: true }, 'uncertain', 0],
    ['a connection cut after accepting', { kind: 'cut_after_accept' }, 'uncertain', 1],
    ['a connection reset after accepting', { kind: 'cut_after_accept', reset: true }, 'uncertain', 1],
    ['an answer that never comes', { kind: 'hang_after_accept', hold_ms: HOLD_MS }, 'uncertain', 1],
    ['an answer that drips', { kind: 'drip_after_accept', interval_ms: CALL_MS }, 'uncertain', 1],
    ['an error after accepting', { kind: 'error_after_accept', status: 500 }, 'uncertain', 1],
    [
      'a rejection’s code in an error after accepting',
      { kind: 'error_after_accept', status: 500, code: 'customer_not_found' },
      'uncertain',
      1,
    ],
    ['a page of HTML', { kind: 'html_after_accept', status: 502 }, 'uncertain', 1],
    ['a page of HTML that says 200', { kind: 'html_after_accept', status: 200 }, 'uncertain', 1],
    ['a page of HTML that says 404', { kind: 'html_after_accept', status: 404 }, 'uncertain', 1],
    ['a truncated answer', { kind: 'truncated_after_accept' }, 'uncertain', 1],
    ['an oversized answer', { kind: 'huge_after_accept' }, 'uncertain', 1],
    ['a credit of another amount', { kind: 'other_amount', amount: 1 }, 'uncertain', 1],
    ['a credit in another currency', { kind: 'other_currency', currency: 'EUR' }, 'uncertain', 1],
    ['a credit without its memo', { kind: 'metadata_lost' }, 'uncertain', 1],
    ['a credit booked twice, which the answer does not show', { kind: 'booked_twice' }, 'applied', 2],
  ],
  start,
);
