import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { type ApiFixture, apiFixture } from '../testing/api-fixture.ts';
import type { ApiLog } from './deps.ts';
import { createRateGate, DEFAULT_RATE_LIMITS, type RateGate } from './rate-limits.ts';

const SILENT: ApiLog = { info: () => undefined, warn: () => undefined, error: () => undefined };
const ADA = { tenant_id: 'shop_north', principal_id: 'prn_ada' };
const BEN = { tenant_id: 'shop_north', principal_id: 'prn_ben' };
const EVE = { tenant_id: 'shop_south', principal_id: 'prn_eve' };

/** How many of `n` requests go on. */
async function admitted(n: number, ask: () => ReturnType<RateGate['admit']>): Promise<number> {
  let count = 0;
  for (let i = 0; i < n; i++) if ((await ask()) === undefined) count++;
  return count;
}

describe('the gate', () => {
  test('stops a principal at its limit, and neither its neighbour nor another tenant', async () => {
    const gate = createRateGate({ per_principal: 3, per_tenant: 100, unauthenticated: 100 }, SILENT);
    expect(await admitted(10, () => gate.admit(ADA))).toBe(3);
    expect(await gate.admit(BEN)).toBeUndefined();
    expect(await gate.admit(EVE)).toBeUndefined();
  });

  test('stops a tenant at its limit, whoever of it asks; what a principal was refused does not count for the tenant', async () => {
    const gate = createRateGate({ per_principal: 3, per_tenant: 5, unauthenticated: 100 }, SILENT);
    await admitted(50, () => gate.admit(ADA));
    expect(await admitted(10, () => gate.admit(BEN))).toBe(2);
    expect(await gate.admit(EVE)).toBeUndefined();
  });

  test.each<[string, string | undefined, string | undefined, boolean]>([
    ['one address', '203.0.113.9', '203.0.113.9', true],
    ['two addresses', '203.0.113.9', '203.0.113.10', false],
    ['an address and the same one inside IPv6', '::ffff:203.0.113.9', '::ffff:203.0.113.9', true],
    ['two inside IPv6', '::ffff:203.0.113.9', '::ffff:203.0.113.10', false],
    ['one network of IPv6, which its owner can fill', '2001:db8:0:1::1', '2001:db8:0:1:ffff::2', true],
    ['two networks of IPv6', '2001:db8:0:1::1', '2001:db8:0:2::1', false],
    ['no address at all', undefined, undefined, true],
  ])('counts without a credential by address: %s', async (_, first, second, together) => {
    const gate = createRateGate({ per_principal: 1, per_tenant: 1, unauthenticated: 1 }, SILENT);
    expect(await gate.admitUnknown(first)).toBeUndefined();
    expect((await gate.admitUnknown(second)) !== undefined).toBe(together);
  });

  test('lets everybody go on after its window, and holds no memory of them', async () => {
    vi.useFakeTimers();
    try {
      const gate = createRateGate({ per_principal: 1, per_tenant: 100, unauthenticated: 1 }, SILENT);
      expect(await admitted(1_000, () => gate.admitUnknown('203.0.113.9'))).toBe(1);
      // A flood from one address is one entry; each entry is one timer, which removes it.
      expect(vi.getTimerCount()).toBe(1);
      expect(await admitted(2, () => gate.admit(ADA))).toBe(1);
      vi.advanceTimersByTime(10_000);
      expect(vi.getTimerCount()).toBe(0);
      expect(await gate.admit(ADA)).toBeUndefined();
      expect(await gate.admitUnknown('203.0.113.9')).toBeUndefined();
    } finally {
      vi.useRealTimers();
    }
  });

  test('lets a request go on, and says so, when it cannot count', async () => {
    const logged: unknown[] = [];
    const gate = createRateGate(DEFAULT_RATE_LIMITS, { ...SILENT, error: (fields) => logged.push(fields) });
    const broken = vi.spyOn(Map.prototype, 'get').mockImplementation(() => {
      throw new Error('no memory');
    });
    const answer = gate.admit(ADA);
    broken.mockRestore();
    expect(await answer).toBeUndefined();
    expect(logged).toHaveLength(1);
  });
});

describe('over HTTP', () => {
  let fixture: ApiFixture;
  beforeAll(async () => {
    fixture = await apiFixture();
  });
  afterAll(() => fixture.close());

  test('a principal beyond its limit is told when to come back; others and the health routes are not concerned', async () => {
    const api = await fixture.start({ rates: { per_principal: 2, per_tenant: 100, unauthenticated: 100 } });
    const auditor = await fixture.store.principal('auditor');
    const operator = await fixture.store.principal('operator');
    const replies = [];
    for (let i = 0; i < 4; i++) replies.push(await api.get('/v1/runs', auditor.key));
    expect(replies.map((reply) => reply.status)).toEqual([200, 200, 429, 429]);
    const last = replies.at(-1);
    expect(last?.body).toMatchObject({ code: 'rate_limited', status: 429 });
    expect(last?.headers.get('content-type')).toBe('application/problem+json');
    expect(Number(last?.headers.get('retry-after'))).toBeGreaterThanOrEqual(1);
    expect(last?.headers.get('ratelimit-policy')).toBe('"principal";q=2;w=10');
    expect((await api.get('/v1/runs', operator.key)).status).toBe(200);
    for (let i = 0; i < 5; i++) expect((await api.get('/healthz')).status).toBe(200);
  });

  test('a refused request does nothing: no run, no audit event', async () => {
    const api = await fixture.start({ rates: { per_principal: 1, per_tenant: 100, unauthenticated: 100 } });
    const requester = await fixture.store.principal('requester');
    await api.get('/v1/runs', requester.key);
    const before = [await fixture.runCount(), (await fixture.audits()).length];
    const reply = await api.post('/v1/runs', requester.key, { request_id: 'late', input: {} });
    expect(reply.status).toBe(429);
    expect([await fixture.runCount(), (await fixture.audits()).length]).toEqual(before);
  });

  test('bad keys and sign-ins of one address share one limit; a good key behind the same address goes on', async () => {
    const api = await fixture.start({ rates: { per_principal: 100, per_tenant: 100, unauthenticated: 3 } });
    const auditor = await fixture.store.principal('auditor');
    const bad = `csk_${'0'.repeat(32)}_${'A'.repeat(43)}`;
    const statuses = [];
    for (const key of [bad, undefined, 'nonsense', bad, undefined])
      statuses.push((await api.get('/v1/runs', key)).status);
    statuses.push((await api.post('/v1/session/options', undefined, {})).status);
    expect(statuses).toEqual([401, 401, 401, 429, 429, 429]);
    expect((await api.get('/v1/runs', auditor.key)).status).toBe(200);
  });
});
