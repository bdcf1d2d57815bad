import { createHash } from 'node:crypto';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { GRANT, type SandboxUnderTest, sandboxUnderTest } from '../testing/sandbox-under-test.ts';

let sandbox: SandboxUnderTest;
beforeAll(async () => {
  sandbox = await sandboxUnderTest();
});
afterAll(async () => sandbox.close());
beforeEach(async () => {
  await sandbox.reset();
  await sandbox.seed();
});

const list = async (query = '') => sandbox.read(`/credits/grants?customer_id=cus_ord_1${query}`);
const idsOf = async (query = '') => {
  const { json } = await list(query);
  return (json.grants as { grant_id: string }[]).map((grant) => grant.grant_id);
};

describe('a grant', () => {
  test('is made and answered with all its fields, and stands in books and ledger', async () => {
    const body = JSON.stringify(GRANT);
    const seen = await sandbox.grant(body);
    expect(seen.status).toBe(200);
    expect(seen.json).toEqual({ grant_id: 'cg_00000001', ...GRANT, created_at: '2026-01-01T00:00:00.000Z' });
    expect(await sandbox.grantEffects()).toEqual([{ ...seen.json, made_by: 'api', request_seq: 1 }]);
    expect(await sandbox.grantLedger()).toEqual([
      {
        seq: 1,
        received_at: '2026-01-01T00:00:00.000Z',
        arrived_at: '2026-01-01T00:00:00.000Z',
        customer_id: 'cus_ord_1',
        body_sha256: createHash('sha256').update(body).digest('hex'),
        body_digest: `sha256:${createHash('sha256').update(`cs.request-bytes.v1\0${body}`).digest('hex')}`,
        body,
        memo: GRANT.memo,
        fault: null,
        outcome: 'accepted',
        effect_grant_id: 'cg_00000001',
        aborted: false,
        http_status: 200,
        code: null,
      },
    ]);
  });

  test('sent again is another grant, whatever key comes with it', async () => {
    const headers = { authorization: 'Bearer sk_sandbox', 'idempotency-key': 'key_1' };
    await sandbox.call('POST', '/credits/grants', GRANT, headers);
    await sandbox.call('POST', '/credits/grants', GRANT, headers);
    expect((await sandbox.grantEffects()).map((grant) => grant.grant_id)).toEqual(['cg_00000001', 'cg_00000002']);
  });

  test('leaves payments and their ledger alone', async () => {
    await sandbox.grant(GRANT);
    expect(await sandbox.ledger()).toEqual([]);
    expect(await sandbox.effects()).toEqual([]);
  });

  test.each<[string, unknown, string | null, number, string]>([
    ['an unknown customer', { ...GRANT, customer_id: 'cus_none' }, 'sk_sandbox', 404, 'customer_not_found'],
    ['no JSON', '{"customer_id":', 'sk_sandbox', 400, 'invalid_json'],
    ['amount 0', { ...GRANT, amount: 0 }, 'sk_sandbox', 400, 'invalid_request'],
    ['a memo of 141 characters', { ...GRANT, memo: 'x'.repeat(141) }, 'sk_sandbox', 400, 'invalid_request'],
    ['no memo', { ...GRANT, memo: undefined }, 'sk_sandbox', 400, 'invalid_request'],
    ['an unknown member', { ...GRANT, metadata: {} }, 'sk_sandbox', 400, 'invalid_request'],
    ['no access key', GRANT, null, 401, 'unauthorized'],
    ['the read-only access key', GRANT, 'rk_sandbox', 403, 'permission_denied'],
    ['a body above 16 KB', ' '.repeat(17_000), 'sk_sandbox', 413, 'body_too_large'],
  ])('of %s is refused without an effect', async (_name, body, bearer, status, code) => {
    const seen = await sandbox.grant(body, bearer);
    expect([seen.status, seen.json.code]).toEqual([status, code]);
    expect((await sandbox.call('GET', '/admin/credits/effects')).json).toEqual({ effects: [] });
    expect((await sandbox.call('GET', '/admin/credits/ledger')).json).toMatchObject({
      entries: [{ outcome: 'refused', effect_grant_id: null, http_status: status, code }],
    });
  });
});

describe('the look-up', () => {
  test('lags the writes by 600 ms', async () => {
    await sandbox.grant(GRANT);
    await sandbox.advance(599);
    expect((await list()).json).toEqual({ grants: [], has_more: false });
    await sandbox.advance(1);
    expect(await idsOf()).toEqual(['cg_00000001']);
  });

  test('lags by what the settings say, also for what was written before', async () => {
    await sandbox.grant(GRANT);
    const settings = await sandbox.call('PUT', '/admin/settings', { credits_lag_ms: 0 });
    expect(settings.json).toMatchObject({ credits_lag_ms: 0, webhook_url: null });
    expect(await idsOf()).toEqual(['cg_00000001']);
    await sandbox.call('PUT', '/admin/settings', { credits_lag_ms: 10_000 });
    expect(await idsOf()).toEqual([]);
  });

  test('shows one customer’s grants, newest first, page by page', async () => {
    await sandbox.seed({ request_id: 'req_2', order_id: 'ord_2', payment_id: 'pay_2' });
    for (let n = 0; n < 3; n += 1) await sandbox.grant(GRANT);
    await sandbox.grant({ ...GRANT, customer_id: 'cus_ord_2' });
    await sandbox.advance(600);
    expect(await idsOf()).toEqual(['cg_00000003', 'cg_00000002', 'cg_00000001']);
    expect((await list('&limit=2')).json.has_more).toBe(true);
    const last = await list('&limit=2&after=cg_00000002');
    expect(last.json).toMatchObject({ grants: [{ grant_id: 'cg_00000001', memo: GRANT.memo }], has_more: false });
  });

  test.each([
    ['/credits/grants?customer_id=cus_none', 404, 'customer_not_found'],
    ['/credits/grants', 400, 'invalid_request'],
    ['/credits/grants?customer_id=cus_ord_1&limit=101', 400, 'invalid_request'],
    ['/credits/grants?customer_id=cus_ord_1&after=cg_none', 400, 'cursor_unknown'],
  ])('of %s is a %i', async (path, status, code) => {
    const seen = await sandbox.read(path);
    expect([seen.status, seen.json.code]).toEqual([status, code]);
  });

  test('needs a key', async () => {
    expect((await sandbox.read('/credits/grants?customer_id=cus_ord_1', 'other')).status).toBe(401);
  });
});

describe('a fault of the credits', () => {
  const effectsOf = async () => (await sandbox.grantEffects()).map(({ amount, memo }) => ({ amount, memo }));
  const { amount, memo } = GRANT;

  test.each([
    ['cut_before_accept', { kind: 'cut_before_accept' }, []],
    ['cut_after_accept', { kind: 'cut_after_accept' }, [{ amount, memo }]],
    [
      'booked_twice with a cut',
      { kind: 'booked_twice', cut: true },
      [
        { amount, memo },
        { amount, memo },
      ],
    ],
  ] as const)('%s closes without a byte', async (_name, fault, effects) => {
    await sandbox.armCredits(fault);
    await expect(sandbox.grant(GRANT)).rejects.toThrow('fetch failed');
    expect(await effectsOf()).toEqual(effects);
    expect(await sandbox.grantLedger()).toMatchObject([{ fault: fault.kind, outcome: 'cut' }]);
  });

  test.each([
    ['reject', { kind: 'reject', status: 429, code: 'busy' }, 429, []],
    ['error_after_accept', { kind: 'error_after_accept' }, 500, [{ amount, memo }]],
    ['html_after_accept', { kind: 'html_after_accept' }, 502, [{ amount, memo }]],
    ['other_amount', { kind: 'other_amount', amount: 7 }, 200, [{ amount: 7, memo }]],
    [
      'booked_twice',
      { kind: 'booked_twice' },
      200,
      [
        { amount, memo },
        { amount, memo },
      ],
    ],
    ['metadata_lost', { kind: 'metadata_lost' }, 200, [{ amount, memo: '' }]],
    ['hang_after_accept', { kind: 'hang_after_accept', hold_ms: 50 }, 200, [{ amount, memo }]],
    ['accept_late', { kind: 'accept_late', delay_ms: 50 }, 200, [{ amount, memo }]],
  ] as const)('%s answers, and books what it says', async (_name, fault, status, effects) => {
    await sandbox.armCredits(fault);
    const seen = await sandbox.grant(GRANT);
    expect(seen.status).toBe(status);
    expect(await effectsOf()).toEqual(effects);
    if (status === 200) expect(seen.json).toMatchObject({ ...effects[0] });
  });

  test('hidden_from_reads adds to the lag', async () => {
    await sandbox.armCredits({ kind: 'hidden_from_reads', hide_ms: 1000 });
    await sandbox.grant(GRANT);
    await sandbox.advance(1599);
    expect(await idsOf()).toEqual([]);
    await sandbox.advance(1);
    expect(await idsOf()).toHaveLength(1);
  });

  test('on the look-up meets the look-up alone', async () => {
    await sandbox.armCredits({ kind: 'read_error', status: 503, endpoint: 'grant_list' });
    expect((await sandbox.grant(GRANT)).status).toBe(200);
    expect((await list()).status).toBe(503);
    expect((await list()).status).toBe(200);
  });

  test('is listed, disarmed, and no fault of the payments', async () => {
    await sandbox.armCredits({ kind: 'metadata_lost' });
    expect((await sandbox.call('GET', '/admin/credits/faults/cus_ord_1')).json).toMatchObject({
      create: [{ left: 1 }],
    });
    expect((await sandbox.call('GET', '/admin/faults/cus_ord_1')).json).toMatchObject({ create: [] });
    expect((await sandbox.call('DELETE', '/admin/credits/faults/cus_ord_1')).status).toBe(204);
    expect((await sandbox.grant(GRANT)).json.memo).toBe(GRANT.memo);
  });

  test.each(['key_forgotten', 'pending_then_failed', 'webhook_twice'])(
    '%s is refused: the credits have nothing that it could spoil',
    async (kind) => {
      const seen = await sandbox.call('PUT', '/admin/credits/faults/cus_ord_1', { kind, after_ms: 1 });
      expect([seen.status, seen.json.code]).toEqual([400, 'invalid_request']);
    },
  );
});

describe('a grant by hand', () => {
  test('stands in the books and not in the ledger, and lags like any other', async () => {
    const seen = await sandbox.call('POST', '/admin/credits/grants', {
      customer_id: 'cus_ord_1',
      amount: 1,
      currency: 'USD',
    });
    expect([seen.status, seen.json.made_by, seen.json.memo]).toEqual([201, 'hand', '']);
    expect(await sandbox.grantLedger()).toEqual([]);
    expect(await idsOf()).toEqual([]);
    await sandbox.advance(600);
    expect(await idsOf()).toHaveLength(1);
  });

  test.each([
    [{ customer_id: 'cus_none', amount: 1, currency: 'USD' }, 404],
    [{ customer_id: 'cus_ord_1', amount: 1, currency: 'USD', note: 'x' }, 400],
  ])('of %j is a %i', async (body, status) => {
    expect((await sandbox.call('POST', '/admin/credits/grants', body)).status).toBe(status);
  });
});

describe('a customer', () => {
  test('may be named by the case, and is then the order’s', async () => {
    await sandbox.seed({ request_id: 'req_2', order_id: 'ord_2', payment_id: 'pay_2', customer_id: 'cus_7' });
    expect((await sandbox.call('GET', '/shop/orders/ord_2')).json.customer_id).toBe('cus_7');
    expect((await sandbox.grant({ ...GRANT, customer_id: 'cus_7' })).status).toBe(200);
  });

  test('of one order cannot be two', async () => {
    const seen = await sandbox.seed({ request_id: 'req_2', customer_id: 'cus_7' });
    expect([seen.status, seen.json.code]).toEqual([409, 'case_conflict']);
  });
});

test('a reset forgets customers, grants, ledger, faults and lag', async () => {
  await sandbox.grant(GRANT);
  await sandbox.armCredits({ kind: 'metadata_lost' });
  await sandbox.call('PUT', '/admin/settings', { credits_lag_ms: 0 });
  await sandbox.reset();
  expect((await sandbox.grant(GRANT)).json.code).toBe('customer_not_found');
  await sandbox.seed();
  expect((await sandbox.grant(GRANT)).json).toMatchObject({ grant_id: 'cg_00000001', memo: GRANT.memo });
  expect(await idsOf()).toEqual([]);
  expect(await sandbox.grantLedger()).toMatchObject([
    { seq: 1, code: 'customer_not_found' },
    { seq: 2, code: null },
  ]);
});
