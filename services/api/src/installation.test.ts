import { afterAll, beforeAll, expect, test } from 'vitest';
import { type ApiFixture, apiFixture, type RunningApi } from '../testing/api-fixture.ts';

let fixture: ApiFixture;
beforeAll(async () => {
  fixture = await apiFixture();
});
afterAll(() => fixture.close());

/** What concerns the whole installation, as an operator of a tenant asks for it: statuses by name. */
async function operatorOf(tenant: string, api: RunningApi): Promise<Record<string, number>> {
  const { key } = await fixture.store.principal('operator', 'operator', tenant);
  const send = async (method: string, path: string, body?: unknown) => {
    const response = await fetch(`${api.url}${path}`, {
      method,
      headers: {
        authorization: `Bearer ${key}`,
        ...(body === undefined ? {} : { 'content-type': 'application/json' }),
      },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
    if (response.status === 403) expect(await response.json()).toMatchObject({ code: 'role_missing' });
    return response.status;
  };
  return {
    setHold: await send('PUT', '/v1/holds/all', { reason: 'test' }),
    releaseHold: await send('DELETE', '/v1/holds/all'),
    listHolds: await send('GET', '/v1/holds'),
    listInstances: await send('GET', '/v1/instances'),
    fenceInstance: await send('POST', '/v1/instances/ins_unknown/fence', { evidence: 'gone' }),
  };
}
const permitted = { setHold: 200, releaseHold: 200, listHolds: 200, listInstances: 200, fenceInstance: 404 };
const refused = { setHold: 403, releaseHold: 403, listHolds: 200, listInstances: 403, fenceInstance: 403 };

test('without an operating tenant every tenant’s operators may switch holds and judge instances', async () => {
  const api = await fixture.start();
  expect(await operatorOf('shop_north', api)).toEqual(permitted);
  expect(await operatorOf('shop_south', api)).toEqual(permitted);
});

test('with one, only its operators may; the others see the holds that stop them, and their tries are audited', async () => {
  const api = await fixture.start({ operating_tenant: 'shop_north' });
  const before = (await fixture.audits()).length;
  expect(await operatorOf('shop_south', api)).toEqual(refused);
  const tried = (await fixture.audits()).slice(before);
  expect(tried.map((event) => `${event.what} ${event.code}`)).toEqual([
    'set_hold role_missing',
    'release_hold role_missing',
    'fence_instance role_missing',
  ]);
  expect(await operatorOf('shop_north', api)).toEqual(permitted);
});
