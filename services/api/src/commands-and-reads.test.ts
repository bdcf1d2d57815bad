import { once } from 'node:events';
import { connect } from 'node:net';
import { ROUTES } from '@counterstamp/api-contract';
import { LIMITS, type RunId, verifyChain } from '@counterstamp/manifest-core';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { fixedAction } from '../../../testing/store-fixture.ts';
import { type ApiFixture, apiFixture, createBody, PROPOSAL, type RunningApi } from '../testing/api-fixture.ts';

let fixture: ApiFixture;
let api: RunningApi;
let requester: string;
let approver: string;
let operator: string;

beforeAll(async () => {
  fixture = await apiFixture();
  api = await fixture.start();
  requester = (await fixture.store.principal('requester')).key;
  approver = (await fixture.store.principal('approver')).key;
  operator = (await fixture.store.principal('operator')).key;
});
afterAll(() => fixture.close());

async function created(change: Record<string, unknown> = {}): Promise<RunId> {
  const reply = await api.post('/v1/runs', requester, createBody(change));
  expect(reply).toMatchObject({ status: 201 });
  return reply.body.run_id;
}

/** A run that waits for an approval of `PROPOSAL`, which came with the request. */
async function awaiting(): Promise<RunId> {
  const run_id = await created({ proposal: PROPOSAL });
  const collected = await fixture.toCollected(run_id);
  const loaded = await fixture.store.stores.preflight.load(run_id);
  const proposal_id = loaded?.manifest.proposals[0]?.proposal_id ?? '';
  const proposed = await fixture.store.move('preflight', collected, 'proposal_received', 'proposed', { proposal_id });
  const action = fixedAction(proposed, loaded?.nowMs ?? 0, { action: PROPOSAL });
  await fixture.store.move('preflight', proposed, 'action_fixed', 'awaiting_approval', action);
  return run_id;
}

async function shown(run_id: RunId, decision: 'approve' | 'reject' = 'approve') {
  const { approval } = await api.client(approver).getRun(run_id);
  if (approval === null) throw new Error('nothing to decide');
  const { approval_id, approval_digest, action_digest, action_revision } = approval;
  return { approval_id, approval_digest, action_digest, action_revision, decision };
}

describe('creating a run', () => {
  test('answers 201 with the run, its place and a hint of its first stage', async () => {
    const body = createBody({ context: [{ source: 'mail', text: 'it arrived broken' }] });
    const reply = await api.post('/v1/runs', requester, body);
    const { run_id } = reply.body;
    expect(reply.body).toEqual({ run_id, state: 'queued', revision: 1, generation: 1 });
    expect(reply.status).toBe(201);
    expect(reply.headers.get('location')).toBe(`/v1/runs/${run_id}`);
    expect(reply.headers.get('cache-control')).toBe('no-store');
    expect(reply.headers.get('x-content-type-options')).toBe('nosniff');
    await api.api.drain();
    expect(api.hints).toContainEqual({ stage: 'preflight', run_id, revision: 1 });
    const run = await api.client(approver).getRun(run_id);
    expect(run).toMatchObject({
      request_id: body.request_id,
      proposer: 'rules',
      context: body.context,
      allowed_operations: ['read_order', 'refund_order', 'read_refund_status'],
      trace_context: null,
      next: null,
    });
    expect(run.guards[0]).toEqual({ guard: 'state', pass: false, detail: 'the run is queued' });
  });

  test('and deciding pass their failpoints after the commit and before the hint', async () => {
    const seen: string[] = [];
    const watched = await fixture.start({
      failpoint: {
        reach: async (name, run_id) => {
          const loaded = run_id === undefined ? undefined : await fixture.store.stores.preflight.load(run_id);
          seen.push(`${name} at revision ${loaded?.manifest.revision}`);
        },
        reachSync: () => undefined,
      },
      queue: {
        hint: async (stage) => {
          seen.push(stage);
        },
      },
    });
    await watched.client(requester).createRun(createBody() as never);
    await watched.api.drain();
    const run_id = await awaiting();
    const { revision } = await watched.client(approver).decide(run_id, await shown(run_id));
    await watched.api.drain();
    expect(seen).toEqual([
      'create.committed.before-hint at revision 1',
      'preflight',
      `decision.committed.before-hint at revision ${revision}`,
      'execute',
    ]);
  });

  test('answers 200 with the same run when the same JSON comes again in another spelling', async () => {
    const first = await api.post(
      '/v1/runs',
      requester,
      '{"request_id":"case_spelling","input":{"order_id":"order_913","requested_amount_minor":4200,"currency":"USD","reason":"é"}}',
    );
    const second = await api.post(
      '/v1/runs',
      requester,
      '{ "input": {"reason":"\\u00e9", "currency":"USD", "requested_amount_minor": 4200.0, "order_id":"order_913"},\n"request_id":"case_spelling"}',
      { 'content-type': 'Application/JSON; charset="UTF-8"' },
    );
    expect([first.status, second.status]).toEqual([201, 200]);
    expect(second.body).toEqual(first.body);
    expect(second.headers.get('location')).toBe(first.headers.get('location'));
  });

  test('refuses another body under the same request id and names the run that has it', async () => {
    const body = createBody();
    const first = await api.post('/v1/runs', requester, body);
    const second = await api.post('/v1/runs', requester, {
      ...body,
      input: { ...(body.input as object), reason: 'x' },
    });
    expect(second).toMatchObject({
      status: 409,
      body: { code: 'idempotency_conflict', path: '/request_id', run_id: first.body.run_id },
    });
    expect(second.headers.get('content-type')).toBe('application/problem+json');
  });

  test('keeps a proposal that comes along as untrusted and takes the proposer to be outside', async () => {
    const run = await api.client(approver).getRun(await created({ proposal: PROPOSAL }));
    expect(run.proposer).toBe('external');
    expect(run.proposals).toMatchObject([{ author_kind: 'external', body: PROPOSAL, refusal: null, revision: 1 }]);
  });

  test('keeps a valid W3C trace context and drops an invalid one', async () => {
    const valid = '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01';
    const kept = await api.post('/v1/runs', requester, createBody(), { traceparent: valid });
    const dropped = await api.post('/v1/runs', requester, createBody(), { traceparent: `00-${'0'.repeat(32)}-1-01` });
    expect((await api.client(approver).getRun(kept.body.run_id)).trace_context).toBe(valid);
    expect((await api.client(approver).getRun(dropped.body.run_id)).trace_context).toBeNull();
  });

  test('opens the next generation only over a stopped run of the same request', async () => {
    const body = createBody();
    const { run_id } = await api.client(requester).createRun(body as never);
    const successor = { ...body, supersedes: run_id };
    expect(await api.post('/v1/runs', requester, successor)).toMatchObject({
      status: 409,
      body: { code: 'supersedes_invalid', path: '/supersedes' },
    });
    await api.client(requester).cancelRun(run_id);
    const made = await api.post('/v1/runs', requester, successor);
    expect(made).toMatchObject({ status: 201, body: { generation: 2 } });
    expect(await api.post('/v1/runs', requester, successor)).toMatchObject({ status: 200, body: made.body });
  });

  test.each([
    ['an unknown workflow', { workflow: 'payout' }, 'workflow_unknown', '/workflow'],
    [
      'an unknown operation',
      { allowed_operations: ['read_order', 'drop_table'] },
      'value_invalid',
      '/allowed_operations/1',
    ],
    [
      'an operation named twice',
      { allowed_operations: ['read_order', 'read_order'] },
      'value_invalid',
      '/allowed_operations/1',
    ],
    ['no operation at all', { allowed_operations: [] }, 'value_invalid', '/allowed_operations'],
    ['a fault of the input', { input: { order_id: 'o' } }, 'amount_missing', '/input/requested_amount_minor'],
    [
      'what only the workflow can check',
      { input: { order_id: 'o', requested_amount_minor: 1, currency: 'XXX', reason: 'r' } },
      'currency_unsupported',
      '/input/currency',
    ],
    [
      'a fault of the proposal',
      { proposal: { ...PROPOSAL, amount_minor: 1.5 } },
      'amount_not_integer',
      '/proposal/amount_minor',
    ],
    [
      'a proposal with an approval in it',
      { proposal: { ...PROPOSAL, approved_by: 'cfo' } },
      'unknown_member',
      '/proposal/approved_by',
    ],
    ['nine entries of context', { context: Array(9).fill({ source: 's', text: 't' }) }, 'value_too_large', '/context'],
    ['an approval that lives too short to be used', { approval_life_ms: 999 }, 'value_invalid', '/approval_life_ms'],
    [
      'an approval that expires before it could be used',
      { approval_life_ms: 1_200 },
      'value_invalid',
      '/approval_life_ms',
    ],
    [
      'a run that lives longer than the installation lets it',
      { run_life_ms: 2 ** 40 },
      'value_too_large',
      '/run_life_ms',
    ],
    ['a run that lives too short to be read', { run_life_ms: 999 }, 'value_invalid', '/run_life_ms'],
    [
      'an approval that lives longer than the installation allows',
      { approval_life_ms: 60_001 },
      'value_too_large',
      '/approval_life_ms',
    ],
    [
      'an approval that lives beyond any integer of the database',
      { approval_life_ms: 2 ** 40 },
      'value_too_large',
      '/approval_life_ms',
    ],
    [
      'a person acted for whom the tenant does not have',
      { on_behalf_of: 'ghost' },
      'on_behalf_unknown',
      '/on_behalf_of',
    ],
    ['a malformed superseded run', { supersedes: 'run_1' }, 'run_id_malformed', '/supersedes'],
    ['a request id with a slash', { request_id: 'a/b' }, 'identifier_charset', '/request_id'],
  ])('refuses %s with its place and leaves nothing behind', async (_, change, code, path) => {
    const before = await fixture.runCount();
    expect(await api.post('/v1/runs', requester, createBody(change))).toMatchObject({
      status: 400,
      body: { code, path },
    });
    expect(await fixture.runCount()).toBe(before);
  });
});

describe('listing runs', () => {
  test('goes through all of them, newest first, page by page', async () => {
    const key = (await fixture.store.principal('requester', 'lister', 'shop_list')).key;
    const made: string[] = [];
    for (let n = 0; n < 5; n++) made.push((await api.client(key).createRun(createBody() as never)).run_id);
    const seen: string[] = [];
    let cursor: string | null = null;
    do {
      const page = await api.client(key).listRuns({ limit: 2, ...(cursor === null ? {} : { cursor }) });
      expect(page.runs.length).toBeLessThanOrEqual(2);
      seen.push(...page.runs.map((run) => run.run_id));
      cursor = page.next_cursor;
    } while (cursor !== null);
    // Test ids are random, so newest first is by id alone here.
    expect(seen).toEqual(made.toSorted((a, b) => (a < b ? 1 : -1)));
    expect((await api.client(key).listRuns({ state: 'completed' })).runs).toEqual([]);
    expect((await api.client(key).listRuns({ limit: 5 })).next_cursor).toBeNull();
  });

  test('refuses a cursor that another list made', async () => {
    const { next_cursor } = await api.client(operator).listRuns({ limit: 1 });
    expect(next_cursor).not.toBeNull();
    expect(await api.get(`/v1/runs?state=failed&cursor=${next_cursor}`, operator)).toMatchObject({
      status: 400,
      body: { code: 'cursor_malformed', path: '/cursor' },
    });
  });

  test.each([
    ['limit=0', 'value_invalid', '/limit'],
    ['limit=201', 'value_invalid', '/limit'],
    ['limit=', 'value_invalid', '/limit'],
    ['limit=1e2', 'value_invalid', '/limit'],
    ['limit=1&limit=2', 'value_invalid', '/limit'],
    ['state=done', 'value_invalid', '/state'],
    ['sate=failed', 'unknown_member', '/sate'],
    ['__proto__=1', 'unknown_member', '/__proto__'],
    ['cursor=', 'cursor_malformed', '/cursor'],
    ['cursor=cnVucw', 'cursor_malformed', '/cursor'],
    ['cursor=%00%ff', 'cursor_malformed', '/cursor'],
  ])('refuses ?%s', async (query, code, path) => {
    expect(await api.get(`/v1/runs?${query}`, operator)).toMatchObject({ status: 400, body: { code, path } });
  });
});

describe('events', () => {
  test('come oldest first, with payloads and hashes that anyone can compute again', async () => {
    const run_id = await awaiting();
    const { events } = await api.client(requester).runEvents(run_id);
    const run = await api.client(requester).getRun(run_id);
    expect(events.map((event) => event.revision)).toEqual(events.map((_, index) => index + 1));
    expect(verifyChain(events, run.chain_head)).toEqual([]);
    expect(events[0]?.at).toBe(run.created_at);
  });
});

describe('deciding', () => {
  test('records an approval of what was shown and hints the executor', async () => {
    const run_id = await awaiting();
    const answer = await api.client(approver).decide(run_id, { ...(await shown(run_id)), reason: 'looks right' });
    const who = await fixture.store.principal('approver');
    expect(answer).toMatchObject({
      result: 'recorded',
      state: 'awaiting_approval',
      decision: { decision: 'approve', principal_id: who.principal_id, method: 'dev_key', reason: 'looks right' },
    });
    await api.api.drain();
    expect(api.hints).toContainEqual({ stage: 'execute', run_id, revision: answer.revision });
    const run = await api.client(approver).getRun(run_id);
    expect(run.guards.every((guard) => guard.pass)).toBe(true);
  });

  test('of the same person and the same choice again answers 200 with the stored decision', async () => {
    const run_id = await awaiting();
    const first = await api.client(approver).decide(run_id, await shown(run_id));
    const again = await api.client(approver).decide(run_id, await shown(run_id));
    expect(again).toEqual({ ...first, result: 'repeated' });
  });

  test('otherwise after a decision answers 409 with what is recorded', async () => {
    const run_id = await awaiting();
    const first = await api.client(approver).decide(run_id, await shown(run_id));
    expect(await api.post(`/v1/runs/${run_id}/decisions`, approver, await shown(run_id, 'reject'))).toMatchObject({
      status: 409,
      body: { code: 'already_decided', decisions: [first.decision] },
    });
  });

  test('to reject ends the run, with its reason and what is safe to do next', async () => {
    const run_id = await awaiting();
    const answer = await api.client(approver).decide(run_id, await shown(run_id, 'reject'));
    expect(answer.state).toBe('rejected');
    const run = await api.client(requester).getRun(run_id);
    expect(run.stop_reason?.code).toBe('approval_rejected');
    expect(run.next).toContain('successor run');
  });

  test('with another digest, revision or approval is refused and decides nothing', async () => {
    const run_id = await awaiting();
    const other = await awaiting();
    const right = await shown(run_id);
    const wrong = `sha256:${'0'.repeat(64)}`;
    const path = `/v1/runs/${run_id}/decisions`;
    const tries = [
      [{ ...right, approval_digest: wrong }, 409, 'digest_mismatch'],
      [{ ...right, action_digest: wrong }, 409, 'digest_mismatch'],
      [{ ...right, action_revision: 99 }, 409, 'digest_mismatch'],
      [await shown(other), 404, 'approval_not_found'],
      [{ ...right, action_revision: 2 ** 31 }, 400, 'value_too_large'],
    ] as const;
    for (const [body, status, code] of tries)
      expect(await api.post(path, approver, body)).toMatchObject({ status, body: { code } });
    expect((await api.client(approver).getRun(run_id)).approval?.decisions).toEqual([]);
  });

  test('where two people are asked hints nobody before the second has approved', async () => {
    const { run_id } = await fixture.store.toAwaitingApproval({}, { approvals: 2 });
    const second = (await fixture.store.principal('approver', 'second approver')).key;
    const one = await api.client(approver).decide(run_id, await shown(run_id));
    const two = await api.client(second).decide(run_id, await shown(run_id));
    expect([one.decisions.length, two.decisions.length]).toEqual([1, 2]);
    await api.api.drain();
    const hinted = api.hints.filter((hint) => hint.run_id === run_id);
    expect(hinted).toEqual([{ stage: 'execute', run_id, revision: two.revision }]);
  });

  test('on a run that waits for nothing is refused', async () => {
    const run_id = await awaiting();
    const body = await shown(run_id);
    await api.client(requester).cancelRun(run_id);
    expect(await api.post(`/v1/runs/${run_id}/decisions`, approver, body)).toMatchObject({
      status: 409,
      body: { code: 'not_awaiting_approval' },
    });
  });
});

describe('proposing', () => {
  test('while the run collects and has its evidence moves it on to the checks', async () => {
    const run_id = await created({ proposer: 'external' });
    await fixture.toCollected(run_id);
    const answer = await api.client(requester).propose(run_id, { proposal: PROPOSAL });
    expect(answer).toMatchObject({ run_id, state: 'proposed', revision: 5 });
    await api.api.drain();
    expect(api.hints).toContainEqual({ stage: 'propose', run_id, revision: 5 });
    const run = await api.client(requester).getRun(run_id);
    expect(run.proposals).toMatchObject([{ proposal_id: answer.proposal_id, body: PROPOSAL, author_kind: 'external' }]);
    expect(await api.client(requester).propose(run_id, { proposal: PROPOSAL })).toEqual(answer);
    expect(
      await api.post(`/v1/runs/${run_id}/proposals`, requester, { proposal: { ...PROPOSAL, amount_minor: 1 } }),
    ).toMatchObject({ status: 409, body: { code: 'not_awaiting_proposal' } });
  });

  test('before the evidence is complete is refused', async () => {
    const run_id = await created({ proposer: 'external' });
    expect(await api.post(`/v1/runs/${run_id}/proposals`, requester, { proposal: PROPOSAL })).toMatchObject({
      status: 409,
      body: { code: 'not_awaiting_proposal' },
    });
  });

  test('something else while an approval waits voids the approval; the same again changes nothing', async () => {
    const run_id = await awaiting();
    await api.client(approver).decide(run_id, await shown(run_id));
    const before = await api.client(requester).getRun(run_id);
    const same = await api.client(requester).propose(run_id, { proposal: { ...PROPOSAL } });
    expect(same).toMatchObject({ state: 'awaiting_approval', revision: before.revision });

    const changed = await api.client(requester).propose(run_id, { proposal: { ...PROPOSAL, amount_minor: 4100 } });
    expect(changed).toMatchObject({ state: 'collecting', revision: before.revision + 1 });
    const after = await api.client(requester).getRun(run_id);
    expect(after).toMatchObject({ approval: null, decisions_sufficient: false, counters: { proposal_cycles: 1 } });
    await api.api.drain();
    expect(api.hints).toContainEqual({ stage: 'propose', run_id, revision: changed.revision });
  });

  test('once more than the cycles allow is refused', async () => {
    const run_id = await awaiting();
    const strict = await fixture.start({
      limits: { ...LIMITS, proposal_cycles_max: 1 },
    });
    expect(
      await strict.post(`/v1/runs/${run_id}/proposals`, requester, { proposal: { ...PROPOSAL, amount_minor: 4100 } }),
    ).toMatchObject({ status: 409, body: { code: 'proposal_limit' } });
  });

  test('what has not the form of a proposal is refused with its place', async () => {
    const run_id = await awaiting();
    const { amount_minor: _, ...rest } = PROPOSAL;
    expect(await api.post(`/v1/runs/${run_id}/proposals`, requester, { proposal: rest })).toMatchObject({
      status: 400,
      body: { code: 'amount_missing', path: '/proposal/amount_minor' },
    });
  });
});

describe('cancelling', () => {
  test.each(['queued', 'awaiting_approval'])('stops a run that is %s', async (state) => {
    const run_id = state === 'queued' ? await created() : await awaiting();
    const answer = await api.client(operator).cancelRun(run_id, { reason: 'the customer called' });
    expect(answer.state).toBe('rejected');
    const run = await api.client(operator).getRun(run_id);
    expect(run.stop_reason).toEqual({
      code: 'cancelled',
      message: 'The run was cancelled before anything was sent. the customer called',
    });
  });

  test('needs no body', async () => {
    expect(await api.post(`/v1/runs/${await created()}/cancel`, requester)).toMatchObject({
      status: 200,
      body: { state: 'rejected' },
    });
  });

  test('what was sent already is refused', async () => {
    const { row } = await fixture.store.toExecuting();
    expect(await api.post(`/v1/runs/${row.run_id}/cancel`, requester, {})).toMatchObject({
      status: 409,
      body: { code: 'not_cancellable' },
    });
  });
});

describe('the door itself', () => {
  test('describes every route in OpenAPI 3.1', async () => {
    const response = await fetch(`${api.url}/openapi.json`);
    expect(response.headers.get('content-type')).toBe('application/json');
    const body = (await response.json()) as { openapi: string; paths: Record<string, unknown>; components: unknown };
    expect(body.openapi).toBe('3.1.0');
    expect(new Set(Object.keys(body.paths))).toEqual(new Set(Object.values(ROUTES).map((route) => route.path)));
    expect(body.paths['/v1/runs']).toMatchObject({
      post: {
        security: [{ api_key: [] }, { session: [] }],
        requestBody: {
          content: {
            'application/json': { schema: { required: ['request_id', 'input'], additionalProperties: false } },
          },
        },
        responses: { 200: {}, 201: {}, 409: { content: { 'application/problem+json': {} } } },
      },
    });
    expect(body.paths['/v1/runs/{run_id}/verdicts']).toMatchObject({
      post: {
        requestBody: {
          content: {
            'application/json': {
              schema: {
                oneOf: [
                  { properties: { verdict: { enum: ['landed'] } } },
                  { required: expect.arrayContaining(['observed_at']) },
                  { required: expect.arrayContaining(['effect']) },
                  {},
                  {},
                ],
              },
            },
          },
        },
      },
    });
    expect(body.components).toMatchObject({ securitySchemes: { api_key: { type: 'http', scheme: 'bearer' } } });
  });

  test('says that it lives and that it is ready, also while the queue is away', async () => {
    expect(await api.get('/healthz')).toMatchObject({ status: 200, body: { status: 'ok' } });
    expect(await api.get('/readyz')).toMatchObject({ status: 200, body: { ready: true, queue: 'unknown' } });
    const alone = await fixture.start({ pingQueue: async () => ({ kind: 'unavailable' }) });
    expect(await alone.get('/readyz')).toMatchObject({
      status: 200,
      body: { ready: true, database: 'ok', queue: 'unavailable' },
    });
  });

  test.each([
    ['GET', '/', 404, 'route_not_found'],
    ['GET', '/v1/runs/', 404, 'route_not_found'],
    ['GET', '/v1/%ff%00', 404, 'route_not_found'],
    ['POST', '/v1/runs/run_x/execute', 404, 'route_not_found'],
    ['DELETE', '/v1/runs', 405, 'method_not_allowed'],
    ['PUT', '/v1/runs/run_x', 405, 'method_not_allowed'],
    ['OPTIONS', '/v1/runs', 405, 'method_not_allowed'],
    ['PROPFIND', '/v1/runs', 405, 'method_not_allowed'],
    ['GET', '/v1/runs/run_x/decisions', 405, 'method_not_allowed'],
    ['POST', '/healthz', 405, 'method_not_allowed'],
  ])('answers %s %s with %i %s', async (method, path, status, code) => {
    const response = await fetch(`${api.url}${path}`, { method });
    expect(response.status).toBe(status);
    expect(await response.json()).toMatchObject({ code, status });
    expect(response.headers.get('x-content-type-options')).toBe('nosniff');
  });

  test('names the methods that an address takes', async () => {
    const allowed = async (path: string) =>
      (await fetch(`${api.url}${path}`, { method: 'DELETE' })).headers.get('allow');
    expect(await allowed('/v1/runs')).toBe('POST, GET, HEAD');
    expect(await allowed('/v1/runs/x/decisions')).toBe('POST');
  });

  test('answers HEAD like GET without a body', async () => {
    for (const [path, status] of [
      ['/healthz', 200],
      ['/v1/runs', 401],
      ['/v1/runs/x/decisions', 405],
    ] as const) {
      const response = await fetch(`${api.url}${path}`, { method: 'HEAD' });
      expect([response.status, await response.text()]).toEqual([status, '']);
    }
  });

  test.each([
    'TRACE /v1/runs HTTP/1.1\r\nHost: x',
    'GET http://elsewhere.test/v1/runs HTTP/1.1\r\nHost: x',
    'GET /healthz HTTP/1.1\r\nHost: a b<>',
    'OPTIONS * HTTP/1.1\r\nHost: x',
    'GET /v1\\\\runs HTTP/1.1\r\nHost: x',
    'GET /v1/../../etc HTTP/1.1\r\nHost: x',
    'NOSUCH /v1/runs HTTP/1.1\r\nHost: x',
    'GET /v1/runs HTTP/1.1\r\nHost: x\r\nContent-Length: 5',
    'POST /v1/runs HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999',
    'POST /v1/runs HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nContent-Length: 3',
  ])('answers the odd request %j with 4xx', async (request) => {
    const { hostname, port } = new URL(api.url);
    const socket = connect(Number(port), hostname);
    socket.write(`${request}\r\nConnection: close\r\n\r\n`);
    const [answer] = (await once(socket, 'data')) as [Buffer];
    socket.destroy();
    expect(answer.toString()).toMatch(/^HTTP\/1\.1 4\d\d /);
  });

  test('labels what it observes from a closed set, whatever is asked for', async () => {
    const quiet = await fixture.start();
    await quiet.get(`/v1/runs/${await created()}`, requester);
    await quiet.get('/v1/runs/run_nothing', requester);
    await quiet.get('/some/where/else');
    await fetch(`${quiet.url}/v1/runs`, { method: 'PROPFIND' });
    expect(quiet.observed.map(({ route, method, status }) => `${method} ${route} ${status}`)).toEqual([
      'GET /v1/runs/{run_id} 200',
      'GET /v1/runs/{run_id} 400',
      'GET unmatched 404',
      'other /v1/runs 405',
    ]);
  });
});
