import { setHoldAsOwner } from '@counterstamp/manifest-store';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { type ApiFixture, apiFixture, createBody, type RunningApi } from '../testing/api-fixture.ts';
import { holdGuard } from './holds.ts';

let fixture: ApiFixture;
let api: RunningApi;
let operator: string;

beforeAll(async () => {
  fixture = await apiFixture();
  api = await fixture.start();
  operator = (await fixture.store.principal('operator')).key;
});
afterAll(() => fixture.close());

async function exchange(
  method: string,
  path: string,
  key: string | undefined,
  body?: string,
): Promise<{ status: number; body: { code?: string; path?: string; detail?: string; [member: string]: unknown } }> {
  const response = await fetch(`${api.url}${path}`, {
    method,
    headers: {
      ...(key === undefined ? {} : { authorization: `Bearer ${key}` }),
      ...(body === undefined ? {} : { 'content-type': 'application/json' }),
    },
    ...(body === undefined ? {} : { body }),
  });
  return { status: response.status, body: (await response.json()) as Record<string, unknown> };
}

describe('a hold', () => {
  test('stops the dispatch of an approved run, is told among the run’s conditions, and lets it go on once released', async () => {
    const row = await fixture.store.toApproved();
    const guardOf = async () =>
      (await api.client(operator).getRun(row.run_id)).guards.find((guard) => guard.guard === 'no_hold');
    expect(await guardOf()).toEqual({ guard: 'no_hold', pass: true, detail: 'nothing holds sandbox-payments' });

    const { holds } = await api.client(operator).setHold('all', { reason: 'the ledger is being compared' });
    expect(holds).toMatchObject([{ scope: 'all', reason: 'the ledger is being compared' }]);
    expect(await guardOf()).toMatchObject({ pass: false });
    expect((await guardOf())?.detail).toMatch(/^everything is on hold since 20.*Z: the ledger is being compared$/);
    expect(await fixture.store.dispatch(row)).toMatchObject({ kind: 'refused', code: 'on_hold' });

    expect(await api.client(operator).releaseHold('all')).toEqual({ released: true, holds: [] });
    expect(await guardOf()).toMatchObject({ pass: true });
    expect(await fixture.store.dispatch(row)).toMatchObject({ kind: 'committed' });
  });

  test('on one connector leaves the others alone', () => {
    const hold = { scope: 'sandbox-payments', reason: 'why', set_by: null, set_at: '2026-01-01T00:00:00.000000Z' };
    expect(holdGuard([hold], 'sandbox-payments')).toMatchObject({
      pass: false,
      detail: 'sandbox-payments is on hold since 2026-01-01T00:00:00.000000Z: why',
    });
    expect(holdGuard([hold], 'another')).toMatchObject({ pass: true });
  });

  test('is set again with another reason, listed, and written to the audit with who did it', async () => {
    const before = (await fixture.audits()).length;
    const who = await fixture.store.principal('operator');
    await api.client(operator).setHold('sandbox-payments', { reason: 'first' });
    await api.client(operator).setHold('sandbox-payments', { reason: 'second' });
    expect((await api.client(operator).listHolds()).holds).toMatchObject([
      { scope: 'sandbox-payments', reason: 'second', set_by: who.principal_id },
    ]);
    await api.client(operator).releaseHold('sandbox-payments');
    expect(await api.client(operator).releaseHold('sandbox-payments')).toEqual({ released: false, holds: [] });
    const audits = (await fixture.audits()).slice(before);
    expect(audits.map(({ what, code, principal_id, detail }) => [what, code, principal_id, detail.scope])).toEqual([
      ['set_hold', 'held', who.principal_id, 'sandbox-payments'],
      ['set_hold', 'held', who.principal_id, 'sandbox-payments'],
      ['set_hold', 'released', who.principal_id, 'sandbox-payments'],
    ]);
  });

  test('is everybody’s, and shows another tenant the reason but not who set it', async () => {
    const south = (await fixture.store.principal('operator', 'operator', 'shop_south')).key;
    await api.client(operator).setHold('all', { reason: 'shown to all' });
    expect((await api.client(south).listHolds()).holds).toMatchObject([
      { scope: 'all', reason: 'shown to all', set_by: null },
    ]);
    expect(await api.client(south).releaseHold('all')).toEqual({ released: true, holds: [] });
  });

  test('stands before any api runs when the owner of the database set it, in the audit of everybody who may release it', async () => {
    const before = (await fixture.audits()).length;
    const row = await fixture.store.toApproved();
    await setHoldAsOwner(fixture.store.owner, 'restored');
    expect(await fixture.store.dispatch(row)).toMatchObject({ kind: 'refused', code: 'on_hold' });
    expect((await api.client(operator).listHolds()).holds).toMatchObject([
      { scope: 'all', reason: 'restored', set_by: 'owner' },
    ]);
    expect(await api.client(operator).releaseHold('all')).toEqual({ released: true, holds: [] });
    const audits = (await fixture.audits()).slice(before).filter(({ what }) => what === 'set_hold');
    expect(audits.map(({ code, principal_id }) => [code, principal_id === null])).toEqual([
      ['held', true],
      ['held', true],
      ['released', false],
    ]);
  });
});

describe('a hold is refused', () => {
  test.each(['requester', 'approver'] as const)('to a key whose role is %s, and the try is kept', async (role) => {
    const { key, principal_id } = await fixture.store.principal(role);
    for (const [method, path, body] of [
      ['GET', '/v1/holds', undefined],
      ['PUT', '/v1/holds/all', '{"reason":"x"}'],
      ['DELETE', '/v1/holds/all', undefined],
    ] as const) {
      expect(await exchange(method, path, key, body)).toMatchObject({ status: 403, body: { code: 'role_missing' } });
    }
    const tries = (await fixture.audits()).filter((one) => one.principal_id === principal_id);
    expect(tries.map(({ what, code }) => [what, code])).toEqual([
      ['set_hold', 'role_missing'],
      ['release_hold', 'role_missing'],
    ]);
  });

  test('to an auditor, who may look', async () => {
    const { key } = await fixture.store.principal('auditor');
    expect(await exchange('GET', '/v1/holds', key)).toEqual({ status: 200, body: { holds: [] } });
    expect(await exchange('PUT', '/v1/holds/all', key, '{"reason":"x"}')).toMatchObject({ status: 403 });
  });

  test('without a key', async () => {
    expect(await exchange('PUT', '/v1/holds/all', undefined, '{"reason":"x"}')).toMatchObject({ status: 401 });
  });

  test.each<[string, string, string | undefined, { status: number; code: string; path?: string }]>([
    ['without a body', 'all', undefined, { status: 400, code: 'body_missing' }],
    ['without a reason', 'all', '{}', { status: 400, code: 'member_missing', path: '/reason' }],
    ['with an empty reason', 'all', '{"reason":""}', { status: 400, code: 'value_invalid', path: '/reason' }],
    ['with a reason of another kind', 'all', '{"reason":null}', { status: 400, code: 'value_invalid' }],
    ['with a reason twice', 'all', '{"reason":"a","re\\u0061son":"b"}', { status: 400, code: 'duplicate_member' }],
    ['with a NUL in it', 'all', '{"reason":"a\\u0000"}', { status: 400, code: 'text_has_nul' }],
    ['with a member more', 'all', '{"reason":"a","until":1}', { status: 400, code: 'unknown_member', path: '/until' }],
    [
      'on a connector that does not exist',
      'stripe',
      '{"reason":"a"}',
      { status: 400, code: 'value_invalid', path: '/scope' },
    ],
    [
      'on the database’s own name for everything',
      '*',
      '{"reason":"a"}',
      { status: 400, code: 'value_invalid', path: '/scope' },
    ],
    ['on a scope with a NUL', '%00', '{"reason":"a"}', { status: 400, code: 'value_invalid', path: '/scope' }],
    [
      'on a scope without end',
      'a'.repeat(2_000),
      '{"reason":"a"}',
      { status: 400, code: 'value_too_large', path: '/scope' },
    ],
  ])('%s', async (_, scope, body, { status, ...expected }) => {
    expect(await exchange('PUT', `/v1/holds/${scope}`, operator, body)).toMatchObject({ status, body: expected });
    expect((await api.client(operator).listHolds()).holds).toEqual([]);
  });

  test('with another method, and the metrics know the ones that are taken', async () => {
    expect(await exchange('POST', '/v1/holds/all', operator, '{"reason":"x"}')).toMatchObject({ status: 405 });
    await exchange('DELETE', '/v1/holds/all', operator);
    expect(api.observed.at(-1)).toMatchObject({ route: '/v1/holds/{scope}', method: 'DELETE', status: 200 });
  });
});

test('a new run is told of a hold before it has an action', async () => {
  await api.client(operator).setHold('all', { reason: 'early' });
  const requester = (await fixture.store.principal('requester')).key;
  const created = await api.post('/v1/runs', requester, createBody());
  const run = await api.client(operator).getRun(created.body.run_id);
  expect(run.guards.map((guard) => guard.guard)).toEqual(['state', 'action_fixed', 'approval_asked', 'no_hold']);
  await api.client(operator).releaseHold('all');
});
