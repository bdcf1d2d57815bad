import { type RunId, stopReason } from '@counterstamp/manifest-core';
import fc from 'fast-check';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { signedIn } from '../../../testing/browser.ts';
import { fuzzDoor } from '../../../testing/case-inputs/fuzzed-bodies.ts';
import { type ApiFixture, apiFixture, type RunningApi } from '../testing/api-fixture.ts';
import { expectUnchanged, type Sent } from '../testing/stored-bytes.ts';
import { realDoors } from '../testing/workflow-doors.ts';

let fixture: ApiFixture;
let api: RunningApi;
let requester: string;
let approver: string;
let operator: string;

beforeAll(async () => {
  fixture = await apiFixture();
  // A fuzz is one principal who asks far too often.
  const rates = { per_principal: 1_000_000, per_tenant: 1_000_000, unauthenticated: 1_000_000 };
  api = await fixture.start({ workflows: realDoors, rates });
  requester = (await fixture.store.principal('requester')).key;
  approver = (await fixture.store.principal('approver')).key;
  operator = (await fixture.store.principal('operator')).key;
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

test('any verdict, support, fence or query of an operator is never a fault of ours, and what is refused changes nothing', async () => {
  const { row, attempt_id } = await fixture.store.toExecuting();
  const { run_id, revision } = await fixture.store.move('executor', row, 'outcome_uncertain', 'needs_reconciliation', {
    attempt_outcome: { attempt_id, status: 'uncertain', provider_ref: null, response: { class: 'uncertain' } },
    stop_reason: stopReason('effect_not_found'),
    parked_reason: 'effect_not_found',
  });
  // A right body would move the run: each of these is too early, stale, or broken in one member.
  const bodies = [
    { revision, verdict: 'did_not_land', evidence: 'x', observed_at: '2026-01-31T09:30:00Z' },
    { revision: revision + 1, verdict: 'landed', evidence: 'x', provider_ref: 're_1' },
    {
      revision: revision + 1,
      verdict: 'landed_differently',
      evidence: 'x',
      effect: { provider_ref: 're_1', status: 'done', amount_minor: 1, currency: 'USD', target: 'order_1' },
    },
  ];
  const support = {
    revision: revision + 1,
    kind: 'confirm_difference',
    effect_digest: `sha256:${'0'.repeat(64)}`,
    reason: 'x',
  };
  const word = fc.string({ unit: 'binary' }).map((text) => encodeURIComponent(text.toWellFormed()));
  const value = fc.jsonValue({ stringUnit: 'binary' });
  const member = fc.constantFrom(
    'verdict',
    'evidence',
    'observed_at',
    'provider_ref',
    'effect',
    'kind',
    'effect_digest',
    'reason',
  );
  const effectMember = fc.constantFrom('provider_ref', 'status', 'amount_minor', 'currency', 'target');
  await fc.assert(
    fc.asyncProperty(word, value, member, effectMember, async (name, any, changed, inner) => {
      const replies = await Promise.all([
        ...bodies.map((body) => api.post(`/v1/runs/${run_id}/verdicts`, operator, { ...body, [changed]: any })),
        api.post(`/v1/runs/${run_id}/verdicts`, operator, {
          ...bodies[2],
          effect: { ...bodies[2]?.effect, [inner]: any },
        }),
        api.post(`/v1/runs/${run_id}/supports`, operator, { ...support, [changed]: any }),
        api.post(`/v1/runs/${name}/verdicts`, operator, bodies[1]),
        api.post(`/v1/instances/${name}/fence`, operator, { evidence: any }),
        api.post('/v1/instances/ins_nobody/fence', operator, { evidence: 'x', credential_rotated: any }),
        api.get(`/v1/instances?${name}=${name}`, operator),
        api.get(`/v1/instances?limit=${name}`, operator),
      ]);
      for (const reply of replies) expect(reply.status).toBeLessThan(500);
    }),
    { numRuns: 100 },
  );
  expect(await api.client(operator).getRun(run_id)).toMatchObject({ revision, parked_reason: 'effect_not_found' });
  expect(api.logged).toEqual([]);
});

test('anything in the bodies of enrolling, signing in and signing is never a fault of ours, and opens nothing', async () => {
  const person = await signedIn(fixture.store.owner, api.url, 'fuzzed', ['approver']);
  const { run_id } = await fixture.store.toAwaitingApproval({}, { bound: { method: 'passkey' } });
  const approval = (await api.client(approver).getRun(run_id)).approval;
  const { approval_id = '', approval_digest = '', action_digest = '', action_revision = 0 } = approval ?? {};
  const shown = { approval_id, approval_digest, action_digest, action_revision, decision: 'approve' };
  const asked = await person.challenge(run_id as RunId, shown);
  const right = await person.sign(asked.body);
  const { response } = right;
  const count = async () =>
    await fixture.store.owner`
      select (select count(*)::int from cs.session) as sessions, (select count(*)::int from cs.passkey) as passkeys,
        (select count(*)::int from cs.decision) as decisions`;
  const before = await count();
  // `rawId` is the same text again and decides nothing.
  const member = fc.constantFrom('id', 'type', 'clientDataJSON', 'authenticatorData', 'signature');
  await fc.assert(
    fc.asyncProperty(fc.jsonValue({ stringUnit: 'binary' }), member, async (any, name) => {
      const outer = ['id', 'type'].includes(name);
      const bent = outer
        ? { ...response, [name]: any }
        : { ...response, response: { ...response.response, [name]: any } };
      const replies = await Promise.all([
        person.send('POST', '/v1/session', { response: bent }),
        person.send('POST', '/v1/session/step-up', { response: any }),
        person.send('POST', '/v1/enrolment/options', any),
        person.send('POST', '/v1/enrolment', { invitation: 'x'.repeat(43), name: any, response: bent }),
        person.send('POST', '/v1/passkeys', { name: 'x', response: any }),
        person.send('DELETE', `/v1/passkeys/${encodeURIComponent(JSON.stringify(any))}`),
        person.challenge(run_id as RunId, { ...shown, credential_id: any }),
        person.decide(run_id as RunId, { ...shown, assertion: { ...right, response: bent } }),
        person.decide(run_id as RunId, { ...shown, assertion: { ...right, pre_image: any } }),
      ]);
      for (const reply of replies) {
        expect(reply.status).toBeGreaterThanOrEqual(400);
        expect(reply.status).toBeLessThan(500);
      }
    }),
    { numRuns: 150 },
  );
  expect(await count()).toEqual(before);
  expect(api.logged).toEqual([]);
}, 120_000);
