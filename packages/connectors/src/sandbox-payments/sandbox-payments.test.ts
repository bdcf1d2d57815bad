import {
  type Attempt,
  canonicalJson,
  type HttpReply,
  type JsonObject,
  type ReadHttp,
  type SendResult,
} from '@counterstamp/manifest-core';
import { describe, expect, test } from 'vitest';
import { attempt, RUN_ID } from '../../../../testing/manifest-builder.ts';
import { ACTION, approvedRun, EFFECT_DIGEST as DIGEST, effect } from '../../../../testing/refund-case.ts';
import { checkMoney, type Effect, type Outcome } from '../port.ts';
import { SANDBOX_PAYMENTS_CONTRACT } from './contract.ts';
import { displayRefund, RefundAction } from './refund-action.ts';
import { classifyRefundReply, createSandboxPayments, matchEffects } from './sandbox-payments.ts';

const bytes = (text: string) => new TextEncoder().encode(text);
function reply(status: number, body: unknown, headers: Record<string, string> = {}): HttpReply {
  const text = typeof body === 'string' ? body : JSON.stringify(body);
  return { kind: 'reply', status, headers, body: bytes(text) };
}
const RECORD = {
  refund_id: 're_1',
  payment_id: 'pay_913',
  amount: 4200,
  currency: 'USD',
  reason: 'damaged_item',
  status: 'succeeded',
  metadata: { run_id: RUN_ID, action_digest: DIGEST },
};

describe('an answer to a refund', () => {
  test.each<[number, string, Outcome['class']]>([
    // The sandbox's README, "A request is judged in this order".
    [413, 'body_too_large', 'rejected'],
    [401, 'unauthorized', 'rejected'],
    [403, 'permission_denied', 'rejected'],
    [400, 'idempotency_key_missing', 'rejected'],
    [400, 'idempotency_key_too_long', 'rejected'],
    [400, 'invalid_json', 'rejected'],
    [400, 'invalid_request', 'rejected'],
    [404, 'payment_not_found', 'rejected'],
    [422, 'idempotency_body_mismatch', 'uncertain'],
    [409, 'idempotency_key_in_use', 'uncertain'],
    [400, 'currency_mismatch', 'rejected'],
    [402, 'charge_disputed', 'rejected'],
    // It may have been this very run: observe first.
    [400, 'charge_already_refunded', 'uncertain'],
    [400, 'amount_exceeds_refundable', 'rejected'],
    [429, 'rate_limited', 'retry_safe'],
    [429, 'charge_disputed', 'retry_safe'],
    [400, 'never_documented', 'uncertain'],
    [400, 'constructor', 'uncertain'],
    [400, '__proto__', 'uncertain'],
    [404, 'route_not_found', 'uncertain'],
    [500, 'internal_error', 'uncertain'],
    [502, 'charge_disputed', 'uncertain'],
    [503, 'invalid_request', 'uncertain'],
    [307, 'payment_not_found', 'uncertain'],
    [202, 'invalid_request', 'uncertain'],
  ])('%i %s is %s', (status, code, expected) => {
    expect(classifyRefundReply(reply(status, { code })).class).toBe(expected);
  });

  test.each<[string, HttpReply]>([
    ['a page of HTML that says 201', reply(201, '<h1>Created</h1>')],
    ['a page of HTML that says 400', reply(400, '<h1>charge_disputed</h1>')],
    ['an empty 201', reply(201, '')],
    ['a 204', reply(204, '')],
    ['a truncated 201', reply(201, JSON.stringify(RECORD).slice(0, -5))],
    ['a 201 that is no record', reply(201, { code: 'ok' })],
    ['a 201 that is an array', reply(201, [RECORD])],
    ['a 201 whose amount is a text', reply(201, { ...RECORD, amount: '4200' })],
    ['a 201 whose amount is a fraction', reply(201, { ...RECORD, amount: 41.5 })],
    ['a 201 whose amount is beyond 2^53', reply(201, JSON.stringify(RECORD).replace('4200', '9007199254740993'))],
    ['a 201 whose id holds U+0000', reply(201, { ...RECORD, refund_id: 're_1\u0000' })],
    ['a 201 whose id is half of a pair', reply(201, { ...RECORD, refund_id: '\ud83d' })],
    ['a 400 whose code holds U+0000', reply(400, { code: 'charge_disputed\u0000' })],
    ['a 201 whose id is longer than any', reply(201, { ...RECORD, refund_id: 'r'.repeat(10_000) })],
    ['a 201 that is not UTF-8', { ...reply(201, ''), body: new Uint8Array([0x22, 0xff, 0x22]) }],
    ['a 400 without a code', reply(400, { title: 'no' })],
    ['a 400 whose code is a number', reply(400, { code: 7 })],
    ['a 400 whose code is a page long', reply(400, { code: 'x'.repeat(10_000) })],
    ['a 400 that is null', reply(400, 'null')],
  ])('is uncertain: %s, and its reason is short', (_, answer) => {
    const outcome = classifyRefundReply(answer);
    expect(outcome).toEqual({ class: 'uncertain', reason: expect.stringMatching(/^[a-z0-9_]{1,64}$/) });
  });

  test('that names a rejection says whether another approval could help', () => {
    expect(classifyRefundReply(reply(402, { code: 'charge_disputed' }))).toEqual({
      class: 'rejected',
      code: 'charge_disputed',
      retryable: 'new-approval',
    });
    expect(classifyRefundReply(reply(400, { code: 'invalid_request' }))).toMatchObject({ retryable: 'never' });
  });

  test('that is a record is applied, with the effect that it names', () => {
    expect(classifyRefundReply(reply(201, RECORD))).toEqual({ class: 'applied', effect: effect(), replayed: false });
    expect(classifyRefundReply(reply(201, RECORD, { 'idempotent-replayed': 'true' }))).toMatchObject({
      replayed: true,
    });
  });

  test.each([
    ['succeeded', 'final'],
    ['pending', 'pending'],
    ['requires_action', 'pending'],
    ['failed', 'failed'],
    ['canceled', 'failed'],
    ['Succeeded', 'unrecognised'],
    ['on_its_way', 'unrecognised'],
    ['succeeded\u0000', 'unrecognised'],
    ['suсceeded', 'unrecognised'],
    ['', 'unrecognised'],
  ])('with status %s is %s', (status, settlement) => {
    expect(classifyRefundReply(reply(201, { ...RECORD, status }))).toMatchObject({
      class: 'applied',
      effect: { settlement },
    });
  });

  test.each<[string, SendResult, Outcome]>([
    ['nothing left', { kind: 'not_sent', reason: 'late' }, { class: 'not_sent', reason: 'late' }],
    ['the connection broke', { kind: 'no_reply', reason: 'reset' }, { class: 'uncertain', reason: 'reset' }],
    ['no answer came', { kind: 'no_reply', reason: 'timeout' }, { class: 'uncertain', reason: 'timeout' }],
    ['it was too large', { kind: 'no_reply', reason: 'too_large' }, { class: 'uncertain', reason: 'too_large' }],
  ])('that is none: %s', async (_, result, expected) => {
    const { connector, prepared } = connectorWith(() => reply(500, ''));
    expect(await connector.execute(prepared, { send: () => Promise.resolve(result) })).toEqual(expected);
  });
});

function connectorWith(answer: (url: string) => HttpReply | { kind: 'unreachable'; reason: string; detail: string }) {
  const asked: { url: string; headers: Readonly<Record<string, string>> }[] = [];
  const http: ReadHttp = {
    get: (url, { headers = {} }) => {
      asked.push({ url, headers });
      return Promise.resolve(answer(url));
    },
  };
  const connector = createSandboxPayments({
    url: 'http://pay.test',
    writeKey: 'sk_secret',
    readKey: 'rk_secret',
    http,
    timeoutMs: 1_000,
  });
  const bind = { run_id: RUN_ID, action_digest: DIGEST, idempotency_key: 'cs-1' };
  return {
    connector,
    asked,
    prepared: connector.prepare(ACTION, bind),
    prepare: (action: JsonObject) => connector.prepare(action, bind),
  };
}

/** What the refund workflow has compared. */
const FIELDS = ['amount_minor', 'currency', 'destination', 'reason'];

describe('which effect is ours', () => {
  test('a field that cannot be observed never counts as equal', () => {
    expect(() => matchEffects(ACTION, { ...bind(), fields: ['order_id'] }, [effect()])).toThrow(RangeError);
  });

  const bind = (attempts: Attempt[] = []) => ({ run_id: RUN_ID, action_digest: DIGEST, attempts, fields: FIELDS });
  const foreign = effect({ provider_ref: 're_other', run_id: 'run_other' });
  const untagged = effect({ provider_ref: 're_hand', run_id: null });
  const named = [attempt(approvedRun(), { provider_ref: 're_hand' })];

  test.each<[string, Effect[]]>([
    ['none', []],
    ['one of another run, equal in everything', [foreign]],
    ['one without a tag of another amount', [effect({ run_id: null, amount_minor: 4199 })]],
    ['one without a tag in another currency', [effect({ run_id: null, currency: 'EUR' })]],
    ['an equal one without a tag that failed', [effect({ run_id: null, settlement: 'failed', status: 'failed' })]],
  ])('is absent among %s', (_, effects) => {
    expect(matchEffects(ACTION, bind(), effects)).toEqual({ kind: 'absent', strength: 'strong' });
  });

  test.each<[string, Effect[]]>([
    ['alone', [effect()]],
    ['beside another run’s', [foreign, effect()]],
    ['beside a lookalike', [untagged, effect()]],
    ['even when it failed: what that means is the verifier’s to say', [effect({ settlement: 'failed' })]],
  ])('is exact when it carries our tag and every field, %s', (_, effects) => {
    expect(matchEffects(ACTION, bind(), effects)).toMatchObject({
      kind: 'found',
      match: 'exact',
      effect: { provider_ref: 're_1' },
    });
  });

  test.each<[string, Partial<Effect>, string, string]>([
    ['amount_minor', { amount_minor: 4199 }, '4200', '4199'],
    ['currency', { currency: 'EUR' }, 'USD', 'EUR'],
    ['destination', { destination: 'pay_1' }, 'pay_913', 'pay_1'],
    ['reason', { reason: 'duplicate_charge' }, 'damaged_item', 'duplicate_charge'],
    ['reason', { reason: null }, 'damaged_item', '(none)'],
    ['action_digest', { action_digest: 'sha256:other' }, DIGEST, 'sha256:other'],
  ])('differs in its %s alone', (field, change, approved, observed) => {
    expect(matchEffects(ACTION, bind(), [effect(change)])).toMatchObject({
      kind: 'found',
      match: 'different',
      differing: [{ field, approved, observed }],
    });
  });

  test('differs in every field that does', () => {
    const seen = matchEffects(ACTION, bind(), [
      effect({ amount_minor: 1, currency: 'EUR', destination: 'pay_1', reason: 'x' }),
    ]);
    expect(seen.kind === 'found' && seen.match === 'different' ? seen.differing.map((diff) => diff.field) : []).toEqual(
      ['amount_minor', 'currency', 'destination', 'reason'],
    );
  });

  test('is what our own reply named, yet never exact without our tag', () => {
    expect(matchEffects(ACTION, bind(named), [untagged])).toMatchObject({
      match: 'different',
      effect: { provider_ref: 're_hand' },
      differing: [{ field: 'run_id', approved: RUN_ID, observed: '(none)' }],
    });
  });

  test.each<[string, Effect[], Attempt[]]>([
    ['two carry our tag', [effect(), effect({ provider_ref: 're_2' })], []],
    ['one of the two failed', [effect(), effect({ provider_ref: 're_2', settlement: 'failed' })], []],
    ['one carries our tag and our reply named another', [effect(), untagged], named],
  ])('is more than one when %s', (_, effects, attempts) => {
    expect(matchEffects(ACTION, bind(attempts), effects)).toMatchObject({ match: 'multiple', effects });
  });

  test('is none of the lookalikes, however many', () => {
    const another = effect({ provider_ref: 're_hand_2', run_id: null });
    expect(matchEffects(ACTION, bind(), [untagged, foreign, another])).toEqual({
      kind: 'found',
      match: 'lookalike',
      effects: [untagged, another],
    });
  });
});

describe('the look-up', () => {
  const other = (n: number) => ({ ...RECORD, refund_id: `re_x${n}`, metadata: { run_id: `run_x${n}` } });
  const page = (refunds: object[], has_more = false) => reply(200, { refunds, has_more });
  const observe = (connector: ReturnType<typeof connectorWith>['connector']) =>
    connector.observe(ACTION, { run_id: RUN_ID, action_digest: DIGEST, attempts: [], fields: FIELDS });

  test('reads to the last page, each from where the one before ended, with the key that only reads', async () => {
    const pages = [page([other(1), other(2)], true), page([other(3)], true), page([RECORD])];
    const { connector, asked } = connectorWith(() => pages.shift() ?? reply(500, ''));
    expect(await observe(connector)).toMatchObject({ kind: 'found', match: 'exact' });
    expect(asked.map(({ url }) => new URL(url).searchParams.get('after'))).toEqual([null, 're_x2', 're_x3']);
    for (const { headers } of asked) expect(headers).toEqual({ authorization: 'Bearer rk_secret' });
  });

  test.each<[string, () => HttpReply | { kind: 'unreachable'; reason: string; detail: string }]>([
    ['a page does not come', () => ({ kind: 'unreachable', reason: 'timeout', detail: 'x' })],
    ['the provider has an error', () => reply(503, { code: 'x' })],
    ['the key is refused', () => reply(401, { code: 'unauthorized' })],
    ['a 404 that is not the list’s', () => reply(404, '<h1>no</h1>')],
    ['the page is HTML', () => reply(200, '<h1>ok</h1>')],
    ['a record is not understood', () => page([{ ...RECORD, amount: 'x' }])],
    ['a record’s id is no word', () => page([{ ...RECORD, refund_id: 're_1\u0000' }])],
    ['a page is empty and promises more', () => page([], true)],
    ['the pages do not end', () => page([other(1)], true)],
  ])('is unknown, never absent, when %s', async (_, answer) => {
    const { connector, asked } = connectorWith(answer);
    expect(await observe(connector)).toMatchObject({ kind: 'unknown' });
    expect(asked.length).toBeLessThanOrEqual(20);
  });

  test('is unknown when the last page fails, whatever the first ones showed', async () => {
    const pages = [page([RECORD], true), reply(500, '')];
    const { connector } = connectorWith(() => pages.shift() ?? reply(500, ''));
    expect(await observe(connector)).toMatchObject({ kind: 'unknown' });
  });

  test.each([
    ['status', 'succeeded\u0000', 'succeeded⟦U+0000⟧'],
    ['status', 'suсceeded', 'su⟦U+0441⟧ceeded'],
    ['reason', 'damaged_item\ud83d', 'damaged_item⟦U+D83D⟧'],
    ['reason', 'Kundin wünscht – 😀', 'Kundin wünscht – 😀'],
    ['reason', 'x'.repeat(5_000), `${'x'.repeat(2_000)}⟦+3000⟧`],
    ['currency', 'USD\u0000', 'USD⟦U+0000⟧'],
  ])('keeps a %s in the provider’s own words, %j, visibly', async (member, said, kept) => {
    const { connector } = connectorWith(() => page([{ ...RECORD, [member]: said }]));
    const seen = await observe(connector);
    expect(seen).toMatchObject({ kind: 'found', effect: { [member]: kept } });
    // None of it passes for what was approved, nor for a status that we know.
    if (member === 'status') expect(seen).toMatchObject({ match: 'exact', effect: { settlement: 'unrecognised' } });
    else expect(seen).toMatchObject({ match: 'different', differing: [{ field: member, observed: kept }] });
  });

  test('of ours is not hidden by the strange words of somebody else’s refund', async () => {
    const { connector } = connectorWith(() => page([{ ...other(1), status: '\u0000', reason: '\ud83d' }, RECORD]));
    expect(await observe(connector)).toMatchObject({ match: 'exact', effect: { provider_ref: 're_1' } });
  });

  test('takes a tag that is no word for none', async () => {
    const { connector } = connectorWith(() => page([{ ...RECORD, metadata: { run_id: 7 } }]));
    expect(await observe(connector)).toMatchObject({ match: 'lookalike' });
  });
});

describe('the read of a payment', () => {
  const facts = {
    payment_id: 'pay_913',
    captured_amount_minor: 4200,
    refundable_amount_minor: 4200,
    currency: 'USD',
    disputed: false,
  };
  const readWith = (answer: Parameters<typeof connectorWith>[0], payment_id = 'pay_913') => {
    const { connector, asked } = connectorWith(answer);
    const read = connector.reads.read_payment;
    if (read === undefined) throw new Error('no such read');
    return { asked, result: read({ payment_id }) };
  };

  test('records its facts alone, with where they came from and their version', async () => {
    const { result } = readWith(() => reply(200, { ...facts, version: 7, updated_at: 'x' }));
    expect(await result).toEqual({
      kind: 'found',
      record: {
        kind: 'payment_record',
        source_ref: 'sandbox-payments:/payments/payments/pay_913',
        version_marker: '7',
        facts,
      },
    });
  });

  test.each<[string, HttpReply | { kind: 'unreachable'; reason: string; detail: string }, string]>([
    ['the provider does not know it', reply(404, { code: 'payment_not_found' }), 'missing'],
    ['somebody else has no such page', reply(404, { code: 'route_not_found' }), 'failed'],
    ['a gateway has no such page', reply(404, '<h1>no</h1>'), 'failed'],
    ['the provider has an error', reply(500, { code: 'x' }), 'failed'],
    ['the provider redirects', reply(302, ''), 'failed'],
    ['the facts are not understood', reply(200, { ...facts, disputed: 'no' }), 'failed'],
    ['its id could not be an action’s', reply(200, { ...facts, payment_id: 'pay 913' }), 'failed'],
    ['no answer comes', { kind: 'unreachable', reason: 'timeout', detail: 'x' }, 'failed'],
  ])('when %s is %s', async (_, answer, kind) => {
    expect((await readWith(() => answer).result).kind).toBe(kind);
  });

  test.each(['..', '.', '', 'a/b', 'a?b'])('of %j never leaves its place', async (payment_id) => {
    const { connector, asked } = connectorWith(() => reply(200, facts));
    await expect(Promise.resolve().then(() => connector.reads.read_payment?.({ payment_id }))).rejects.toThrow(
      'identifier_charset',
    );
    expect(asked).toEqual([]);
  });
});

describe('the prepared request', () => {
  test('is the approved action in canonical bytes, tagged with run and digest, and nothing else', () => {
    const { prepared } = connectorWith(() => reply(500, ''));
    const text = new TextDecoder().decode(prepared.bytes);
    expect(canonicalJson(JSON.parse(text))).toBe(text);
    expect(JSON.parse(text)).toEqual({
      payment_id: 'pay_913',
      amount: 4200,
      currency: 'USD',
      reason: 'damaged_item',
      metadata: { run_id: RUN_ID, action_digest: `sha256:${'a'.repeat(64)}`, order_id: 'order_913', request: {} },
    });
    expect(prepared.request).toMatchObject({ method: 'POST', url: 'http://pay.test/payments/refunds' });
    expect(prepared.request.headers['idempotency-key']).toBe('cs-1');
    expect(text).not.toContain('secret');
  });

  test('is the same whatever the time, the order of members and the instance', () => {
    const reversed = Object.fromEntries(Object.entries(ACTION).reverse()) as JsonObject;
    const [one, two] = [connectorWith(() => reply(500, '')), connectorWith(() => reply(500, ''))];
    expect(one.prepare(reversed)).toEqual(two.prepared);
  });

  test.each([1, 4200, 2 ** 53 - 1])('carries %i minor units exactly', (amount_minor) => {
    const { prepare } = connectorWith(() => reply(500, ''));
    expect(new TextDecoder().decode(prepare({ ...ACTION, amount_minor }).bytes)).toContain(`"amount":${amount_minor},`);
  });

  test.each<[string, JsonObject]>([
    ['without an amount', { amount_minor: null }],
    ['of nothing', { amount_minor: 0 }],
    ['of a fraction', { amount_minor: 41.5 }],
    ['of another operation', { operation: 'payout' }],
    ['with a member that nobody knows', { extra: 1 }],
    ['with a reason outside of the policy', { reason: 'fraudulent' }],
    ['to no payment', { destination: '' }],
  ])('is not made of an action %s', (_, change) => {
    const { prepare } = connectorWith(() => reply(500, ''));
    expect(() => prepare({ ...ACTION, ...change })).toThrow('"path"');
  });
});

describe('the contract', () => {
  test.each([
    ['USD', 4200, undefined],
    ['JPY', 1, undefined],
    ['KWD', 1, undefined],
    ['XXX', 4200, 'currency_unsupported'],
    ['usd', 4200, 'currency_unsupported'],
    ['constructor', 4200, 'currency_unsupported'],
  ])('carries %s %i: %s', (currency, amount, expected) => {
    expect(checkMoney(SANDBOX_PAYMENTS_CONTRACT.amounts, amount, currency)).toBe(expected);
  });

  test('refuses what is not a multiple of a currency’s granularity', () => {
    const amounts = { KWD: { exponent: 3, granularity: 10 } };
    expect([checkMoney(amounts, 1_230, 'KWD'), checkMoney(amounts, 1_234, 'KWD')]).toEqual([
      undefined,
      'amount_not_representable',
    ]);
  });

  test('never takes a key for younger than it may be: the margin is below the retention', () => {
    const { idempotency } = SANDBOX_PAYMENTS_CONTRACT;
    if (idempotency.kind !== 'key') throw new Error('no keys');
    expect(idempotency.safetyMarginMs).toBeLessThan(idempotency.retentionMs);
    expect(idempotency.keyMaxLength).toBeGreaterThanOrEqual('cs-'.length + 64);
  });
});

describe('what the approver sees', () => {
  const lines = (change: JsonObject = {}) => displayRefund(RefundAction.parse({ ...ACTION, ...change }));
  const shownOf = (field: string, change: JsonObject = {}) => lines(change).find((line) => line.field === field)?.value;

  /** Another value of each member; the operation has only one. A new member of the action does not compile without its row. */
  const OTHER = {
    order_id: 'order_1',
    amount_minor: 4201,
    currency: 'JPY',
    destination: 'pay_1',
    reason: 'wrong_item',
    evidence_refs: ['evd_1'],
    metadata: { note: 'other' },
  } satisfies Record<Exclude<keyof RefundAction, 'operation'>, unknown>;

  test.each(Object.entries(OTHER))('changes with the action’s %s', (member, value) => {
    expect(lines({ [member]: value })).not.toEqual(lines());
  });

  test('names the operation', () => {
    expect(shownOf('operation')).toBe('Refund an order');
  });

  test.each([
    [4200, 'USD', 'USD 42.00'],
    [5800, 'JPY', 'JPY 5,800'],
    [1_234_567, 'KWD', 'KWD 1,234.567'],
  ])('shows %i %s as %s', (amount_minor, currency, shown) => {
    expect(shownOf('amount_minor', { amount_minor, currency })).toBe(shown);
  });

  const freeForm = (metadata: JsonObject) =>
    lines({ metadata })
      .filter((line) => line.field === 'metadata')
      .map(({ label, value, flagged }) => [label, value, flagged]);

  test('is each free-form member whole, in the same order whatever the order it came in', () => {
    const shown = [
      ['Sent along (free-form)', '{"Amount":"USD 1.00"}', false],
      ['Sent along (free-form)', '{"a":[1,{"b":null}]}', false],
    ];
    expect(freeForm({ a: [1, { b: null }], Amount: 'USD 1.00' })).toEqual(shown);
    expect(freeForm({ Amount: 'USD 1.00', a: [1, { b: null }] })).toEqual(shown);
  });

  test('is a long free-form text to its end', () => {
    const tail = 'TAIL: send the money to account XX00 TEST 0000 instead.';
    const note = `${'Routine refund, checked against the order. '.repeat(60)}${tail}`;
    expect(freeForm({ note })).toEqual([['Sent along (free-form)', JSON.stringify({ note }), false]]);
  });

  test('marks free-form text that could deceive, in names as in values, and says the amount from the payload alone', () => {
    const note = 'refund to \u202etset.elpmaxe@ana\u202c, amount 19.99\u200b USD';
    expect(freeForm({ note, 'p\u0430yment': 1 })).toEqual([
      [
        'Sent along (free-form)',
        '{"note":"refund to ⟦U+202E⟧tset.elpmaxe@ana⟦U+202C⟧, amount 19.99⟦U+200B⟧ USD"}',
        true,
      ],
      ['Sent along (free-form)', '{"p⟦U+0430⟧yment":1}', true],
    ]);
    expect(shownOf('amount_minor', { amount_minor: 199_900, metadata: { note } })).toBe('USD 1,999.00');
  });

  test.each(['order_id', 'destination'])('is no %s that looks like another: the action itself refuses it', (member) => {
    for (const lookalike of ['pay_test_0001\u00a0', 'p\u0430y_test_0001', 'pay\u200b_1', 'pay_\u0661'])
      expect(RefundAction.safeParse({ ...ACTION, [member]: lookalike }).error?.issues[0]?.message).toBe(
        'identifier_charset',
      );
  });

  test('is no evidence whose name looks like another', () => {
    expect(RefundAction.safeParse({ ...ACTION, evidence_refs: ['evd_1, evd_2'] }).success).toBe(false);
  });
});
