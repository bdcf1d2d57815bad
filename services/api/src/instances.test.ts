import { PROFILES } from '@counterstamp/manifest-core';
import { connectForLease, createWorkerStore, endInstance, serviceUrl, takeLease } from '@counterstamp/manifest-store';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { settableClock, TEST_ROLE_PREFIX, TEST_SECRET, testIds } from '../../../testing/store-fixture.ts';
import { type ApiFixture, apiFixture, type RunningApi } from '../testing/api-fixture.ts';

const PAUSE_MS = PROFILES.fast.pause_ms;

let fixture: ApiFixture;
let api: RunningApi;
let clock: Awaited<ReturnType<typeof settableClock>>;
let operator: string;

beforeAll(async () => {
  fixture = await apiFixture();
  api = await fixture.start();
  clock = await settableClock(fixture.store);
  await clock.set(new Date());
  operator = (await fixture.store.principal('operator')).key;
});
afterAll(() => fixture.close());

/** A process life of a service, known by one heartbeat. */
async function born(service: 'executor' | 'verifier' = 'executor'): Promise<string> {
  await clock.advanceMs(1);
  const instance_id = testIds.id('instance');
  await createWorkerStore(fixture.store.serviceSql[service], { instance_id, ids: testIds }).beat();
  return instance_id;
}

async function shown(instance_id: string) {
  const { instances } = await api.client(operator).listInstances({ limit: 1_000 });
  return instances.find((one) => one.instance_id === instance_id);
}

async function fence(instance_id: string, body: Record<string, unknown> = {}, key = operator) {
  return await api.post(`/v1/instances/${instance_id}/fence`, key, { evidence: 'the machine is gone', ...body });
}

async function auditsOf(instance_id: string) {
  const audits = (await fixture.audits()) as { what: string; code: string; detail: { instance_id?: string } }[];
  return audits.filter((one) => one.detail.instance_id === instance_id).map(({ what, code }) => [what, code]);
}

describe('instances', () => {
  test('are listed newest first, by service, as many as asked for', async () => {
    const [first, other, last] = [await born(), await born('verifier'), await born()];
    const { instances } = await api.client(operator).listInstances({ service: 'executor', limit: 2 });
    expect(instances.map((one) => one.instance_id)).toEqual([last, first]);
    expect(instances[0]).toMatchObject({ service: 'executor', lease: 'none', ended_at: null, fenced_from: null });
    expect((await api.client(operator).listInstances({ limit: 2 })).instances.map((one) => one.instance_id)).toEqual([
      last,
      other,
    ]);
  });

  test('show a lease that is held, and are fenced a pause after the last heartbeat once they ended without it', async () => {
    const instance_id = await born();
    const lease = connectForLease(serviceUrl(fixture.store.url, 'executor', TEST_SECRET, TEST_ROLE_PREFIX), {
      applicationName: 'test-lease',
      onClose: () => undefined,
    });
    await takeLease(lease, instance_id, { host: 'here', pid: 7 });
    await endInstance(fixture.store.serviceSql.executor, { instance_id, evidence: 'told to end' });
    expect(await shown(instance_id)).toMatchObject({
      lease: 'held',
      host: 'here',
      pid: 7,
      ended_by: 'self',
      fenced_from: null,
    });
    await lease.end();
    await expect.poll(async () => (await shown(instance_id))?.lease, { timeout: 5_000 }).toBe('free');
    const after = await shown(instance_id);
    expect(Date.parse(after?.fenced_from ?? '') - Date.parse(after?.beat_at ?? '')).toBe(PAUSE_MS);
    expect(after?.fenced_from?.slice(-4)).toBe(after?.beat_at.slice(-4));
  });

  test('are an operator’s to see', async () => {
    for (const role of ['requester', 'approver', 'auditor'] as const) {
      const { key } = await fixture.store.principal(role);
      expect(await api.get('/v1/instances', key)).toMatchObject({ status: 403, body: { code: 'role_missing' } });
    }
    expect((await api.get('/v1/instances')).status).toBe(401);
  });

  test.each([
    ['?service=nobody', '/service'],
    ['?limit=0', '/limit'],
    ['?limit=1001', '/limit'],
    ['?limit=1e2', '/limit'],
    ['?limit=', '/limit'],
    ['?limit=1&limit=2', '/limit'],
  ])('are refused for the query %s', async (query, path) => {
    expect(await api.get(`/v1/instances${query}`, operator)).toMatchObject({
      status: 400,
      body: { code: 'value_invalid', path },
    });
  });
});

describe('a fence', () => {
  test('is refused while the instance beats, and believed a pause later, once', async () => {
    const instance_id = await born();
    const alive = await fence(instance_id);
    expect(alive).toMatchObject({ status: 409, body: { code: 'instance_alive', path: '/instance_id' } });
    expect(alive.body.detail).toContain(`last heartbeat at ${(await shown(instance_id))?.beat_at}; it counts as alive`);
    await clock.advanceMs(PAUSE_MS);
    expect(await fence(instance_id)).toMatchObject({ status: 200, body: { instance_id, result: 'ended' } });
    expect(await shown(instance_id)).toMatchObject({ ended_by: 'operator', credential_rotated: false });
    expect(await fence(instance_id)).toMatchObject({ status: 200, body: { result: 'already_ended' } });
    expect(await auditsOf(instance_id)).toEqual([
      ['fence_instance', 'instance_alive'],
      ['fence_instance', 'ended'],
      ['fence_instance', 'already_ended'],
    ]);
  });

  test('is refused while the session lease is held, however old the heartbeat, unless the credential was rotated', async () => {
    const instance_id = await born();
    const lease = connectForLease(serviceUrl(fixture.store.url, 'executor', TEST_SECRET, TEST_ROLE_PREFIX), {
      applicationName: 'test-lease',
      onClose: () => undefined,
    });
    await takeLease(lease, instance_id, { host: 'here', pid: 8 });
    await clock.advanceMs(10 * PAUSE_MS);
    const alive = await fence(instance_id);
    expect(alive).toMatchObject({ status: 409, body: { code: 'instance_alive' } });
    expect(alive.body.detail).toMatch(/^last heartbeat \(process 8 on here\) at .*Z; its session lease is held\./);
    expect(await fence(instance_id, { credential_rotated: true })).toMatchObject({ status: 200 });
    const rotated = await shown(instance_id);
    expect(rotated).toMatchObject({ lease: 'held', credential_rotated: true, ended_by: 'operator' });
    expect(rotated?.fenced_from).toBe(rotated?.ended_at);
    await lease.end();
  });

  test('of an instance that nobody knows is refused, and the try is kept', async () => {
    expect(await fence('ins_nobody')).toMatchObject({ status: 404, body: { code: 'instance_not_found' } });
    expect(await auditsOf('ins_nobody')).toEqual([['fence_instance', 'instance_unknown']]);
  });

  test('is an operator’s to say, also when the database commits it', async () => {
    const instance_id = await born();
    await clock.advanceMs(PAUSE_MS);
    const auditor = await fixture.store.principal('auditor');
    expect(await fence(instance_id, {}, auditor.key)).toMatchObject({ status: 403, body: { code: 'role_missing' } });
    const leaving = await fixture.store.principal('operator', 'leaving operator');
    const late = await fixture.start({
      store: {
        ...fixture.store.api,
        async fence(who, said) {
          await fixture.store.owner`update cs.principal set roles = '{}' where principal_id = ${leaving.principal_id}`;
          return await fixture.store.api.fence(who, said);
        },
      },
    });
    expect(await late.post(`/v1/instances/${instance_id}/fence`, leaving.key, { evidence: 'gone' })).toMatchObject({
      status: 403,
      body: { code: 'role_missing' },
    });
    expect((await shown(instance_id))?.ended_at).toBeNull();
    const tries = ((await fixture.audits()) as { what: string; code: string; principal_id: string }[])
      .filter((one) => [auditor.principal_id, leaving.principal_id].includes(one.principal_id))
      .map(({ what, code }) => [what, code]);
    expect(tries).toEqual([
      ['fence_instance', 'role_missing'],
      ['fence_instance', 'role_missing'],
    ]);
  });

  test.each<[string, string, unknown, { code: string; path: string }]>([
    ['without evidence', 'ins_1', {}, { code: 'member_missing', path: '/evidence' }],
    ['with empty evidence', 'ins_1', { evidence: '' }, { code: 'value_invalid', path: '/evidence' }],
    [
      'with evidence without end',
      'ins_1',
      { evidence: 'x'.repeat(2_001) },
      { code: 'value_too_large', path: '/evidence' },
    ],
    [
      'with a rotation that is no yes or no',
      'ins_1',
      { evidence: 'x', credential_rotated: 'no' },
      { code: 'value_invalid', path: '/credential_rotated' },
    ],
    ['with a member more', 'ins_1', { evidence: 'x', force: true }, { code: 'unknown_member', path: '/force' }],
    ['of a name with a NUL', 'ins%00', { evidence: 'x' }, { code: 'identifier_charset', path: '/instance_id' }],
    [
      'of a name without end',
      'i'.repeat(2_000),
      { evidence: 'x' },
      { code: 'identifier_too_long', path: '/instance_id' },
    ],
  ])('is refused %s', async (_, instance_id, body, expected) => {
    expect(await api.post(`/v1/instances/${instance_id}/fence`, operator, body)).toMatchObject({
      status: 400,
      body: expected,
    });
  });
});
