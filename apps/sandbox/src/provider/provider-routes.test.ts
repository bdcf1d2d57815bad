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

describe('access', () => {
  const READS = ['/payments/refunds?payment_id=pay_1', '/payments/refunds/re_none', '/payments/payments/pay_1'];

  test.each(READS)('GET %s needs a key, and the read-only one suffices', async (path) => {
    const without = await sandbox.call('GET', path);
    const wrong = await sandbox.read(path, 'sk_wrong');
    expect([without.status, without.json.code, wrong.status]).toEqual([401, 'unauthorized', 401]);
    expect((await sandbox.read(path)).status).not.toBe(401);
    expect((await sandbox.read(path, 'sk_sandbox')).status).not.toBe(401);
  });

  test('a HEAD counts as a read', async () => {
    const seen = await sandbox.call('HEAD', READS[0] ?? '', undefined, { authorization: 'Bearer rk_sandbox' });
    expect([seen.status, seen.text]).toEqual([200, '']);
  });
});

describe('a payment', () => {
  test('shows what is left, whether it is disputed, and a version', async () => {
    await sandbox.refund(REFUND);
    const seen = await sandbox.read('/payments/payments/pay_1');
    expect(seen.json).toEqual({
      payment_id: 'pay_1',
      captured_amount_minor: 5000,
      refunded_amount_minor: 1999,
      refundable_amount_minor: 3001,
      currency: 'USD',
      disputed: false,
      version: 2,
      updated_at: '2026-01-01T00:00:00.000Z',
    });
  });

  test('grows in version by an edited fact, not by latency', async () => {
    await sandbox.call('PATCH', '/admin/payments/pay_1', { latency_ms: 1 });
    await sandbox.call('PATCH', '/admin/payments/pay_1', { disputed: true });
    const { json } = await sandbox.read('/payments/payments/pay_1');
    expect([json.disputed, json.version]).toEqual([true, 2]);
  });

  test('that does not exist is a 404', async () => {
    const seen = await sandbox.read('/payments/payments/pay_none');
    expect([seen.status, seen.json.code]).toEqual([404, 'payment_not_found']);
  });

  test('answers later when it has latency', async () => {
    await sandbox.call('PATCH', '/admin/payments/pay_1', { latency_ms: 80 });
    const started = performance.now();
    await sandbox.read('/payments/payments/pay_1');
    await sandbox.refund(REFUND);
    expect(performance.now() - started).toBeGreaterThanOrEqual(158);
  });
});

describe('the list of refunds', () => {
  const ids = (json: Record<string, unknown>) => (json.refunds as { refund_id: string }[]).map((r) => r.refund_id);

  test('holds a refund as soon as it is answered, newest first', async () => {
    const first = await sandbox.refund({ ...REFUND, amount: 1 }, { key: 'a' });
    const second = await sandbox.refund({ ...REFUND, amount: 2 }, { key: 'b' });
    const { json } = await sandbox.read('/payments/refunds?payment_id=pay_1');
    expect(json).toEqual({ refunds: [second.json, first.json], has_more: false });
  });

  test('comes in pages of at most 100, and the cursor leads through all of them', async () => {
    for (let n = 0; n < 205; n += 1) await sandbox.refund({ ...REFUND, amount: 1 }, { key: `k${n}` });
    const seen: string[] = [];
    let after = '';
    for (let more = true; more; ) {
      const { json } = await sandbox.read(`/payments/refunds?payment_id=pay_1${after}`);
      const page = ids(json);
      expect(page.length).toBeLessThanOrEqual(100);
      seen.push(...page);
      after = `&after=${page.at(-1)}`;
      more = json.has_more === true;
    }
    expect(new Set(seen).size).toBe(205);
    expect(seen).toEqual(seen.toSorted((a, b) => b.localeCompare(a)));
  });

  test.each([
    ['without a payment', '', 400, 'invalid_request'],
    ['for an unknown payment', '?payment_id=pay_none', 404, 'payment_not_found'],
    ['after an unknown refund', '?payment_id=pay_1&after=re_none', 400, 'cursor_unknown'],
    ['with a limit of 0', '?payment_id=pay_1&limit=0', 400, 'invalid_request'],
    ['with a limit of 101', '?payment_id=pay_1&limit=101', 400, 'invalid_request'],
    ['with an unknown member', '?payment_id=pay_1&page=2', 400, 'invalid_request'],
  ])('%s is refused', async (_name, query, status, code) => {
    const seen = await sandbox.read(`/payments/refunds${query}`);
    expect([seen.status, seen.json.code]).toEqual([status, code]);
  });
});

describe('one refund', () => {
  test('can be read by its id', async () => {
    const made = await sandbox.refund(REFUND);
    const seen = await sandbox.read(`/payments/refunds/${String(made.json.refund_id)}`);
    expect(seen.json).toEqual(made.json);
  });

  test('that does not exist is a 404', async () => {
    const seen = await sandbox.read('/payments/refunds/re_none');
    expect([seen.status, seen.json.code]).toEqual([404, 'refund_not_found']);
  });
});
