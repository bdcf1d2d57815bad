import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { REFUND, type SandboxUnderTest, sandboxUnderTest } from '../testing/sandbox-under-test.ts';

let sandbox: SandboxUnderTest;
beforeAll(async () => {
  sandbox = await sandboxUnderTest();
});
afterAll(async () => sandbox.close());
beforeEach(async () => {
  await sandbox.reset();
  await sandbox.seed();
});

const REQUEST = '/shop/tenants/tenant_a/requests/req_1';
const ORDER = '/shop/orders/ord_1';

describe('a request', () => {
  test('is shown to its own tenant', async () => {
    const seen = await sandbox.call('GET', REQUEST);
    expect(seen.status).toBe(200);
    expect(seen.json).toEqual({
      request_id: 'req_1',
      tenant_id: 'tenant_a',
      order_id: 'ord_1',
      status: 'open',
      requested_amount_minor: 5000,
      currency: 'USD',
      reason: 'item_not_received',
      version: 1,
      updated_at: '2026-01-01T00:00:00.000Z',
    });
  });

  test('of another tenant is as good as none', async () => {
    const foreign = await sandbox.call('GET', '/shop/tenants/tenant_b/requests/req_1');
    const none = await sandbox.call('GET', '/shop/tenants/tenant_b/requests/req_none');
    expect([foreign.status, foreign.json.code]).toEqual([404, 'request_not_found']);
    expect(foreign.text).toBe(none.text);
  });

  test('with the same id may exist in two tenants', async () => {
    await sandbox.seed({ tenant_id: 'tenant_b', order_id: 'ord_2', payment_id: 'pay_2', amount_minor: 7 });
    const a = await sandbox.call('GET', REQUEST);
    const b = await sandbox.call('GET', '/shop/tenants/tenant_b/requests/req_1');
    expect([a.json.requested_amount_minor, b.json.requested_amount_minor]).toEqual([5000, 7]);
  });

  test('grows in version when it is edited', async () => {
    await sandbox.advance(1000);
    await sandbox.call('PATCH', '/admin/requests/tenant_a/req_1', { status: 'closed' });
    const { json } = await sandbox.call('GET', REQUEST);
    expect([json.status, json.version, json.updated_at]).toEqual(['closed', 2, '2026-01-01T00:00:01.000Z']);
  });
});

describe('an order', () => {
  test('shows what is left to refund', async () => {
    const seen = await sandbox.call('GET', ORDER);
    expect(seen.status).toBe(200);
    expect(seen.json).toEqual({
      order_id: 'ord_1',
      tenant_id: 'tenant_a',
      customer_id: 'cus_ord_1',
      payment_id: 'pay_1',
      status: 'delivered',
      captured_amount_minor: 5000,
      refunded_amount_minor: 0,
      refundable_amount_minor: 5000,
      currency: 'USD',
      version: 1,
      updated_at: '2026-01-01T00:00:00.000Z',
    });
  });

  test('that nobody placed is a 404', async () => {
    const seen = await sandbox.call('GET', '/shop/orders/ord_none');
    expect([seen.status, seen.json.code]).toEqual([404, 'order_not_found']);
  });

  test('follows the refunds of its payment in amount, version and time', async () => {
    await sandbox.advance(1000);
    await sandbox.refund(REFUND);
    const { json } = await sandbox.call('GET', ORDER);
    expect(json).toMatchObject({
      refunded_amount_minor: 1999,
      refundable_amount_minor: 3001,
      version: 2,
      updated_at: '2026-01-01T00:00:01.000Z',
    });
  });

  test('gets a refund back that fails later, as a further version', async () => {
    await sandbox.arm({ kind: 'pending_then_failed', after_ms: 1000 });
    await sandbox.refund(REFUND);
    const pending = await sandbox.call('GET', ORDER);
    await sandbox.advance(1000);
    const failed = await sandbox.call('GET', ORDER);
    expect([pending.json.refunded_amount_minor, pending.json.version]).toEqual([1999, 2]);
    expect([failed.json.refunded_amount_minor, failed.json.version]).toEqual([0, 3]);
  });

  test('never falls back in version when it moves to another payment', async () => {
    await sandbox.refund(REFUND);
    await sandbox.seed({ request_id: 'req_2', order_id: 'ord_2', payment_id: 'pay_2' });
    await sandbox.call('PATCH', '/admin/orders/ord_1', { payment_id: 'pay_2' });
    const { json } = await sandbox.call('GET', ORDER);
    expect([json.payment_id, json.version, json.refunded_amount_minor]).toEqual(['pay_2', 3, 0]);
  });

  test('may belong to another tenant and contradict the provider', async () => {
    await sandbox.seed({
      request_id: 'req_2',
      order_id: 'ord_2',
      payment_id: 'pay_2',
      order_tenant_id: 'tenant_b',
      payment_currency: 'EUR',
      payment_captured_amount_minor: 4000,
    });
    const order = await sandbox.call('GET', '/shop/orders/ord_2');
    const payment = await sandbox.read('/payments/payments/pay_2');
    expect(order.json).toMatchObject({ tenant_id: 'tenant_b', currency: 'USD', captured_amount_minor: 5000 });
    expect(payment.json).toMatchObject({ currency: 'EUR', captured_amount_minor: 4000 });
  });
});
