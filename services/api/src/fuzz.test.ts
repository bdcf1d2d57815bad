import fc from 'fast-check';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { fuzzDoor } from '../../../testing/case-inputs/fuzzed-bodies.ts';
import { type ApiFixture, apiFixture, type RunningApi } from '../testing/api-fixture.ts';
import { expectUnchanged, type Sent } from '../testing/stored-bytes.ts';
import { realDoors } from '../testing/workflow-doors.ts';

let fixture: ApiFixture;
let api: RunningApi;
let requester: string;
let approver: string;

beforeAll(async () => {
  fixture = await apiFixture();
  api = await fixture.start({ workflows: realDoors });
  requester = (await fixture.store.principal('requester')).key;
  approver = (await fixture.store.principal('approver')).key;
});
afterAll(() => fixture.close());

test('ten thousand bodies at the HTTP door: never a fault of ours, a row only for what was accepted, and not one byte of that changed', async () => {
  let accepted = 0;
  let rows = await fixture.runCount();
  let created: { run_id: string; sent: Sent }[] = [];
  const sent = await fuzzDoor(
    async (body) => {
      const reply = await api.api.fetch(
        new Request('http://api.test/v1/runs', {
          method: 'POST',
          headers: { authorization: `Bearer ${requester}`, 'content-type': 'application/json' },
          body,
        }),
      );
      const answer = (await reply.json()) as { run_id: string };
      expect(reply.status).toBeLessThan(500);
      const refused = reply.status >= 400;
      expect(reply.headers.get('content-type')).toBe(refused ? 'application/problem+json' : 'application/json');
      expect(Object.keys(answer)).toEqual(expect.arrayContaining(refused ? ['code', 'path', 'detail'] : ['run_id']));
      if (reply.status === 201)
        created.push({ run_id: answer.run_id, sent: JSON.parse(new TextDecoder().decode(body)) as Sent });
    },
    async () => {
      rows += created.length;
      accepted += created.length;
      expect(await fixture.runCount()).toBe(rows);
      await expectUnchanged(fixture.store.owner, created);
      created = [];
    },
  );
  // A fuzz that is always refused proves nothing.
  expect(accepted).toBeGreaterThan(sent / 10);
  expect(api.logged).toEqual([]);
}, 120_000);

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
