import type { JsonObject, ReadHttp } from '@counterstamp/manifest-core';
import { READ_ONLY_KEY, startSandbox, WRITE_KEY } from '@counterstamp/sandbox';
import { CALL_MS, type ConnectorUnderTest, describeConnector } from '../../../../testing/connector-conformance.ts';
import { createSandboxPayments } from './sandbox-payments.ts';

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
      // Twice as much, so that a lookalike leaves enough.
      amount_minor: amount_minor * 2,
      currency,
    });
    return {
      operation: 'refund_order',
      order_id,
      amount_minor,
      currency,
      destination: `pay_${order_id}`,
      reason: 'damaged_item',
      evidence_refs: ['evd_1'],
      metadata: { note: 'emoji 😀', order_no: '9007199254740993' },
    };
  };
  const action = await actionOf(4200, 'USD');
  const list = async (path: string, name: string) => {
    const body = await admin('GET', `${path}?payment_id=pay_order_1`);
    return (body[name] as unknown[]).length;
  };
  return {
    connector: createSandboxPayments({
      url: sandbox.url,
      writeKey: WRITE_KEY,
      readKey: READ_ONLY_KEY,
      http,
      timeoutMs: 5_000,
    }),
    action,
    fields: ['amount_minor', 'currency', 'destination', 'reason'],
    actionOf,
    arm: async (fault) => void (await admin('PUT', '/admin/faults/pay_order_1', fault)),
    breakNextRead: async () =>
      void (await admin('PUT', '/admin/faults/pay_order_1', {
        kind: 'read_error',
        status: 503,
        endpoint: 'refund_list',
      })),
    requests: () => list('/admin/ledger', 'entries'),
    effects: () => list('/admin/effects', 'effects'),
    bookLookalike: async () =>
      void (await admin('POST', '/admin/refunds', { payment_id: 'pay_order_1', amount: 4200 })),
    secrets: [WRITE_KEY, READ_ONLY_KEY],
    close: () => sandbox.close(),
  };
}

describeConnector(
  'sandbox-payments',
  [
    ['a documented rejection', { kind: 'reject', code: 'charge_disputed', status: 402 }, 'rejected', 0],
    ['a refused credential', { kind: 'reject', code: 'unauthorized', status: 401 }, 'rejected', 0],
    ['a rate limit', { kind: 'reject', code: 'rate_limited', status: 429 }, 'retry_safe', 0],
    ['a rejection with a code nobody documented', { kind: 'reject', code: 'strange', status: 400 }, 'uncertain', 0],
    ['a refund made elsewhere', { kind: 'reject', code: 'charge_already_refunded', status: 400 }, 'uncertain', 0],
    ['a key in use', { kind: 'reject', code: 'idempotency_key_in_use', status: 409 }, 'uncertain', 0],
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
      { kind: 'error_after_accept', status: 500, code: 'charge_disputed' },
      'uncertain',
      1,
    ],
    ['a page of HTML', { kind: 'html_after_accept', status: 502 }, 'uncertain', 1],
    ['a page of HTML that says 201', { kind: 'html_after_accept', status: 201 }, 'uncertain', 1],
    ['a page of HTML that says 400', { kind: 'html_after_accept', status: 400 }, 'uncertain', 1],
    ['a truncated answer', { kind: 'truncated_after_accept' }, 'uncertain', 1],
    ['an oversized answer', { kind: 'huge_after_accept' }, 'uncertain', 1],
    ['an effect that is pending', { kind: 'pending_then_succeeded', after_ms: 60_000 }, 'applied', 1],
    [
      'an effect of another amount: the answer is clear, the look-up will tell',
      { kind: 'other_amount', amount: 1 },
      'applied',
      1,
    ],
  ],
  start,
);
