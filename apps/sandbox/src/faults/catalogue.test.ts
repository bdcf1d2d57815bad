import { request } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
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

const HOUR = 3600 * 1000;

/** What came over the wire for one refund request, byte for byte, without any client's help. */
async function wire(key = 'key_1', timeoutMs = 2000): Promise<{ bytes: string; error: string | null }> {
  return new Promise((resolve) => {
    const sent = request({
      agent: false,
      port: sandbox.port,
      host: '127.0.0.1',
      method: 'POST',
      path: '/payments/refunds',
      headers: { authorization: 'Bearer sk_sandbox', 'idempotency-key': key },
      signal: AbortSignal.timeout(timeoutMs),
    });
    let raw = '';
    sent.on('socket', (socket) => socket.on('data', (chunk: Buffer) => (raw += chunk.toString('latin1'))));
    sent.on('error', (error: NodeJS.ErrnoException) => resolve({ bytes: raw, error: error.code ?? error.name }));
    sent.on('response', (response) => {
      response.resume();
      response.on('error', (error: NodeJS.ErrnoException) => resolve({ bytes: raw, error: error.code ?? error.name }));
      response.on('end', () => resolve({ bytes: raw, error: null }));
    });
    sent.end(JSON.stringify(REFUND));
  });
}

async function statusOf(refundId: unknown): Promise<unknown> {
  return (await sandbox.read(`/payments/refunds/${String(refundId)}`)).json.status;
}

describe('without an effect', () => {
  test('reject answers the given code and status', async () => {
    await sandbox.arm({ kind: 'reject', code: 'rate_limit', status: 429, retry_after_s: 3 });
    const seen = await sandbox.refund(REFUND);
    expect([seen.status, seen.json.code, seen.headers.get('retry-after')]).toEqual([429, 'rate_limit', '3']);
    expect(await sandbox.effects()).toEqual([]);
    expect(await sandbox.ledger()).toMatchObject([
      { fault: 'reject', outcome: 'refused', effect_refund_id: null, http_status: 429, code: 'rate_limit' },
    ]);
  });

  test.each([401, 403, 409, 422, 429])(
    'reject with %i comes before the key, so the next try executes',
    async (status) => {
      await sandbox.arm({ kind: 'reject', code: 'some_code', status });
      expect((await sandbox.refund(REFUND)).status).toBe(status);
      expect((await sandbox.refund(REFUND)).status).toBe(201);
    },
  );

  test.each([400, 402, 500, 503])('reject with %i is stored under the key and replayed', async (status) => {
    await sandbox.arm({ kind: 'reject', code: 'some_code', status });
    await sandbox.refund(REFUND);
    const again = await sandbox.refund(REFUND);
    expect([again.status, again.headers.get('idempotent-replayed')]).toEqual([status, 'true']);
    expect(await sandbox.effects()).toEqual([]);
  });

  test('reject with store: false is not stored', async () => {
    await sandbox.arm({ kind: 'reject', code: 'unavailable', status: 503, store: false });
    await sandbox.refund(REFUND);
    expect((await sandbox.refund(REFUND)).status).toBe(201);
  });

  test('redirect points elsewhere', async () => {
    await sandbox.arm({ kind: 'redirect', location: 'http://127.0.0.1:9/elsewhere' });
    const seen = await sandbox.refund(REFUND);
    expect([seen.status, seen.headers.get('location')]).toEqual([307, 'http://127.0.0.1:9/elsewhere']);
    expect(await sandbox.effects()).toEqual([]);
  });

  test.each([false, true])('cut_before_accept closes without a byte (reset: %s)', async (reset) => {
    await sandbox.arm({ kind: 'cut_before_accept', reset });
    expect(await wire()).toEqual({ bytes: '', error: 'ECONNRESET' });
    expect(await sandbox.effects()).toEqual([]);
    expect(await sandbox.ledger()).toMatchObject([
      { fault: 'cut_before_accept', outcome: 'cut', effect_refund_id: null, aborted: false, http_status: null },
    ]);
    expect((await sandbox.refund(REFUND)).headers.get('idempotent-replayed')).toBeNull();
  });
});

describe('with an effect and a bad answer', () => {
  test.each([false, true])('cut_after_accept books, then closes without a byte (reset: %s)', async (reset) => {
    await sandbox.arm({ kind: 'cut_after_accept', reset });
    expect(await wire()).toEqual({ bytes: '', error: 'ECONNRESET' });
    expect(await sandbox.effects()).toHaveLength(1);
    expect(await sandbox.ledger()).toMatchObject([
      { fault: 'cut_after_accept', outcome: 'cut', effect_refund_id: 're_00000001', aborted: false },
    ]);
    const again = await sandbox.refund(REFUND);
    expect([again.status, again.headers.get('idempotent-replayed')]).toEqual([201, 'true']);
    expect(await sandbox.effects()).toHaveLength(1);
  });

  test('hang_after_accept books at once, answers after the hold, and keeps the key in use until then', async () => {
    await sandbox.arm({ kind: 'hang_after_accept', hold_ms: 800 });
    const started = performance.now();
    const slow = sandbox.refund(REFUND);
    await sandbox.ledgerWhen(([entry]) => entry?.outcome === 'accepted');
    expect(await sandbox.effects()).toHaveLength(1);
    expect((await sandbox.refund(REFUND)).json.code).toBe('idempotency_key_in_use');
    expect(performance.now() - started).toBeLessThan(790);
    expect((await slow).status).toBe(201);
    expect(performance.now() - started).toBeGreaterThanOrEqual(798);
    expect((await sandbox.refund(REFUND)).headers.get('idempotent-replayed')).toBe('true');
  });

  test('hang_after_accept shows a client that gave up as aborted', async () => {
    await sandbox.arm({ kind: 'hang_after_accept', hold_ms: 5000 });
    await expect(sandbox.refund(REFUND, { signal: AbortSignal.timeout(50) })).rejects.toThrow('timeout');
    const [entry] = await sandbox.ledgerWhen(([first]) => first?.aborted === true);
    expect(entry).toMatchObject({ outcome: 'accepted', effect_refund_id: 're_00000001' });
  });

  test('accept_late books only after its delay, also for a client that gave up', async () => {
    await sandbox.arm({ kind: 'accept_late', delay_ms: 500 });
    await expect(sandbox.refund(REFUND, { signal: AbortSignal.timeout(30) })).rejects.toThrow('timeout');
    expect(await sandbox.effects()).toEqual([]);
    const [entry] = await sandbox.ledgerWhen(([first]) => first?.outcome === 'accepted');
    expect(entry).toMatchObject({ aborted: true, fault: 'accept_late' });
    expect(await sandbox.effects()).toHaveLength(1);
  });

  test('error_after_accept books, and the key replays the error', async () => {
    await sandbox.arm({ kind: 'error_after_accept' });
    const first = await sandbox.refund(REFUND);
    const again = await sandbox.refund(REFUND);
    expect([first.status, first.json.code]).toEqual([500, 'internal_error']);
    expect([again.status, again.headers.get('idempotent-replayed')]).toEqual([500, 'true']);
    expect(await sandbox.effects()).toHaveLength(1);
    expect((await sandbox.ledger())[0]).toMatchObject({ outcome: 'accepted', http_status: 500 });
  });

  test('error_after_accept with store: false replays the true answer', async () => {
    await sandbox.arm({ kind: 'error_after_accept', status: 503, store: false });
    expect((await sandbox.refund(REFUND)).status).toBe(503);
    expect((await sandbox.refund(REFUND)).status).toBe(201);
    expect(await sandbox.effects()).toHaveLength(1);
  });

  test('html_after_accept answers with a page', async () => {
    await sandbox.arm({ kind: 'html_after_accept' });
    const seen = await sandbox.refund(REFUND);
    expect([seen.status, seen.headers.get('content-type')]).toEqual([502, 'text/html; charset=utf-8']);
    expect(seen.text).toMatch(/^<!doctype html>/);
    expect(await sandbox.effects()).toHaveLength(1);
  });

  test('truncated_after_accept promises more bytes than it sends', async () => {
    await sandbox.arm({ kind: 'truncated_after_accept' });
    const { bytes, error } = await wire();
    const [head = '', body = ''] = bytes.split('\r\n\r\n');
    const promised = Number(/content-length: (\d+)/i.exec(head)?.[1]);
    expect(head).toMatch(/^HTTP\/1.1 201/);
    expect(body).toHaveLength(Math.floor(promised / 2));
    expect(error).toBe('ECONNRESET');
    expect(await sandbox.effects()).toHaveLength(1);
    expect(await sandbox.ledger()).toMatchObject([{ outcome: 'accepted', aborted: false }]);
  });

  test('huge_after_accept answers with 10 MB', async () => {
    await sandbox.arm({ kind: 'huge_after_accept' });
    const seen = await sandbox.refund(REFUND);
    expect(seen.text.length).toBeGreaterThan(10_000_000);
    expect(await sandbox.effects()).toHaveLength(1);
  });

  test('drip_after_accept sends byte by byte, whole in the end', async () => {
    await sandbox.arm({ kind: 'drip_after_accept', interval_ms: 1 });
    const started = performance.now();
    const seen = await sandbox.refund(REFUND);
    expect(seen.json.refund_id).toBe('re_00000001');
    expect(performance.now() - started).toBeGreaterThan(seen.text.length * 0.9);
    expect(await sandbox.effects()).toHaveLength(1);
    expect(await sandbox.ledger()).toMatchObject([{ aborted: false }]);
  });

  test('drip_after_accept outlives a short deadline and stops when the client leaves', async () => {
    await sandbox.arm({ kind: 'drip_after_accept', interval_ms: 20 });
    await expect(sandbox.refund(REFUND, { signal: AbortSignal.timeout(60) })).rejects.toThrow('timeout');
    const [entry] = await sandbox.ledgerWhen(([first]) => first?.aborted === true);
    expect(entry).toMatchObject({ outcome: 'accepted' });
  });

  test('an after-accept fault leaves a refusal by the books plain', async () => {
    await sandbox.arm({ kind: 'cut_after_accept' });
    expect((await sandbox.refund({ ...REFUND, amount: 5001 })).json.code).toBe('amount_exceeds_refundable');
  });
});

describe('with another effect than asked for', () => {
  test('other_amount books that amount', async () => {
    await sandbox.arm({ kind: 'other_amount', amount: 1998 });
    expect((await sandbox.refund(REFUND)).json.amount).toBe(1998);
    expect(await sandbox.effects()).toMatchObject([{ amount: 1998 }]);
  });

  test('other_currency books that currency', async () => {
    await sandbox.arm({ kind: 'other_currency', currency: 'EUR' });
    await sandbox.refund(REFUND);
    expect(await sandbox.effects()).toMatchObject([{ currency: 'EUR' }]);
  });

  test('booked_twice makes two refunds of one request', async () => {
    await sandbox.arm({ kind: 'booked_twice' });
    await sandbox.refund(REFUND);
    expect(await sandbox.effects()).toMatchObject([{ request_seq: 1 }, { request_seq: 1 }]);
  });

  test('metadata_lost leaves a lookalike', async () => {
    await sandbox.arm({ kind: 'metadata_lost' });
    await sandbox.refund(REFUND);
    expect(await sandbox.effects()).toMatchObject([{ amount: 1999, metadata: {}, run_id: null }]);
    expect(await sandbox.ledger()).toMatchObject([{ run_id: 'run_1' }]);
  });

  test('key_forgotten executes a known key again', async () => {
    await sandbox.refund(REFUND);
    await sandbox.arm({ kind: 'key_forgotten' });
    expect((await sandbox.refund(REFUND)).headers.get('idempotent-replayed')).toBeNull();
    expect(await sandbox.effects()).toHaveLength(2);
  });
});

describe('seen later', () => {
  test('hidden_from_reads is answered and booked, but shown by no read before its time', async () => {
    await sandbox.arm({ kind: 'hidden_from_reads', hide_ms: 1000 });
    const made = await sandbox.refund(REFUND);
    const look = async () => ({
      list: (await sandbox.read('/payments/refunds?payment_id=pay_1')).json.refunds,
      one: (await sandbox.read(`/payments/refunds/${String(made.json.refund_id)}`)).status,
      payment: (await sandbox.read('/payments/payments/pay_1')).json.refunded_amount_minor,
      order: (await sandbox.call('GET', '/shop/orders/ord_1')).json.version,
    });
    await sandbox.advance(999);
    expect(await look()).toEqual({ list: [], one: 404, payment: 0, order: 1 });
    expect(await sandbox.effects()).toHaveLength(1);
    const rest = await sandbox.refund({ ...REFUND, amount: 3002 }, { key: 'b' });
    expect(rest.json.code).toBe('amount_exceeds_refundable');
    await sandbox.advance(1);
    expect(await look()).toEqual({ list: [made.json], one: 200, payment: 1999, order: 2 });
  });

  test('pending_then_succeeded turns at its time', async () => {
    await sandbox.arm({ kind: 'pending_then_succeeded', after_ms: 2 * HOUR });
    const { json } = await sandbox.refund(REFUND);
    expect(json.status).toBe('pending');
    await sandbox.advance(2 * HOUR - 1);
    expect(await statusOf(json.refund_id)).toBe('pending');
    await sandbox.advance(1);
    expect(await statusOf(json.refund_id)).toBe('succeeded');
  });

  test('pending_then_failed gives the money back', async () => {
    await sandbox.arm({ kind: 'pending_then_failed', after_ms: HOUR });
    const { json } = await sandbox.refund(REFUND);
    await sandbox.advance(HOUR);
    expect(await statusOf(json.refund_id)).toBe('failed');
    expect((await sandbox.read('/payments/payments/pay_1')).json).toMatchObject({ refundable_amount_minor: 5000 });
  });

  test('succeeded_then_failed fails days after success', async () => {
    await sandbox.arm({ kind: 'succeeded_then_failed', after_ms: 72 * HOUR });
    const { json } = await sandbox.refund(REFUND);
    expect(json.status).toBe('succeeded');
    await sandbox.advance(72 * HOUR);
    expect(await statusOf(json.refund_id)).toBe('failed');
  });

  test.each(['requires_action', 'canceled', 'a_word_nobody_knows'])('other_status stays %s', async (status) => {
    await sandbox.arm({ kind: 'other_status', status });
    expect((await sandbox.refund(REFUND)).json.status).toBe(status);
  });
});

describe('reads', () => {
  const LIST = '/payments/refunds?payment_id=pay_1';

  test('read_error answers the given status as often as told, and the write is not met', async () => {
    await sandbox.arm({ on: 'read', kind: 'read_error', status: 503, times: 2 });
    expect((await sandbox.refund(REFUND)).status).toBe(201);
    expect((await sandbox.read(LIST)).status).toBe(503);
    expect((await sandbox.call('GET', '/shop/orders/ord_1')).status).toBe(503);
    expect((await sandbox.read(LIST)).status).toBe(200);
  });

  test.each([
    ['shop_request', '/shop/tenants/tenant_a/requests/req_1'],
    ['shop_order', '/shop/orders/ord_1'],
    ['payment', '/payments/payments/pay_1'],
    ['refund', '/payments/refunds/re_00000001'],
    ['refund_list', LIST],
  ] as const)('a fault for %s meets that endpoint only', async (endpoint, path) => {
    await sandbox.refund(REFUND);
    await sandbox.arm({ on: 'read', kind: 'read_error', status: 500, endpoint });
    const others = [LIST, '/payments/payments/pay_1'].filter((other) => other !== path);
    for (const other of others) expect((await sandbox.read(other)).status).toBe(200);
    expect((await sandbox.read(path)).status).toBe(500);
    expect((await sandbox.read(path)).status).toBe(200);
  });

  test('read_cut closes without a byte', async () => {
    await sandbox.arm({ kind: 'read_cut' });
    await expect(sandbox.read(LIST)).rejects.toThrow('fetch failed');
    expect((await sandbox.read(LIST)).status).toBe(200);
  });

  test('read_hang answers after its hold', async () => {
    await sandbox.arm({ kind: 'read_hang', hold_ms: 100 });
    const started = performance.now();
    expect((await sandbox.read(LIST)).status).toBe(200);
    expect(performance.now() - started).toBeGreaterThanOrEqual(98);
  });

  test('read_html answers with a page, read_none with the truth, read_truncated with half of it', async () => {
    await sandbox.arm([{ kind: 'read_html' }, { kind: 'read_none' }, { kind: 'read_truncated' }]);
    expect((await sandbox.read(LIST)).text).toMatch(/^<!doctype/);
    expect((await sandbox.read(LIST)).status).toBe(200);
    await expect(sandbox.read(LIST)).rejects.toThrow('terminated');
  });
});

describe('the menu', () => {
  const codes = async (count: number) => {
    const seen: unknown[] = [];
    for (let n = 0; n < count; n += 1) {
      const { json, status } = await sandbox.refund({ ...REFUND, amount: 1 }, { key: `k${n}` });
      seen.push(json.code ?? status);
    }
    return seen;
  };
  const reject = (code: string) => ({ kind: 'reject', status: 429, code }) as const;

  test('consumes a list in order, each as often as it says', async () => {
    await sandbox.arm([{ ...reject('a'), times: 2 }, { kind: 'none' }, reject('b')]);
    expect(await codes(5)).toEqual(['a', 'a', 201, 'b', 201]);
  });

  test('shows what is left', async () => {
    const armed = await sandbox.arm([
      { ...reject('a'), times: 2 },
      { kind: 'read_cut', times: 'always' },
    ]);
    expect(armed.json).toMatchObject({ create: [{ left: 2 }], read: [{ left: 'always' }] });
    await codes(1);
    expect((await sandbox.call('GET', '/admin/faults/pay_1')).json).toMatchObject({ create: [{ left: 1 }] });
  });

  test('meets every request with times: always until it is cleared', async () => {
    await sandbox.arm({ ...reject('a'), times: 'always' });
    expect(await codes(3)).toEqual(['a', 'a', 'a']);
    expect((await sandbox.call('DELETE', '/admin/faults/pay_1')).status).toBe(204);
    expect(await codes(1)).toEqual([201]);
  });

  test('makes a storm over all payments, in a cycle, and a payment’s own faults come first', async () => {
    await sandbox.call('PUT', '/admin/faults-default?cycle=true', [reject('storm'), { kind: 'none' }]);
    await sandbox.arm(reject('own'));
    expect(await codes(5)).toEqual(['own', 'storm', 201, 'storm', 201]);
    expect((await sandbox.call('DELETE', '/admin/faults-default')).status).toBe(204);
    expect((await sandbox.call('GET', '/admin/faults-default')).json).toEqual({
      create: [],
      read: [],
      webhook: [],
    });
  });

  test('is not consumed by a request that fails its validation', async () => {
    await sandbox.arm(reject('a'));
    await sandbox.refund({ ...REFUND, amount: 0 });
    expect(await codes(1)).toEqual(['a']);
  });

  test.each([
    ['an unknown kind', { kind: 'meteor' }],
    ['a missing parameter', { kind: 'hang_after_accept' }],
    ['an unknown parameter', { kind: 'cut_after_accept', hold_ms: 1 }],
    ['times 0', { kind: 'none', times: 0 }],
    ['a write fault on reads', { on: 'read', kind: 'cut_after_accept' }],
  ])('refuses %s', async (_name, fault) => {
    const seen = await sandbox.call('PUT', '/admin/faults/pay_1', fault);
    expect([seen.status, seen.json.code]).toEqual([400, 'invalid_request']);
  });

  test('lets no waiting request act after a reset', async () => {
    await sandbox.arm({ kind: 'accept_late', delay_ms: 60_000 });
    const waiting = sandbox.refund(REFUND);
    await sandbox.ledgerWhen(([entry]) => entry?.fault === 'accept_late');
    await Promise.all([expect(waiting).rejects.toThrow('fetch failed'), sandbox.reset()]);
    await sleep(20);
    await sandbox.seed();
    expect(await sandbox.effects()).toEqual([]);
  });
});
