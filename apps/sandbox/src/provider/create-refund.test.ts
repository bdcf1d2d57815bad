import { createHash } from 'node:crypto';
import { request } from 'node:http';
import { connect } from 'node:net';
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

const sha256 = (bytes: string | Buffer) => createHash('sha256').update(bytes).digest('hex');

describe('a refund', () => {
  test('is made once and answered with all its fields', async () => {
    const seen = await sandbox.refund(REFUND);
    expect(seen.status).toBe(201);
    expect(seen.json).toEqual({
      refund_id: 're_00000001',
      ...REFUND,
      status: 'succeeded',
      created_at: '2026-01-01T00:00:00.000Z',
    });
    expect(await sandbox.effects()).toEqual([
      { ...seen.json, made_by: 'api', idempotency_key: 'key_1', request_seq: 1, run_id: 'run_1' },
    ]);
  });

  test('without an amount is of the whole rest, as at a real provider, and the ledger shows it', async () => {
    await sandbox.refund({ ...REFUND, amount: 1000 }, { key: 'a' });
    const { amount: _left_out, ...rest } = REFUND;
    const seen = await sandbox.refund(rest, { key: 'b' });
    expect([seen.status, seen.json.amount]).toEqual([201, 4000]);
    const [, entry] = await sandbox.ledger();
    expect(entry).toMatchObject({ outcome: 'accepted', effect_refund_id: seen.json.refund_id });
    expect(entry?.body).not.toContain('amount');
  });

  test('keeps every metadata member, whatever its name', async () => {
    const metadata = '{"constructor":"x","__proto__":"y","toString":"z","deep":{"n":[1,null]}}';
    const body = `{"payment_id":"pay_1","amount":1,"currency":"USD","reason":"r","metadata":${metadata}}`;
    const seen = await sandbox.refund(body);
    expect(seen.text).toContain(`"metadata":${metadata}`);
  });

  test('without metadata has none', async () => {
    const { metadata: _left_out, ...rest } = REFUND;
    expect((await sandbox.refund(rest)).json.metadata).toEqual({});
  });

  test('of the exact rest leaves nothing', async () => {
    expect((await sandbox.refund({ ...REFUND, amount: 5000 })).status).toBe(201);
    const again = await sandbox.refund({ ...REFUND, amount: 1 }, { key: 'b' });
    expect([again.status, again.json.code]).toEqual([400, 'charge_already_refunded']);
  });

  test('cannot be made twice from one rest by parallel requests', async () => {
    await sandbox.call('PATCH', '/admin/payments/pay_1', { latency_ms: 5 });
    const seen = await Promise.all(
      Array.from({ length: 20 }, async (_, n) => sandbox.refund({ ...REFUND, amount: 3000 }, { key: `k${n}` })),
    );
    expect(seen.filter(({ status }) => status === 201)).toHaveLength(1);
    expect(await sandbox.effects()).toHaveLength(1);
  });
});

describe('refused by the books', () => {
  test.each([
    ['more than is left', { ...REFUND, amount: 5001 }, 400, 'amount_exceeds_refundable'],
    ['another currency', { ...REFUND, currency: 'EUR' }, 400, 'currency_mismatch'],
    ['an unknown payment', { ...REFUND, payment_id: 'pay_none' }, 404, 'payment_not_found'],
  ])('%s', async (_name, body, status, code) => {
    const seen = await sandbox.refund(body);
    expect([seen.status, seen.json.code]).toEqual([status, code]);
    expect(seen.headers.get('content-type')).toBe('application/problem+json');
    expect(seen.json).toMatchObject({ type: `urn:counterstamp:sandbox:${code}`, status });
    expect(await sandbox.ledger()).toMatchObject([
      { payment_id: body.payment_id, outcome: 'refused', effect_refund_id: null, http_status: status, code },
    ]);
    expect(await sandbox.effects()).toEqual([]);
  });

  test('a disputed payment', async () => {
    await sandbox.call('PATCH', '/admin/payments/pay_1', { disputed: true });
    const seen = await sandbox.refund(REFUND);
    expect([seen.status, seen.json.code]).toEqual([402, 'charge_disputed']);
    expect(await sandbox.effects()).toEqual([]);
  });
});

describe('refused before the books', () => {
  const json = (change: Record<string, unknown>) => JSON.stringify({ ...REFUND, ...change });

  test.each([
    ['no JSON', '{"payment_id":', 'invalid_json'],
    ['an empty body', '', 'invalid_json'],
    ['a JSON array', '[]', 'invalid_request'],
    ['a JSON null', 'null', 'invalid_request'],
    ['amount 0', json({ amount: 0 }), 'invalid_request'],
    ['a negative amount', json({ amount: -1999 }), 'invalid_request'],
    ['amount null', json({ amount: null }), 'invalid_request'],
    ['amount as text', json({ amount: '1999' }), 'invalid_request'],
    ['a fraction', json({ amount: 19.99 }), 'invalid_request'],
    ['an amount above 2^53', json({ amount: 2 ** 53 }), 'invalid_request'],
    ['a lower-case currency', json({ currency: 'usd' }), 'invalid_request'],
    ['no reason', json({ reason: undefined }), 'invalid_request'],
    ['an unknown member', json({ amount_minor: 5 }), 'invalid_request'],
    ['a member named __proto__', `{"__proto__":1,${json({}).slice(1)}`, 'invalid_request'],
    ['metadata as a list', json({ metadata: [] }), 'invalid_request'],
    ['metadata above 8 KB', json({ metadata: { note: 'x'.repeat(8200) } }), 'invalid_request'],
  ])('%s', async (_name, body, code) => {
    const seen = await sandbox.refund(body);
    expect([seen.status, seen.json.code]).toEqual([400, code]);
    expect(await sandbox.ledger()).toMatchObject([
      { outcome: 'refused', http_status: 400, code, body, body_sha256: sha256(body), effect_refund_id: null },
    ]);
    expect(await sandbox.effects()).toEqual([]);
  });

  test('bytes that are no UTF-8, whose hash is over the raw bytes', async () => {
    const bytes = Buffer.concat([Buffer.from('{"payment_id":"'), Buffer.of(0xff, 0xfe), Buffer.from('"}')]);
    const response = await fetch(`${sandbox.url}/payments/refunds`, {
      method: 'POST',
      headers: { authorization: 'Bearer sk_sandbox', 'idempotency-key': 'k' },
      body: bytes,
    });
    expect(response.status).toBe(400);
    expect(await sandbox.ledger()).toMatchObject([{ code: 'invalid_json', body_sha256: sha256(bytes) }]);
  });

  test.each([
    ['no access key', { bearer: null }, 401, 'unauthorized'],
    ['a wrong access key', { bearer: 'sk_other' }, 401, 'unauthorized'],
    ['the read-only access key', { bearer: 'rk_sandbox' }, 403, 'permission_denied'],
    ['no idempotency key', { key: null }, 400, 'idempotency_key_missing'],
    ['an empty idempotency key', { key: '' }, 400, 'idempotency_key_missing'],
    ['an idempotency key of 256 characters', { key: 'k'.repeat(256) }, 400, 'idempotency_key_too_long'],
  ])('%s', async (_name, options, status, code) => {
    const seen = await sandbox.refund(REFUND, options);
    expect([seen.status, seen.json.code]).toEqual([status, code]);
    expect(await sandbox.ledger('pay_1')).toMatchObject([{ outcome: 'refused', http_status: status, run_id: 'run_1' }]);
    expect(await sandbox.effects()).toEqual([]);
  });

  test('an idempotency key of 255 characters is accepted', async () => {
    expect((await sandbox.refund(REFUND, { key: 'k'.repeat(255) })).status).toBe(201);
  });

  test.each([65_537, 5_000_000])('a body of %i bytes', async (length) => {
    const seen = await sandbox.refund(' '.repeat(length));
    expect([seen.status, seen.json.code]).toEqual([413, 'body_too_large']);
    expect(await sandbox.ledger()).toMatchObject([{ outcome: 'refused', body: null, body_sha256: null }]);
  });

  test('a body of exactly 64 KB is read', async () => {
    const body = JSON.stringify(REFUND).padEnd(65_536);
    expect((await sandbox.refund(body)).status).toBe(201);
  });
});

describe('an idempotency key', () => {
  test('replays the stored answer byte for byte, whatever happened since', async () => {
    await sandbox.arm({ kind: 'pending_then_succeeded', after_ms: 1000 });
    const first = await sandbox.refund(REFUND);
    await sandbox.advance(2000);
    const again = await sandbox.refund(REFUND);
    expect(again.status).toBe(201);
    expect(again.text).toBe(first.text);
    expect([first.headers.get('idempotent-replayed'), again.headers.get('idempotent-replayed')]).toEqual([
      null,
      'true',
    ]);
    expect(await sandbox.effects()).toHaveLength(1);
    expect((await sandbox.ledger()).map((e) => [e.outcome, e.effect_refund_id])).toEqual([
      ['accepted', 're_00000001'],
      ['replayed', null],
    ]);
  });

  test('with other bytes of the same value is a mismatch', async () => {
    await sandbox.refund(JSON.stringify(REFUND));
    const seen = await sandbox.refund(`${JSON.stringify(REFUND)} `);
    expect([seen.status, seen.json.code]).toEqual([422, 'idempotency_body_mismatch']);
    expect(await sandbox.effects()).toHaveLength(1);
  });

  test('is in use while its first request runs', async () => {
    await sandbox.call('PATCH', '/admin/payments/pay_1', { latency_ms: 600 });
    const first = sandbox.refund(REFUND);
    await sandbox.ledgerWhen(([entry]) => entry?.body !== null && entry !== undefined);
    const second = await sandbox.refund(REFUND);
    expect([second.status, second.json.code]).toEqual([409, 'idempotency_key_in_use']);
    expect((await first).status).toBe(201);
    expect(await sandbox.effects()).toHaveLength(1);
  });

  test('stores what the books refused', async () => {
    await sandbox.refund({ ...REFUND, amount: 5001 });
    await sandbox.call('PATCH', '/admin/payments/pay_1', { captured_amount_minor: 9000 });
    const again = await sandbox.refund({ ...REFUND, amount: 5001 });
    expect([again.status, again.headers.get('idempotent-replayed')]).toEqual([400, 'true']);
  });

  test('stores no validation error', async () => {
    expect((await sandbox.refund({ ...REFUND, amount: 0 })).status).toBe(400);
    expect((await sandbox.refund(REFUND)).status).toBe(201);
  });

  test('executes again once its retention is over, and not a millisecond earlier', async () => {
    await sandbox.refund(REFUND);
    await sandbox.advance(24 * 3600 * 1000 - 1);
    expect((await sandbox.refund(REFUND)).headers.get('idempotent-replayed')).toBe('true');
    await sandbox.advance(1);
    const again = await sandbox.refund(REFUND);
    expect([again.status, again.headers.get('idempotent-replayed')]).toEqual([201, null]);
    expect(await sandbox.effects()).toHaveLength(2);
  });

  test('is kept as long as the settings say', async () => {
    await sandbox.call('PUT', '/admin/settings', { key_retention_ms: 10 });
    await sandbox.refund(REFUND);
    await sandbox.advance(10);
    await sandbox.refund(REFUND);
    expect(await sandbox.effects()).toHaveLength(2);
  });
});

describe('the ledger', () => {
  test('keeps the raw bytes, their hash, the run and the order of arrival', async () => {
    const spelled = JSON.stringify(REFUND).replace('1999', '1999.0').replace('duplicate', 'd\\u0075plicate');
    await sandbox.refund(spelled, { key: 'a' });
    await sandbox.refund({ ...REFUND, amount: 1 }, { key: 'b' });
    const entries = await sandbox.ledger();
    expect(entries[0]).toEqual({
      seq: 1,
      received_at: '2026-01-01T00:00:00.000Z',
      arrived_at: '2026-01-01T00:00:00.000Z',
      payment_id: 'pay_1',
      idempotency_key: 'a',
      body_sha256: sha256(spelled),
      body_digest: `sha256:${sha256(`cs.request-bytes.v1\0${spelled}`)}`,
      body: spelled,
      run_id: 'run_1',
      fault: null,
      outcome: 'accepted',
      effect_refund_id: 're_00000001',
      aborted: false,
      http_status: 201,
      code: null,
    });
    expect(entries.map(({ seq }) => seq)).toEqual([1, 2]);
  });

  test('is filtered by payment and continued after a number', async () => {
    await sandbox.seed({ request_id: 'req_2', order_id: 'ord_2', payment_id: 'pay_2' });
    await sandbox.refund(REFUND, { key: 'a' });
    await sandbox.refund({ ...REFUND, payment_id: 'pay_2' }, { key: 'b' });
    expect((await sandbox.ledger('pay_2')).map(({ seq }) => seq)).toEqual([2]);
    const { json } = await sandbox.call('GET', '/admin/ledger?after_seq=1');
    expect(json.entries).toMatchObject([{ seq: 2 }]);
  });

  test('shows a client that left before the end of its body', async () => {
    const socket = connect(sandbox.port, '127.0.0.1');
    socket.write(
      'POST /payments/refunds HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\nidempotency-key: k\r\n\r\n{"pay',
    );
    await sandbox.ledgerWhen((entries) => entries.length === 1);
    socket.destroy();
    const [entry] = await sandbox.ledgerWhen(([first]) => first?.aborted === true);
    expect(entry).toMatchObject({ outcome: 'refused', body: null, body_sha256: null, idempotency_key: 'k' });
  });

  test('shows a client that left while its request ran, and the effect comes all the same', async () => {
    await sandbox.call('PATCH', '/admin/payments/pay_1', { latency_ms: 100 });
    const gone = request({
      port: sandbox.port,
      host: '127.0.0.1',
      method: 'POST',
      path: '/payments/refunds',
      headers: { authorization: 'Bearer sk_sandbox', 'idempotency-key': 'k' },
    });
    gone.on('error', () => undefined);
    gone.end(JSON.stringify(REFUND));
    await sandbox.ledgerWhen(([entry]) => entry?.body_sha256 !== null && entry !== undefined);
    gone.destroy();
    const [entry] = await sandbox.ledgerWhen(([first]) => first?.outcome === 'accepted' && first.aborted);
    expect(entry?.effect_refund_id).toBe('re_00000001');
  });
});
