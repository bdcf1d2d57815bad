import type { RunId } from '@counterstamp/manifest-core';
import { type Principal, StoreUnavailable } from '@counterstamp/manifest-store';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { newRunId } from '../../../testing/store-fixture.ts';
import { type ApiFixture, apiFixture, createBody, PROPOSAL, type RunningApi } from '../testing/api-fixture.ts';

type Keyed = Principal & { key: string };
let fixture: ApiFixture;
let api: RunningApi;
const north: Record<string, Keyed> = {};
const south: Record<string, Keyed> = {};

beforeAll(async () => {
  fixture = await apiFixture();
  api = await fixture.start();
  for (const role of ['requester', 'approver', 'operator', 'auditor'] as const) {
    north[role] = await fixture.store.principal(role);
    south[role] = await fixture.store.principal(role, `south ${role}`, 'shop_south');
  }
});
afterAll(() => fixture.close());

function key(of: Record<string, Keyed>, role: string): string {
  return of[role]?.key ?? '';
}

async function decision(run_id: RunId, choice = 'approve') {
  const run = await api.client(key(north, 'auditor')).getRun(run_id);
  if (run.approval === null) throw new Error('nothing to decide');
  const { approval_id, approval_digest, action_digest, action_revision } = run.approval;
  return { approval_id, approval_digest, action_digest, action_revision, decision: choice };
}

/** Sends one action on a run of shop_north; the run's state fits the action. */
async function attempt(action: string, bearer: string) {
  const { run_id } = action === 'decide' ? await fixture.store.toAwaitingApproval() : await fixture.store.createRun();
  switch (action) {
    case 'create':
      return await api.post('/v1/runs', bearer, createBody());
    case 'get':
      return await api.get(`/v1/runs/${run_id}`, bearer);
    case 'list':
      return await api.get('/v1/runs', bearer);
    case 'events':
      return await api.get(`/v1/runs/${run_id}/events`, bearer);
    case 'propose':
      return await api.post(`/v1/runs/${run_id}/proposals`, bearer, { proposal: PROPOSAL });
    case 'decide':
      return await api.post(`/v1/runs/${run_id}/decisions`, bearer, await decision(run_id));
    default:
      return await api.post(`/v1/runs/${run_id}/cancel`, bearer, {});
  }
}

// Rows: role. Columns: action. The second line of a role: the same key of another tenant.
// (A proposal is too early for a run that is queued: 409 shows that the role was let through.)
const SPEC = `
                  create  get  list  events  propose  decide  cancel
  requester       201     200  200   200     409      403     200
  requester/other 201     404  200   404     404      403     404
  approver        403     200  200   200     403      200     403
  approver/other  403     404  200   404     403      404     403
  operator        403     200  200   200     403      403     200
  operator/other  403     404  200   404     403      403     404
  auditor         403     200  200   200     403      403     403
  auditor/other   403     404  200   404     403      403     403 `;

function parseTable(spec: string): { who: string; action: string; status: number }[] {
  const [head = [], ...rows] = spec
    .trim()
    .split('\n')
    .map((line) => line.trim().split(/ +/));
  return rows.flatMap(([who = '', ...cells]) =>
    cells.map((status, index) => ({ who, action: head[index] ?? '', status: Number(status) })),
  );
}

describe('roles and tenants', () => {
  test.each(parseTable(SPEC))('$who may $action: $status', async ({ who, action, status }) => {
    const [role = '', other] = who.split('/');
    const bearer = key(other === undefined ? north : south, role);
    const before = (await fixture.audits()).length;
    const reply = await attempt(action, bearer);
    const codes: Record<number, string> = {
      403: action === 'decide' ? 'not_an_approver' : 'role_missing',
      404: 'run_not_found',
      409: 'not_awaiting_proposal',
    };
    expect([reply.status, reply.body.code]).toEqual([status, codes[status]]);
    const command = ['create', 'propose', 'decide', 'cancel'].includes(action);
    expect((await fixture.audits()).length - before).toBe(command && status >= 400 ? 1 : 0);
  });

  test('a run of another tenant is answered exactly like one that never was', async () => {
    const { run_id } = await fixture.store.createRun();
    const bearer = key(south, 'requester');
    for (const path of ['', '/events']) {
      const foreign = await api.get(`/v1/runs/${run_id}${path}`, bearer);
      const unknown = await api.get(`/v1/runs/${newRunId()}${path}`, bearer);
      expect(foreign.body).toEqual(unknown.body);
    }
    const { runs } = await api.client(bearer).listRuns();
    expect(runs.map((run) => run.run_id)).not.toContain(run_id);
  });

  test('the same request id in two tenants is two runs', async () => {
    const body = createBody();
    const one = await api.post('/v1/runs', key(north, 'requester'), body);
    const two = await api.post('/v1/runs', key(south, 'requester'), body);
    expect([one.status, two.status]).toEqual([201, 201]);
    expect(one.body.run_id).not.toBe(two.body.run_id);
  });

  test('a run of another tenant cannot be superseded, nor told from one that never was', async () => {
    const theirs = await fixture.store.createRun({ tenant_id: 'shop_north', request_id: 'case_shared' });
    const tries = [theirs.run_id, newRunId()].map((supersedes) =>
      api.post('/v1/runs', key(south, 'requester'), createBody({ request_id: 'case_shared', supersedes })),
    );
    const [foreign, unknown] = await Promise.all(tries);
    expect(foreign).toMatchObject({ status: 409, body: { code: 'supersedes_invalid' } });
    expect(foreign?.body).toEqual(unknown?.body);
  });
});

describe('a caller without a valid key', () => {
  const unknown = `csk_${'0'.repeat(32)}_${'A'.repeat(43)}`;
  test.each([
    ['none', undefined],
    ['another scheme', 'Basic Y3NrOng='],
    ['an empty token', 'Bearer '],
    ['what is no key', 'Bearer letmein'],
    ['two tokens', `Bearer ${unknown} ${unknown}`],
    ['an unknown key', `Bearer ${unknown}`],
    ['a key eight kilobytes long', `Bearer csk_${'a'.repeat(8_000)}`],
  ])('(%s) is turned away before anything is read or written', async (_, authorization) => {
    const [runs, audits] = [await fixture.runCount(), (await fixture.audits()).length];
    const response = await fetch(`${api.url}/v1/runs`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', ...(authorization === undefined ? {} : { authorization }) },
      body: '{"a":1,"a":2}',
    });
    expect(response.status).toBe(401);
    expect(response.headers.get('www-authenticate')).toBe('Bearer realm="counterstamp"');
    expect(await response.json()).toMatchObject({ code: 'unauthenticated' });
    expect([await fixture.runCount(), (await fixture.audits()).length]).toEqual([runs, audits]);
  });

  test('is told so as well when the key was revoked', async () => {
    const revoked = await fixture.store.principal('auditor', 'leaver');
    expect((await api.get('/v1/runs', revoked.key)).status).toBe(200);
    await fixture.store
      .owner`update cs.api_key set revoked_at = cs.clock() where principal_id = ${revoked.principal_id}`;
    expect((await api.get('/v1/runs', revoked.key)).status).toBe(401);
  });
});

describe('who decides', () => {
  test('O13 an agent with a requester key is not an approver, and its try is kept with the run', async () => {
    const { run_id } = await fixture.store.toAwaitingApproval();
    const reply = await api.post(`/v1/runs/${run_id}/decisions`, key(north, 'requester'), await decision(run_id));
    expect(reply).toMatchObject({ status: 403, body: { code: 'not_an_approver' } });
    expect((await fixture.audits()).at(-1)).toMatchObject({
      what: 'decide',
      code: 'not_an_approver',
      principal_id: north.requester?.principal_id,
      run_id: run_id.slice('run_'.length),
      detail: { roles: ['requester'] },
    });
  });

  test('outside development no key decides, not even an approver’s', async () => {
    const strict = await fixture.start({ development: false });
    const { run_id } = await fixture.store.toAwaitingApproval();
    const before = (await fixture.audits()).length;
    const reply = await strict.post(`/v1/runs/${run_id}/decisions`, key(north, 'approver'), await decision(run_id));
    expect(reply).toMatchObject({ status: 403, body: { code: 'approvals_need_development' } });
    expect((await fixture.audits()).slice(before)).toMatchObject([
      { what: 'decide', code: 'approvals_need_development' },
    ]);
    expect((await api.client(key(north, 'auditor')).getRun(run_id)).approval?.decisions).toEqual([]);
  });

  test('a person who asked may not approve under another key of theirs, but may reject', async () => {
    const ana = await fixture.store.principal('approver', 'ana@example.test');
    const anaAsks = await fixture.store.principal('requester', 'ana@example.test');
    expect(anaAsks.principal_id).toBe(ana.principal_id);
    const { run_id } = await fixture.store.toAwaitingApproval({ principal_id: ana.principal_id });
    const path = `/v1/runs/${run_id}/decisions`;
    const before = (await fixture.audits()).length;
    expect(await api.post(path, ana.key, await decision(run_id))).toMatchObject({
      status: 403,
      body: { code: 'self_approval', path: '/decision' },
    });
    expect((await fixture.audits()).slice(before)).toMatchObject([{ code: 'self_approval' }]);
    expect(await api.post(path, ana.key, await decision(run_id, 'reject'))).toMatchObject({
      status: 200,
      body: { state: 'rejected', decision: { principal_id: ana.principal_id } },
    });
  });

  test('a body that names the decider is refused, and the try is kept', async () => {
    const { run_id } = await fixture.store.toAwaitingApproval();
    const before = (await fixture.audits()).length;
    const body = { ...(await decision(run_id)), decided_by: 'boss@example.test' };
    expect(await api.post(`/v1/runs/${run_id}/decisions`, key(north, 'approver'), body)).toMatchObject({
      status: 400,
      body: { code: 'unknown_member', path: '/decided_by' },
    });
    expect((await fixture.audits()).slice(before)).toMatchObject([
      { what: 'decide', code: 'unknown_member', detail: { roles: ['approver'], path: '/decided_by' } },
    ]);
  });

  test('O09 a click after the expiry is refused, expires the run and is kept', async () => {
    const { run_id } = await fixture.store.toAwaitingApproval({}, { lifeMs: 300 });
    const body = await decision(run_id);
    await expect
      .poll(
        async () =>
          (
            await fixture.store
              .owner`select cs.clock() > approval_expires_at as over from cs.run where run_id = ${run_id.slice(4)}`
          )[0]?.over,
      )
      .toBe(true);
    const before = (await fixture.audits()).length;
    expect(await api.post(`/v1/runs/${run_id}/decisions`, key(north, 'approver'), body)).toMatchObject({
      status: 410,
      body: { code: 'approval_expired' },
    });
    expect((await fixture.audits()).slice(before)).toMatchObject([{ what: 'decide', code: 'approval_expired' }]);
    expect((await api.client(key(north, 'auditor')).getRun(run_id)).state).toBe('expired');
  });
});

describe('a database that is away', () => {
  const gone = async () => {
    throw new StoreUnavailable('gone (ECONNREFUSED)');
  };
  test('while a key is checked or a decision made gives 503, a time to come back, and no record', async () => {
    const { run_id } = await fixture.store.toAwaitingApproval();
    const body = await decision(run_id);
    const calls = [{ authenticate: gone }, { decide: gone }].map(async (change) => {
      const away = await fixture.start({ store: { ...fixture.store.api, ...change } });
      const reply = await away.post(`/v1/runs/${run_id}/decisions`, key(north, 'approver'), body);
      expect(reply).toMatchObject({ status: 503, body: { code: 'store_unavailable' } });
      expect(reply.headers.get('retry-after')).toBe('2');
    });
    await Promise.all(calls);
    expect((await api.client(key(north, 'auditor')).getRun(run_id)).approval?.decisions).toEqual([]);
  });

  test('makes the api unready, within its second also when nothing answers at all', async () => {
    const refusing = await fixture.start({ store: { ...fixture.store.api, ping: gone } });
    expect(await refusing.get('/readyz')).toMatchObject({
      status: 503,
      body: { ready: false, database: 'unavailable' },
    });
    const silent = await fixture.start({
      store: { ...fixture.store.api, ping: () => new Promise(() => undefined) },
      clock: {
        monotonicMs: () => 0,
        after(ms, callback) {
          expect(ms).toBe(1_000);
          queueMicrotask(callback);
          return () => undefined;
        },
      },
    });
    expect(await silent.get('/readyz')).toMatchObject({ status: 503, body: { ready: false } });
    expect((await silent.get('/healthz')).status).toBe(200);
  });
});

describe('a fault of ours', () => {
  test('shows a trace id that the log knows, and nothing of its inside', async () => {
    const broken = await fixture.start({
      store: {
        ...fixture.store.api,
        load: async () => {
          throw new Error('secret inside');
        },
      },
    });
    const reply = await broken.get(`/v1/runs/${newRunId()}`, key(north, 'auditor'));
    expect(reply).toMatchObject({
      status: 500,
      body: { code: 'internal_error', trace_id: expect.stringMatching(/^[0-9a-f]{32}$/) },
    });
    expect(JSON.stringify(reply.body)).not.toMatch(/secret|at .*\.ts/);
    expect(broken.logged).toMatchObject([
      { level: 'error', fields: { trace_id: reply.body.trace_id, route: '/v1/runs/{run_id}' } },
    ]);
  });
});

describe('a queue that is away', () => {
  test('delays no answer; drain waits for the hints under way', async () => {
    let release = () => {};
    const hanging = new Promise<void>((resolve) => {
      release = resolve;
    });
    const slow = await fixture.start({ queue: { hint: () => hanging } });
    const reply = await slow.post('/v1/runs', key(north, 'requester'), createBody());
    expect(reply.status).toBe(201);
    let drained = false;
    const drain = slow.api.drain().then(() => {
      drained = true;
    });
    await slow.get('/healthz');
    expect(drained).toBe(false);
    release();
    await drain;
  });

  test('that even throws is logged and changes no answer', async () => {
    const bad = await fixture.start({
      queue: {
        hint: async () => {
          throw new Error('refused');
        },
      },
    });
    expect((await bad.post('/v1/runs', key(north, 'requester'), createBody())).status).toBe(201);
    await bad.api.drain();
    expect(bad.logged).toMatchObject([{ level: 'error' }]);
  });
});
