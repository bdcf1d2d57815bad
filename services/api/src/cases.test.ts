import { canonicalJson, type JsonObject } from '@counterstamp/manifest-core';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { asCreateBody, asProposeBody } from '../../../testing/case-inputs/case-input.ts';
import { type ApiFixture, apiFixture, type RunningApi } from '../testing/api-fixture.ts';
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

let made = 0;
const requestId = () => `case_field_${++made}`;

// File of testing/case-inputs, sent as its raw bytes; place below the input or the proposal, or from the top with a leading `//`.
const REFUSED = [
  ['O01', 'an amount written twice', '01a', 'duplicate_member', '/amount_minor'],
  ['O01', 'an amount written twice, once with an escape', '01b', 'duplicate_member', '/amount_minor'],
  ['O02', 'a lone high surrogate', '02a', 'text_not_well_formed', '/metadata/note'],
  ['O02', 'a pair in the wrong order', '02b', 'text_not_well_formed', '/metadata/note'],
  ['O02', 'a lone surrogate in a member name', '02c', 'text_not_well_formed', '/metadata'],
  ['O03', 'an order number beyond 2^53 in free-form metadata', '03a', 'number_not_safe', '/metadata/order_no'],
  ['O03', 'an amount beyond 2^53', '03c', 'number_not_safe', '/amount_minor'],
  ['O03', 'an amount of 1e21', '03d', 'number_not_safe', '/amount_minor'],
  ['O05', '__proto__ among the typed members', '05a', 'unknown_member', '/__proto__'],
  ['O05', 'an extra decimal amount', '05b', 'unknown_member', '/amount'],
  ['O05', '__proto__ in free-form metadata', '05c', 'unknown_member', '/metadata/__proto__'],
  ['O07', 'an amount with a fraction', '07a', 'amount_not_integer', '/amount_minor'],
  ['O07', 'an amount as a decimal text', '07b', 'amount_not_integer', '/amount_minor'],
  ['O08', 'an amount of zero', '08a', 'amount_not_positive', '/amount_minor'],
  ['O08', 'no amount', '08b', 'amount_missing', '/amount_minor'],
  ['O08', 'an amount of null', '08c', 'amount_missing', '/amount_minor'],
  ['O08', 'an empty amount', '08d', 'amount_missing', '/amount_minor'],
  ['O08', 'a negative amount', '08e', 'amount_not_positive', '/amount_minor'],
  ['O13', 'a request that says it is approved', '13a', 'unknown_member', '//status'],
  ['O14', 'a no-break space in an identifier', '14b', 'identifier_charset', '/order_id'],
  ['O14', 'a Cyrillic letter in an identifier', '14c', 'identifier_charset', '/order_id'],
] as const;

describe('the bytes of a case from the field', () => {
  test.each(REFUSED)(
    '%s %s (doc-%s) are refused as a request with %s, and nothing is left behind',
    async (_, __, name, code, place) => {
      const [runs, hints] = [await fixture.runCount(), api.hints.length];
      const path = place.startsWith('//')
        ? place.slice(1)
        : `/input${place.replace('amount_minor', 'requested_amount_minor')}`;
      const reply = await api.post('/v1/runs', requester, asCreateBody(name, { request_id: requestId() }));
      expect(reply).toMatchObject({ status: 400, body: { status: 400, code, path } });
      expect(reply.headers.get('content-type')).toBe('application/problem+json');
      expect([await fixture.runCount(), api.hints.length]).toEqual([runs, hints]);
      expect(({} as { approved?: unknown }).approved).toBeUndefined();
    },
  );

  test.each(REFUSED)(
    '%s %s (doc-%s) are refused as a proposal with %s, and the approval that waits is untouched',
    async (_, __, name, code, place) => {
      const waiting = await fixture.store.toAwaitingApproval();
      const path = place.startsWith('//') ? place.slice(1) : `/proposal${place}`;
      const reply = await api.post(`/v1/runs/${waiting.run_id}/proposals`, requester, asProposeBody(name));
      expect(reply).toMatchObject({ status: 400, body: { code, path } });
      expect((await fixture.row(waiting.run_id)).revision).toBe(waiting.revision);
    },
  );

  test.each([
    ['O02', 'a whole emoji', '02d'],
    ['O03', 'a long order number as text', '03b'],
    ['O04', 'numbers and members in a strange spelling', '04a'],
    ['O04', 'the same in another spelling', '04b'],
    ['O04', 'another value', '04c'],
    ['O12', 'an ordinary request', '12a'],
  ])('%s %s (doc-%s) is accepted, and every byte of its value is kept', async (_, __, name) => {
    const body = asCreateBody(name, { request_id: requestId() });
    const reply = await api.post('/v1/runs', requester, body);
    expect(reply.status).toBe(201);
    const sent = JSON.parse(body) as { input: JsonObject };
    const [stored] = await fixture.store.owner<{ text: string; from_jsonb: string }[]>`
      select input_canonical as text, input::text as from_jsonb from cs.run_input where run_id = ${reply.body.run_id.slice(4)}`;
    expect(stored?.text).toBe(canonicalJson(sent.input));
    expect(canonicalJson(JSON.parse(stored?.from_jsonb ?? '') as JsonObject)).toBe(stored?.text);
    const read = await api.get(`/v1/runs/${reply.body.run_id}`, requester);
    expect(read.body.input).toEqual(JSON.parse(stored?.text ?? ''));
  });

  test('O07 an integer with an exponent is refused like a fraction, wherever an integer belongs', async () => {
    const spelled = (amount: string) => asCreateBody('12a', { request_id: requestId() }).replace('1999', amount);
    for (const amount of ['10e2', '1E3', '19.99e2', '199900e-2'])
      expect(await api.post('/v1/runs', requester, spelled(amount))).toMatchObject({
        status: 400,
        body: { code: 'amount_not_integer', path: '/input/requested_amount_minor' },
      });
    const life = spelled('1999').replace('"input"', '"approval_life_ms": 2e4, "input"');
    expect(await api.post('/v1/runs', requester, life)).toMatchObject({
      status: 400,
      body: { code: 'number_not_integer', path: '/approval_life_ms' },
    });
  });

  test('O06 an amount or a currency that the connector cannot carry is refused by its table', async () => {
    const body = (currency: string) => asCreateBody('12a', { request_id: requestId() }).replace('USD', currency);
    for (const [currency, code] of [
      ['XTS', 'currency_unsupported'],
      ['usd', 'currency_invalid'],
      ['constructor', 'currency_invalid'],
    ] as const)
      expect(await api.post('/v1/runs', requester, body(currency))).toMatchObject({
        status: 400,
        body: { code, path: '/input/currency' },
      });
  });
});

describe('one approval and another action', () => {
  const decisionOf = async (run_id: Parameters<ApiFixture['row']>[0]) => {
    const { approval } = await api.client(approver).getRun(run_id);
    if (approval === null) throw new Error('nothing to decide');
    const { approval_id, approval_digest, action_digest, action_revision } = approval;
    return { approval_id, approval_digest, action_digest, action_revision, decision: 'approve' };
  };
  const action = (amount_minor: number) => ({
    operation: 'refund_order',
    order_id: 'pay_test_0001',
    amount_minor,
    currency: 'USD',
  });

  test('O12 an approval of 1999 decides nothing about 2999: neither by its id nor by its digests', async () => {
    const first = await fixture.store.toAwaitingApproval({}, { action: action(1999) });
    const second = await fixture.store.toAwaitingApproval({}, { action: action(2999) });
    const [granted, asked] = [await decisionOf(first.run_id), await decisionOf(second.run_id)];
    expect((await api.post(`/v1/runs/${first.run_id}/decisions`, approver, granted)).status).toBe(200);
    const path = `/v1/runs/${second.run_id}/decisions`;
    expect(await api.post(path, approver, granted)).toMatchObject({
      status: 404,
      body: { code: 'approval_not_found', path: '/approval_id' },
    });
    for (const digest of ['approval_digest', 'action_digest'] as const)
      expect(await api.post(path, approver, { ...asked, [digest]: granted[digest] })).toMatchObject({
        status: 409,
        body: { code: 'digest_mismatch' },
      });
    const run = await api.client(approver).getRun(second.run_id);
    expect([run.state, run.revision, run.approval?.decisions]).toEqual(['awaiting_approval', second.revision, []]);
  });

  test('O13 nobody executes by asking: there is no such address, and the agent’s key decides nothing; the try is kept', async () => {
    const { run_id, revision } = await fixture.store.toAwaitingApproval();
    for (const verb of ['execute', 'dispatch', 'approve'])
      expect(await api.post(`/v1/runs/${run_id}/${verb}`, requester, {})).toMatchObject({
        status: 404,
        body: { code: 'route_not_found' },
      });
    const before = (await fixture.audits()).length;
    expect(await api.post(`/v1/runs/${run_id}/decisions`, requester, await decisionOf(run_id))).toMatchObject({
      status: 403,
      body: { code: 'not_an_approver' },
    });
    await api.post('/v1/runs', requester, asCreateBody('13a', { request_id: requestId() }));
    expect((await fixture.audits()).slice(before).map(({ code }) => code)).toEqual([
      'not_an_approver',
      'unknown_member',
    ]);
    expect((await fixture.row(run_id)).revision).toBe(revision);
  });
});
