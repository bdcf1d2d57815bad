import { randomBytes } from 'node:crypto';
import type { RunId } from '@counterstamp/manifest-core';
import { createSealing, eraseSubject, parseDataKeys } from '@counterstamp/manifest-store';
import { createApiStore } from '@counterstamp/manifest-store/api';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { type ApiFixture, apiFixture, createBody, INPUT, PROPOSAL, type RunningApi } from '../testing/api-fixture.ts';

let fixture: ApiFixture;
let api: RunningApi;
let requester: string;
beforeAll(async () => {
  fixture = await apiFixture();
  const parsed = parseDataKeys(randomBytes(32).toString('base64url'));
  if (!parsed.ok) throw new Error(parsed.fault);
  const store = createApiStore(fixture.store.serviceSql.api, { sealing: createSealing(parsed.keys) });
  api = await fixture.start({ store });
  requester = (await fixture.store.principal('requester')).key;
});
afterAll(() => fixture.close());

const erase = (subject: string) =>
  eraseSubject(fixture.store.owner, { tenant_id: 'shop_north', subject }, { evenOpen: true, apply: true });
const subjectOf = async (run_id: RunId) => {
  const [row] = await fixture.store.owner<{ subject: string; input: unknown }[]>`
    select subject, input from cs.run_input where 'run_' || run_id = ${run_id}`;
  return row;
};

test('a request names whose personal data it holds, and is its own subject where it names nobody', async () => {
  const named = await api.post('/v1/runs', requester, createBody({ subject: 'customer_1' }));
  expect(named.status).toBe(201);
  expect(await subjectOf(named.body.run_id)).toEqual({ subject: 'customer_1', input: null });
  const body = createBody();
  const unnamed = await api.post('/v1/runs', requester, body);
  expect((await subjectOf(unnamed.body.run_id))?.subject).toBe(body.request_id);
  expect((await api.client(requester).getRun(named.body.run_id)).input).toEqual(INPUT);
});

test('after an erasure the run is shown without its values, takes no proposal, and the subject gets no new run', async () => {
  const body = createBody({ subject: 'customer_2', proposer: 'external' });
  const { run_id } = (await api.post('/v1/runs', requester, body)).body;
  const { erased_at } = await erase('customer_2');
  expect(await api.client(requester).getRun(run_id)).toMatchObject({ input: {}, context: [], erased_at });

  const proposed = await api.post(`/v1/runs/${run_id}/proposals`, requester, { proposal: PROPOSAL });
  expect([proposed.status, proposed.body.code]).toEqual([409, 'subject_erased']);
  const another = await api.post('/v1/runs', requester, createBody({ subject: 'customer_2' }));
  expect([another.status, another.body.code, another.body.path]).toEqual([409, 'subject_erased', '/subject']);
  // The answer to the first request may have been lost: repeated, it is still known.
  const repeated = await api.post('/v1/runs', requester, body);
  expect([repeated.status, repeated.body.run_id]).toEqual([200, run_id]);
});
