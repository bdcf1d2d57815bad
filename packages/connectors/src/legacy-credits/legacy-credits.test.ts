import type { Attempt, Digest, HttpReply, JsonObject, ReadHttp } from '@counterstamp/manifest-core';
import { describe, expect, test } from 'vitest';
import { RUN_ID } from '../../../../testing/manifest-builder.ts';
import { checkMoney, type Effect, type Outcome } from '../port.ts';
import { LEGACY_CREDITS_CONTRACT } from './contract.ts';
import { CreditAction, displayCredit, MEMO_TEXT_MAX, readMemo, taggedMemo } from './credit-action.ts';
import { classifyGrantReply, createLegacyCredits, matchGrants } from './legacy-credits.ts';

const OTHER_RUN = 'run_00000000-0000-7000-8000-000000000002';
const ACTION: CreditAction = CreditAction.parse({
  operation: 'grant_credit',
  customer_id: 'cus_1',
  amount_minor: 4200,
  currency: 'USD',
  memo: 'Sorry for the delay',
  reason: 'late_delivery',
  evidence_refs: ['evd_1'],
});
const DIGEST = `sha256:${'a'.repeat(64)}` as Digest;
const MEMO = `${RUN_ID} Sorry for the delay`;
const SENT = { customer_id: 'cus_1', amount: 4200, currency: 'USD', memo: MEMO };
const RECORD = { grant_id: 'cg_1', ...SENT, created_at: '2026-09-30T14:00:00.000Z' };

function reply(status: number, body: unknown): HttpReply {
  const text = typeof body === 'string' ? body : JSON.stringify(body);
  return { kind: 'reply', status, headers: {}, body: new TextEncoder().encode(text) };
}

function grant(change: Partial<Effect> = {}): Effect {
  return {
    provider_ref: 'cg_1',
    amount_minor: 4200,
    currency: 'USD',
    destination: 'cus_1',
    status: 'granted',
    reason: 'Sorry for the delay',
    settlement: 'final',
    run_id: RUN_ID,
    ...change,
  };
}

describe('an answer to a grant', () => {
  test('that echoes our memo and the amount is applied, and final', () => {
    const applied: Outcome = { class: 'applied', effect: grant(), replayed: false };
    expect(classifyGrantReply(SENT, reply(200, RECORD))).toEqual(applied);
    expect(classifyGrantReply(SENT, reply(201, RECORD))).toEqual(applied);
  });

  test.each<[string, HttpReply, string]>([
    ['no memo', reply(200, { ...RECORD, memo: '' }), 'memo_not_echoed'],
    ['another run’s memo', reply(200, { ...RECORD, memo: `${OTHER_RUN} Sorry for the delay` }), 'memo_not_echoed'],
    ['our tag and another text', reply(200, { ...RECORD, memo: `${RUN_ID} Hello` }), 'memo_not_echoed'],
    ['another amount', reply(200, { ...RECORD, amount: 4199 }), 'grant_differs'],
    ['another currency', reply(200, { ...RECORD, currency: 'EUR' }), 'grant_differs'],
    ['another customer', reply(200, { ...RECORD, customer_id: 'cus_2' }), 'grant_differs'],
    ['HTML', reply(200, '<h1>ok</h1>'), 'unrecognised_success_body'],
    ['an amount as text', reply(200, { ...RECORD, amount: '4200' }), 'unrecognised_success_body'],
    ['nothing', reply(204, ''), 'unrecognised_success_body'],
  ])('that says success with %s is uncertain', (_, answer, reason) => {
    expect(classifyGrantReply(SENT, answer)).toEqual({ class: 'uncertain', reason });
  });

  test.each<[number, string, Outcome['class']]>([
    // The sandbox's README, "Credits".
    [413, 'body_too_large', 'rejected'],
    [401, 'unauthorized', 'rejected'],
    [403, 'permission_denied', 'rejected'],
    [400, 'invalid_json', 'rejected'],
    [400, 'invalid_request', 'rejected'],
    [404, 'customer_not_found', 'rejected'],
    [400, 'customer_not_found', 'uncertain'],
    [404, 'route_not_found', 'uncertain'],
    [409, 'duplicate', 'uncertain'],
    [429, 'rate_limited', 'uncertain'],
    [400, 'constructor', 'uncertain'],
    [500, 'customer_not_found', 'uncertain'],
    [302, 'customer_not_found', 'uncertain'],
  ])('%i %s is %s', (status, code, expected) => {
    expect(classifyGrantReply(SENT, reply(status, { code })).class).toBe(expected);
  });
});

describe('which credit is ours', () => {
  const FIELDS = ['amount_minor', 'currency', 'customer_id', 'memo'];
  const bind = (attempts: readonly Pick<Attempt, 'provider_ref'>[] = []) => ({
    run_id: RUN_ID,
    action_digest: DIGEST,
    attempts: attempts as readonly Attempt[],
    fields: FIELDS,
  });
  const others = grant({ provider_ref: 'cg_2', run_id: OTHER_RUN });
  const untagged = grant({ provider_ref: 'cg_3', run_id: null });

  test.each<[string, Effect[]]>([
    ['none', []],
    ['one of another run, equal in everything', [others]],
    ['one without a tag of another amount', [grant({ run_id: null, amount_minor: 1 })]],
  ])('is absent among %s, which proves nothing before the replica has caught up', (_, effects) => {
    expect(matchGrants(ACTION, bind(), effects)).toEqual({ kind: 'absent', strength: 'eventual' });
  });

  test('is exact by its tag, also beside another run’s and a lookalike', () => {
    expect(matchGrants(ACTION, bind(), [others, untagged, grant()])).toMatchObject({
      match: 'exact',
      effect: { provider_ref: 'cg_1' },
    });
  });

  test('is never an equal one without a tag', () => {
    expect(matchGrants(ACTION, bind(), [others, untagged])).toEqual({
      kind: 'found',
      match: 'lookalike',
      effects: [untagged],
    });
  });

  test('is multiple when two carry our tag', () => {
    expect(matchGrants(ACTION, bind(), [grant(), grant({ provider_ref: 'cg_2' })])).toMatchObject({
      match: 'multiple',
    });
  });

  test('is what our own reply named, yet never exact without our tag', () => {
    expect(matchGrants(ACTION, bind([{ provider_ref: 'cg_3' }]), [untagged])).toMatchObject({
      match: 'different',
      differing: [{ field: 'run_id', approved: RUN_ID, observed: '(none)' }],
    });
  });

  test.each<[string, Partial<Effect>]>([
    ['amount_minor', { amount_minor: 4199 }],
    ['currency', { currency: 'EUR' }],
    ['customer_id', { destination: 'cus_2' }],
    ['memo', { reason: 'Hello' }],
  ])('differs in its %s alone', (field, change) => {
    expect(matchGrants(ACTION, bind(), [grant(change)])).toMatchObject({ match: 'different', differing: [{ field }] });
  });

  test('a field that cannot be observed never counts as equal', () => {
    expect(() => matchGrants(ACTION, { ...bind(), fields: ['reason'] }, [grant()])).toThrow(RangeError);
  });
});

describe('a memo', () => {
  test('carries run id and text both ways, and fits the target at its longest', () => {
    const text = 'x'.repeat(MEMO_TEXT_MAX);
    expect(taggedMemo(RUN_ID, text)).toHaveLength(140);
    expect(readMemo(taggedMemo(RUN_ID, text))).toEqual({ run_id: RUN_ID, text });
  });

  test.each([
    '',
    'thanks',
    RUN_ID,
    `${RUN_ID}x`,
    ` ${RUN_ID} x`,
    `re ${RUN_ID} x`,
    `${RUN_ID.toUpperCase()} x`,
    `${RUN_ID.slice(0, -1)}  x`,
  ])('%j carries no tag', (memo) => {
    expect(readMemo(memo)).toEqual({ run_id: null, text: memo });
  });

  test('with another run’s id in its text is still ours', () => {
    expect(readMemo(taggedMemo(RUN_ID, `${OTHER_RUN} x`)).run_id).toBe(RUN_ID);
  });

  test.each(['', ' x', 'x ', 'a\nb', 'a\u0000', 'ä', '😀', 'x'.repeat(MEMO_TEXT_MAX + 1)])(
    'text %j is refused before anybody approves it',
    (memo) => {
      expect(CreditAction.safeParse({ ...ACTION, memo }).success).toBe(false);
    },
  );
});

function connectorWith(answer: (url: string) => HttpReply | { kind: 'unreachable'; reason: string; detail: string }) {
  const asked: { url: string; headers: Readonly<Record<string, string>> }[] = [];
  const http: ReadHttp = {
    get: (url, { headers = {} }) => {
      asked.push({ url, headers });
      return Promise.resolve(answer(url));
    },
  };
  const connector = createLegacyCredits({
    url: 'http://credits.test',
    writeKey: 'sk_secret',
    readKey: 'rk_secret',
    http,
    timeoutMs: 1_000,
  });
  const observe = () =>
    connector.observe(
      { ...ACTION },
      {
        run_id: RUN_ID,
        action_digest: DIGEST,
        attempts: [],
        fields: ['amount_minor', 'memo'],
      },
    );
  return { connector, asked, observe };
}

describe('the look-up', () => {
  const page = (grants: unknown[], has_more = false) => reply(200, { grants, has_more });

  test('reads every page with the key that only reads, and finds ours on the last', async () => {
    const { asked, observe } = connectorWith((url) =>
      url.includes('after=') ? page([RECORD]) : page([{ ...RECORD, grant_id: 'cg_9', memo: '' }], true),
    );
    expect(await observe()).toMatchObject({ match: 'exact', effect: { provider_ref: 'cg_1' } });
    expect(asked.map(({ url }) => url)).toEqual([
      'http://credits.test/credits/grants?customer_id=cus_1&limit=100',
      'http://credits.test/credits/grants?customer_id=cus_1&limit=100&after=cg_9',
    ]);
    for (const { headers } of asked) expect(headers).toEqual({ authorization: 'Bearer rk_secret' });
  });

  test.each<[string, () => ReturnType<typeof page> | { kind: 'unreachable'; reason: string; detail: string }]>([
    ['nobody answers', () => ({ kind: 'unreachable', reason: 'timeout', detail: 'x' })],
    ['the customer is unknown', () => reply(404, { code: 'customer_not_found' })],
    ['the page is HTML', () => reply(200, '<h1>ok</h1>')],
    ['a record is not understood', () => page([{ ...RECORD, amount: 'x' }])],
    ['a page is empty and promises more', () => page([], true)],
    ['the pages do not end', () => page([{ ...RECORD, memo: '' }], true)],
  ])('is unknown, never absent, when %s', async (_, answer) => {
    expect(await connectorWith(answer).observe()).toMatchObject({ kind: 'unknown' });
  });

  test('is not confused by the strange words of somebody else’s credit', async () => {
    const { observe } = connectorWith(() => page([{ ...RECORD, grant_id: 'cg_9', memo: '\u0000\ud83d' }, RECORD]));
    expect(await observe()).toMatchObject({ match: 'exact', effect: { provider_ref: 'cg_1' } });
  });
});

describe('the request', () => {
  test('is one POST of four members, without any key that the target would not know', () => {
    const { connector } = connectorWith(() => reply(500, ''));
    const bind = { run_id: RUN_ID, action_digest: `sha256:${'a'.repeat(64)}` as Digest, idempotency_key: 'cs-1' };
    const { request, bytes } = connector.prepare({ ...ACTION }, bind);
    expect(request).toEqual({
      method: 'POST',
      url: 'http://credits.test/credits/grants',
      headers: { 'content-type': 'application/json', authorization: 'Bearer sk_secret' },
    });
    expect(new TextDecoder().decode(bytes)).toBe(
      `{"amount":4200,"currency":"USD","customer_id":"cus_1","memo":"${MEMO}"}`,
    );
  });

  test.each<[string, JsonObject]>([
    ['of amount 0', { amount_minor: 0 }],
    ['of another operation', { operation: 'refund_order' }],
    ['with a member that nobody knows', { extra: 1 }],
    ['with a reason outside of the policy', { reason: 'bribe' }],
    ['to no customer', { customer_id: '' }],
  ])('is not made of an action %s', (_, change) => {
    expect(CreditAction.safeParse({ ...ACTION, ...change }).success).toBe(false);
  });
});

test('the contract permits no repeated send, and no absence before the replica has caught up', () => {
  expect(LEGACY_CREDITS_CONTRACT).toMatchObject({
    idempotency: { kind: 'none' },
    lookup: { consistency: { kind: 'eventual' }, correlation: 'tag', complete: true },
    settlement: 'sync',
  });
  expect(checkMoney(LEGACY_CREDITS_CONTRACT.amounts, 1, 'JPY')).toBeUndefined();
  expect(checkMoney(LEGACY_CREDITS_CONTRACT.amounts, 1, 'XXX')).toBe('currency_unsupported');
});

describe('what the approver of a credit sees', () => {
  const lines = (change: JsonObject = {}) => displayCredit(CreditAction.parse({ ...ACTION, ...change }));
  const OTHER = {
    customer_id: 'cus_other',
    amount_minor: 4201,
    currency: 'JPY',
    memo: 'Another memo',
    reason: 'price_adjustment',
    evidence_refs: ['evd_other'],
  } satisfies Record<Exclude<keyof CreditAction, 'operation'>, unknown>;

  test.each(Object.entries(OTHER))('changes with the action’s %s', (member, value) => {
    expect(lines({ [member]: value })).not.toEqual(lines());
  });

  test('names the operation and the exact amount', () => {
    const shown = Object.fromEntries(lines().map(({ field, value }) => [field, value]));
    expect(shown).toMatchObject({ operation: 'Credit a customer', amount_minor: 'USD 42.00' });
  });
});
