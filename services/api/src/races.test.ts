import type { RunId } from '@counterstamp/manifest-core';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { type ApiFixture, apiFixture, createBody, PROPOSAL, type RunningApi } from '../testing/api-fixture.ts';

let fixture: ApiFixture;
let apis: RunningApi[];
let requester: string;
let approver: string;

beforeAll(async () => {
  fixture = await apiFixture();
  apis = [await fixture.start(), await fixture.start()];
  requester = (await fixture.store.principal('requester')).key;
  approver = (await fixture.store.principal('approver')).key;
});
afterAll(() => fixture.close());

function one(of: number): RunningApi {
  const api = apis[of % apis.length];
  if (api === undefined) throw new Error('no api');
  return api;
}

/** Twenty calls at once, in turn over both processes. */
function twenty<T>(call: (api: RunningApi, n: number) => Promise<T>): Promise<T[]> {
  return Promise.all(Array.from({ length: 20 }, (_, n) => call(one(n), n)));
}

async function decision(run_id: RunId, choice = 'approve') {
  const { approval } = await one(0).client(approver).getRun(run_id);
  if (approval === null) throw new Error('nothing to decide');
  const { approval_id, approval_digest, action_digest, action_revision } = approval;
  return { approval_id, approval_digest, action_digest, action_revision, decision: choice };
}

test('O11 twenty approvals of one person at once over two apis are one decision, and everybody sees it', async () => {
  const { run_id } = await fixture.store.toAwaitingApproval();
  const body = await decision(run_id);
  const replies = await twenty((api) => api.post(`/v1/runs/${run_id}/decisions`, approver, body));
  expect(new Set(replies.map((reply) => reply.status))).toEqual(new Set([200]));
  expect(replies.filter((reply) => reply.body.result === 'recorded')).toHaveLength(1);
  expect(new Set(replies.map((reply) => reply.body.decision.decision_id)).size).toBe(1);
  const run = await one(1).client(approver).getRun(run_id);
  expect(run.approval?.decisions).toHaveLength(1);
  await Promise.all(apis.map((api) => api.api.drain()));
  const hinted = apis.flatMap((api) => api.hints).filter((hint) => hint.run_id === run_id);
  expect(hinted).toEqual([{ stage: 'execute', run_id, revision: run.revision }]);
});

test('O11 twenty people at once over two apis are one decision; the others learn which', async () => {
  const { run_id } = await fixture.store.toAwaitingApproval();
  const body = await decision(run_id);
  const keys: string[] = [];
  for (let n = 0; n < 20; n++) keys.push((await fixture.store.principal('approver', `approver ${n}`)).key);
  const replies = await twenty((api, n) => api.post(`/v1/runs/${run_id}/decisions`, keys[n], body));
  const [won, lost] = [replies.filter(({ status }) => status === 200), replies.filter(({ status }) => status === 409)];
  expect([won.length, lost.length]).toEqual([1, 19]);
  for (const reply of lost)
    expect(reply.body).toMatchObject({ code: 'already_decided', decisions: [won[0]?.body.decision] });
});

test('O11 an approval and a rejection at once end in one of the two, never in both', async () => {
  for (let round = 0; round < 50; round++) {
    const { run_id } = await fixture.store.toAwaitingApproval();
    const [yes, no] = [await decision(run_id), await decision(run_id, 'reject')];
    const path = `/v1/runs/${run_id}/decisions`;
    const replies = await Promise.all([one(0).post(path, approver, yes), one(1).post(path, approver, no)]);
    expect(replies.map(({ status }) => status).sort((a, b) => a - b)).toEqual([200, 409]);
    const run = await one(0).client(approver).getRun(run_id);
    expect(run.approval?.decisions).toHaveLength(1);
  }
});

test('O11 a later click is told what stands, also when the run is done: the same person’s same decision again is no fault, anything else is', async () => {
  const waiting = await fixture.store.toAwaitingApproval();
  const { run_id } = waiting;
  const [yes, no] = [await decision(run_id), await decision(run_id, 'reject')];
  const path = `/v1/runs/${run_id}/decisions`;
  const other = (await fixture.store.principal('approver', 'later approver')).key;
  const first = await one(0).post(path, approver, yes);
  const recorded = first.body.decision;
  // Before the dispatch another person's rejection is a veto, and recorded as such: it is not among what is refused here.
  const expectSettled = async (dispatched: boolean) => {
    expect(await one(1).post(path, approver, yes)).toMatchObject({
      status: 200,
      body: { result: 'repeated', decision: recorded },
    });
    for (const [key, body] of [[approver, no], [other, yes], ...(dispatched ? [[other, no] as const] : [])] as const) {
      const reply = await one(1).post(path, key, body);
      expect(reply).toMatchObject({ status: 409, body: { code: 'already_decided', decisions: [recorded] } });
      expect(reply.body.detail).not.toMatch(/fail/i);
    }
  };
  await expectSettled(false);

  const dispatched = await fixture.store.dispatch(await fixture.row(run_id));
  if (dispatched.kind !== 'committed') throw new Error(dispatched.kind);
  const attempt_id = (await fixture.store.stores.executor.load(run_id))?.manifest.attempts[0]?.attempt_id ?? '';
  const accepted = await fixture.store.move('executor', dispatched.row, 'effect_accepted', 'verifying', {
    attempt_outcome: { attempt_id, status: 'succeeded', provider_ref: 're_1', response: {} },
  });
  await expectSettled(true);
  await fixture.store.move(
    'verifier',
    accepted,
    'effect_verified',
    'completed',
    { observation: { kind: 'matched', provider_ref: 're_1', body: {} } },
    null,
  );
  await expectSettled(true);
  const run = await one(0).client(approver).getRun(run_id);
  expect([run.state, run.approval?.decisions.length, run.attempts.length]).toEqual(['completed', 1, 1]);
});

test('the same request twenty times at once is one run', async () => {
  const body = createBody();
  const replies = await twenty((api) => api.post('/v1/runs', requester, body));
  expect(replies.filter(({ status }) => status === 201)).toHaveLength(1);
  expect(replies.filter(({ status }) => status === 200)).toHaveLength(19);
  expect(new Set(replies.map((reply) => reply.body.run_id)).size).toBe(1);
});

test('twenty bodies under one request id at once are one run; the others conflict', async () => {
  const body = createBody();
  const before = await fixture.runCount();
  const replies = await twenty((api, n) =>
    api.post('/v1/runs', requester, { ...body, context: [{ source: 'mail', text: `${n}` }] }),
  );
  expect(replies.filter(({ status }) => status === 201)).toHaveLength(1);
  expect(replies.filter(({ body: { code } }) => code === 'idempotency_conflict')).toHaveLength(19);
  expect(await fixture.runCount()).toBe(before + 1);
});

test('cancels, proposals and an approval at once leave one unbroken history', async () => {
  const { run_id } = await fixture.store.toAwaitingApproval();
  const body = await decision(run_id);
  const replies = await twenty((api, n) => {
    if (n === 3) return api.post(`/v1/runs/${run_id}/cancel`, requester, {});
    if (n === 5) return api.post(`/v1/runs/${run_id}/decisions`, approver, body);
    return api.post(`/v1/runs/${run_id}/proposals`, requester, { proposal: { ...PROPOSAL, amount_minor: 100 + n } });
  });
  for (const reply of replies) expect(reply.status).toBeLessThan(500);
  const run = await one(0).client(approver).getRun(run_id);
  const { events } = await one(0).client(approver).runEvents(run_id);
  expect(events.map((event) => event.revision)).toEqual(Array.from({ length: run.revision }, (_, n) => n + 1));
});

test('a command that loses every swap says so after five tries', async () => {
  const { run_id } = await fixture.store.createRun();
  let tries = 0;
  const unlucky = await fixture.start({
    store: {
      ...fixture.store.api,
      commit: async () => {
        tries++;
        return { kind: 'stale_revision' };
      },
    },
  });
  expect(await unlucky.post(`/v1/runs/${run_id}/cancel`, requester, {})).toMatchObject({
    status: 409,
    body: { code: 'stale_revision' },
  });
  expect(tries).toBe(5);
});
