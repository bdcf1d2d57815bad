import fc from 'fast-check';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { type ApiFixture, apiFixture, createBody, PROPOSAL, type RunningApi } from '../testing/api-fixture.ts';

let fixture: ApiFixture;
let api: RunningApi;
let requester: string;
let approver: string;

beforeAll(async () => {
  fixture = await apiFixture();
  api = await fixture.start();
  requester = (await fixture.store.principal('requester')).key;
  approver = (await fixture.store.principal('approver')).key;
});
afterAll(() => fixture.close());

const RUNS = 250;

/** Sends it and checks what holds of every body: no 5xx, and a row exactly when the run was accepted. */
async function check(body: string | Uint8Array): Promise<void> {
  const before = await fixture.runCount();
  const reply = await api.post('/v1/runs', requester, body);
  expect(reply.status).toBeLessThan(500);
  const refused = reply.status >= 400;
  expect(reply.headers.get('content-type')).toBe(refused ? 'application/problem+json' : 'application/json');
  expect(Object.keys(reply.body)).toEqual(expect.arrayContaining(refused ? ['code', 'path', 'detail'] : ['run_id']));
  expect((await fixture.runCount()) - before).toBe(reply.status === 201 ? 1 : 0);
}

test('arbitrary bytes are never a fault of ours and leave no run when refused', async () => {
  await fc.assert(fc.asyncProperty(fc.uint8Array({ maxLength: 300 }), check), { numRuns: RUNS });
});

test('arbitrary JSON, and text that nearly is, likewise', async () => {
  const json = fc.json({ stringUnit: 'binary' });
  await fc.assert(fc.asyncProperty(json, check), { numRuns: RUNS });
  const broken = fc.tuple(json, fc.nat(), fc.string({ unit: 'binary', maxLength: 3 })).map(([text, at, put]) => {
    const place = at % (text.length + 1);
    return text.slice(0, place) + put + text.slice(place);
  });
  await fc.assert(fc.asyncProperty(broken, check), { numRuns: RUNS });
});

test('a valid request with anything in any place likewise', async () => {
  const whole = () =>
    createBody({ proposal: PROPOSAL, context: [{ source: 'mail', text: 'hello' }], supersedes: null });
  const place = fc.constantFrom(
    ['workflow'],
    ['request_id'],
    ['input'],
    ['allowed_operations'],
    ['allowed_operations', 0],
    ['proposer'],
    ['proposal'],
    ['context'],
    ['context', 0],
    ['context', 0, 'text'],
    ['supersedes'],
    ['input', 'order_id'],
    ['input', 'metadata'],
    ['input', 'requested_amount_minor'],
    ['input', 'currency'],
    ['proposal', 'amount_minor'],
    ['proposal', 'metadata'],
    ['proposal', 'evidence_refs'],
    ['extra'],
  );
  const anything = fc.oneof(
    fc.jsonValue({ stringUnit: 'binary' }),
    fc.string({ unit: 'binary' }),
    fc.double(),
    fc.bigInt().map(Number),
    fc.constantFrom('refund', 'external', 'read_order', '\u0000', '\ud800', -0, 2 ** 53, 1e308, '__proto__'),
  );
  await fc.assert(
    fc.asyncProperty(place, anything, async (path, value) => {
      const { supersedes: _, ...body } = whole();
      await check(JSON.stringify(put(body, path, value)));
    }),
    { numRuns: RUNS },
  );
});

test('anything in the path, the query or the body of the other routes is never a fault of ours', async () => {
  const { run_id } = await fixture.store.toAwaitingApproval();
  const run = await api.client(approver).getRun(run_id);
  const { approval_id, approval_digest, action_digest, action_revision } = run.approval ?? {};
  const right = { approval_id, approval_digest, action_digest, action_revision, decision: 'reject' };
  const text = fc.string({ unit: 'binary' }).map((value) => encodeURIComponent(value.toWellFormed()));
  const value = fc.jsonValue({ stringUnit: 'binary' });
  await fc.assert(
    fc.asyncProperty(text, value, fc.constantFrom(...Object.keys(right), 'reason'), async (word, any, member) => {
      const replies = await Promise.all([
        api.get(`/v1/runs/${word}`, requester),
        api.get(`/v1/runs?${word}=${word}`, requester),
        api.get(`/v1/runs?cursor=${word}`, requester),
        api.post(`/v1/runs/${word}/cancel`, requester, {}),
        // A valid rejection would end the run: every body here is broken, or rejects nothing.
        api.post(`/v1/runs/${run_id}/decisions`, approver, {
          ...right,
          action_digest: `sha256:${'0'.repeat(64)}`,
          [member]: any,
        }),
        api.post(`/v1/runs/${run_id}/proposals`, requester, { proposal: any }),
      ]);
      for (const reply of replies) expect(reply.status).toBeLessThan(500);
    }),
    { numRuns: 100 },
  );
  expect((await api.client(approver).getRun(run_id)).revision).toBe(run.revision);
});

function put(body: unknown, [first, ...rest]: readonly (string | number)[], value: unknown): unknown {
  if (first === undefined) return value;
  const inside = (body as Record<string | number, unknown> | undefined)?.[first];
  if (typeof first === 'number') return [put(inside, rest, value)];
  return { ...(body as object), [first]: put(inside, rest, value) };
}
