import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { REFUND, type SandboxUnderTest, SEED, sandboxUnderTest } from '../testing/sandbox-under-test.ts';

let sandbox: SandboxUnderTest;
beforeAll(async () => {
  sandbox = await sandboxUnderTest();
});
afterAll(async () => sandbox.close());
beforeEach(async () => sandbox.reset());

describe('a case', () => {
  test('is a request, an order and a payment that agree', async () => {
    const seen = await sandbox.seed();
    expect(seen.status).toBe(201);
    expect(seen.json).toMatchObject({
      request: { request_id: 'req_1', order_id: 'ord_1', requested_amount_minor: 5000, status: 'open' },
      order: { order_id: 'ord_1', payment_id: 'pay_1', captured_amount_minor: 5000, status: 'delivered' },
      payment: { payment_id: 'pay_1', captured_amount_minor: 5000, currency: 'USD', disputed: false },
    });
  });

  test('names its payment after the order when none is given', async () => {
    const { payment_id: _left_out, ...seed } = SEED;
    const seen = await sandbox.call('POST', '/admin/cases', seed);
    expect(seen.json).toMatchObject({ payment: { payment_id: 'pay_ord_1' } });
  });

  test('seeded again with the same body changes nothing and arms no fault again', async () => {
    await sandbox.seed({ fault: { kind: 'reject', status: 429, code: 'busy' } });
    expect((await sandbox.refund(REFUND)).status).toBe(429);
    await sandbox.call('PATCH', '/admin/requests/tenant_a/req_1', { status: 'closed' });
    const again = await sandbox.seed({ fault: { kind: 'reject', status: 429, code: 'busy' } });
    expect(again.status).toBe(200);
    expect(again.json).toMatchObject({ request: { status: 'closed', version: 2 } });
    expect((await sandbox.refund(REFUND)).status).toBe(201);
  });

  test.each([
    ['the same request with other facts', { amount_minor: 4999 }],
    ['an order with other facts', { request_id: 'req_2', order_status: 'cancelled' as const }],
    ['a payment with other facts', { request_id: 'req_2', order_id: 'ord_2', payment_currency: 'EUR' }],
  ])('is refused for %s', async (_name, change) => {
    await sandbox.seed();
    const seen = await sandbox.seed(change);
    expect([seen.status, seen.json.code]).toEqual([409, 'case_conflict']);
  });

  test('may share order and payment with another request', async () => {
    await sandbox.seed();
    await sandbox.refund(REFUND);
    const seen = await sandbox.seed({ request_id: 'req_2' });
    expect(seen.status).toBe(201);
    expect(seen.json).toMatchObject({ order: { refunded_amount_minor: 1999 } });
  });

  test('carries its faults, dispute and latency with it', async () => {
    await sandbox.seed({ disputed: true, latency_ms: 1, fault: [{ kind: 'none' }, { kind: 'read_cut' }] });
    expect((await sandbox.refund(REFUND)).json.code).toBe('charge_disputed');
    expect((await sandbox.call('GET', '/admin/faults/pay_1')).json).toMatchObject({
      create: [{ kind: 'none', left: 0 }],
      read: [{ kind: 'read_cut', left: 1 }],
    });
  });

  test('takes strange ids as data', async () => {
    const odd = 'ü /:?#%2F "x"';
    await sandbox.seed({ tenant_id: odd, request_id: odd, order_id: odd });
    const e = encodeURIComponent(odd);
    expect((await sandbox.call('GET', `/shop/tenants/${e}/requests/${e}`)).json.request_id).toBe(odd);
    expect((await sandbox.call('GET', `/shop/orders/${e}`)).json.order_id).toBe(odd);
  });
});

describe('a refund by hand', () => {
  beforeEach(async () => {
    await sandbox.seed();
  });

  test('is of the whole rest when no amount is given, and not in the ledger', async () => {
    const seen = await sandbox.call('POST', '/admin/refunds', { payment_id: 'pay_1' });
    expect([seen.status, seen.json.amount, seen.json.made_by]).toEqual([201, 5000, 'hand']);
    expect(await sandbox.ledger()).toEqual([]);
    expect((await sandbox.refund(REFUND)).json.code).toBe('charge_already_refunded');
  });

  test('may be a part and carry a run id', async () => {
    await sandbox.call('POST', '/admin/refunds', { payment_id: 'pay_1', amount: 4000, metadata: { run_id: 'run_9' } });
    expect(await sandbox.effects()).toMatchObject([{ amount: 4000, run_id: 'run_9', request_seq: null }]);
    expect((await sandbox.refund(REFUND)).json.code).toBe('amount_exceeds_refundable');
  });

  test('cannot be more than is left', async () => {
    const seen = await sandbox.call('POST', '/admin/refunds', { payment_id: 'pay_1', amount: 5001 });
    expect([seen.status, seen.json.code]).toEqual([400, 'amount_exceeds_refundable']);
  });

  test('can be given another status later', async () => {
    const { json } = await sandbox.refund(REFUND);
    await sandbox.call('PATCH', `/admin/refunds/${String(json.refund_id)}`, { status: 'failed' });
    expect((await sandbox.read(`/payments/refunds/${String(json.refund_id)}`)).json.status).toBe('failed');
    expect((await sandbox.read('/payments/payments/pay_1')).json).toMatchObject({
      refundable_amount_minor: 5000,
      version: 3,
    });
  });
});

describe('a reset', () => {
  test('forgets cases, refunds, ledger, keys, faults, settings and clock', async () => {
    await sandbox.seed();
    await sandbox.refund(REFUND);
    await sandbox.arm({ kind: 'cut_after_accept' });
    await sandbox.call('PUT', '/admin/settings', { key_retention_ms: 0 });
    await sandbox.advance(1000);
    expect((await sandbox.reset()).status).toBe(204);
    expect(await sandbox.ledger()).toEqual([]);
    expect((await sandbox.call('GET', '/admin/effects')).json).toEqual({ effects: [] });
    expect((await sandbox.call('GET', '/shop/orders/ord_1')).status).toBe(404);
    expect((await sandbox.call('GET', '/admin/clock')).json).toEqual({ now: '2026-01-01T00:00:00.000Z' });
    await sandbox.seed();
    expect((await sandbox.refund(REFUND)).status).toBe(201);
    expect((await sandbox.refund(REFUND)).headers.get('idempotent-replayed')).toBe('true');
  });
});

describe('bad input', () => {
  const BODIES = [
    ['POST', '/admin/cases'],
    ['PATCH', '/admin/requests/tenant_a/req_1'],
    ['PATCH', '/admin/orders/ord_1'],
    ['PATCH', '/admin/payments/pay_1'],
    ['PUT', '/admin/faults/pay_1'],
    ['PUT', '/admin/faults-default'],
    ['PUT', '/admin/settings'],
    ['POST', '/admin/clock'],
    ['POST', '/admin/refunds'],
    ['PATCH', '/admin/refunds/re_1'],
  ] as const;

  test.each(BODIES)('%s %s answers bad JSON and unknown members with a 400', async (method, path) => {
    const bad = await sandbox.call(method, path, '{"a":');
    expect([bad.status, bad.json.code]).toEqual([400, 'invalid_json']);
    const unknown = await sandbox.call(method, path, { surprise: 1 });
    expect([unknown.status, unknown.json.code]).toEqual([400, 'invalid_request']);
  });

  test.each([
    ['PATCH', '/admin/requests/tenant_a/req_none', { status: 'open' }, 'request_not_found'],
    ['PATCH', '/admin/orders/ord_none', { status: 'paid' }, 'order_not_found'],
    ['PATCH', '/admin/payments/pay_none', { disputed: true }, 'payment_not_found'],
    ['POST', '/admin/refunds', { payment_id: 'pay_none' }, 'payment_not_found'],
    ['PATCH', '/admin/refunds/re_none', { status: 'failed' }, 'refund_not_found'],
  ])('%s %s answers what does not exist with a 404', async (method, path, body, code) => {
    const seen = await sandbox.call(method, path, body);
    expect([seen.status, seen.json.code]).toEqual([404, code]);
  });

  test.each(['/admin/ledger?after_seq=x', '/admin/effects?run=1'])('GET %s is a 400', async (path) => {
    expect((await sandbox.call('GET', path)).json.code).toBe('invalid_request');
  });

  test('PUT faults with an unknown query member is a 400', async () => {
    expect((await sandbox.call('PUT', '/admin/faults/pay_1?cycle=yes', [])).status).toBe(400);
  });

  test('an admin body above 1 MB is a 413', async () => {
    expect((await sandbox.call('POST', '/admin/cases', ' '.repeat(1_100_000))).status).toBe(413);
  });
});
