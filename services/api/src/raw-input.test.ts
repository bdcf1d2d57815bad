import { request as httpRequest } from 'node:http';
import { connect } from 'node:net';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { type ApiFixture, apiFixture, createBody, PROPOSAL, type RunningApi } from '../testing/api-fixture.ts';

let fixture: ApiFixture;
let api: RunningApi;
let requester: string;

beforeAll(async () => {
  fixture = await apiFixture();
  api = await fixture.start();
  requester = (await fixture.store.principal('requester')).key;
});
afterAll(() => fixture.close());

let made = 0;
/** Raw text of a create body; what is peculiar stands in `input`, `metadata`, `proposal` or at the top, byte for byte. */
function raw(parts: { input?: string; top?: string }): string {
  const input = parts.input ?? '"requested_amount_minor": 1999';
  return `{ "request_id": "case_raw_${++made}", "input": { "order_id": "order_913", ${input}, "currency": "USD", "reason": "duplicate_charge" }${parts.top ?? ''} }`;
}
const amount = (value: string) => ({ input: `"requested_amount_minor": ${value}` });
const metadata = (value: string) => ({ input: `"requested_amount_minor": 1999, "metadata": ${value}` });
const proposal = (members: string) => ({
  top: `, "proposal": { "operation": "refund_order", "order_id": "order_913", "currency": "USD", "reason": "duplicate_charge", ${members} }`,
});

async function expectRefused(body: string | Uint8Array, code: string, path: string): Promise<void> {
  const before = await fixture.runCount();
  const reply = await api.post('/v1/runs', requester, body);
  expect(reply).toMatchObject({ status: 400, body: { status: 400, code, path } });
  expect(reply.headers.get('content-type')).toBe('application/problem+json');
  expect(await fixture.runCount()).toBe(before);
}

describe('cases from the field', () => {
  test.each([
    // O01: one member written twice; the second also spelled with an escape.
    [
      'O01 a repeated amount',
      amount('1999, "requested_amount_minor": 199900'),
      'duplicate_member',
      '/input/requested_amount_minor',
    ],
    [
      'O01 a repeated amount in disguise',
      amount('1999, "requested_amount_min\\u006fr": 199900'),
      'duplicate_member',
      '/input/requested_amount_minor',
    ],
    [
      'O01 in the proposal',
      proposal('"amount_minor": 1999, "amount_min\\u006fr": 199900'),
      'duplicate_member',
      '/proposal/amount_minor',
    ],
    ['O01 deep in metadata', metadata('{ "a": [ { "b": 1, "b": 2 } ] }'), 'duplicate_member', '/input/metadata/a/0/b'],
    ['O01 the input as a whole', { top: ', "input": {}' }, 'duplicate_member', '/input'],
    // O02: half an emoji.
    [
      'O02 a lone high surrogate',
      metadata('{ "note": "thanks \\ud83d" }'),
      'text_not_well_formed',
      '/input/metadata/note',
    ],
    [
      'O02 a pair in the wrong order',
      metadata('{ "note": "thanks \\ude00\\ud83d" }'),
      'text_not_well_formed',
      '/input/metadata/note',
    ],
    ['O02 a lone surrogate in a name', metadata('{ "k\\udc00": "v" }'), 'text_not_well_formed', '/input/metadata'],
    [
      'O02 in context',
      { top: ', "context": [ { "source": "mail", "text": "\\ud83d" } ]' },
      'text_not_well_formed',
      '/context/0/text',
    ],
    ['a NUL', metadata('{ "note": "a\\u0000b" }'), 'text_has_nul', '/input/metadata/note'],
    // O03: beyond 2^53.
    [
      'O03 an order number in metadata',
      metadata('{ "order_no": 9007199254740993 }'),
      'number_not_safe',
      '/input/metadata/order_no',
    ],
    ['O03 an amount beyond 2^53', amount('9007199254740993'), 'number_not_safe', '/input/requested_amount_minor'],
    ['O03 an amount of 1e21', amount('1e21'), 'number_not_safe', '/input/requested_amount_minor'],
    ['a number beyond every double', metadata('{ "n": 1e999 }'), 'number_not_safe', '/input/metadata/n'],
    ['a number that would become nothing', metadata('{ "n": 1e-999 }'), 'number_not_safe', '/input/metadata/n'],
    // O05: members that quietly vanish elsewhere.
    [
      'O05 __proto__ in the input',
      amount('1999, "__proto__": { "approved": true, "approver": "cfo" }'),
      'unknown_member',
      '/input/__proto__',
    ],
    [
      'O05 __proto__ in the proposal',
      proposal('"amount_minor": 1999, "__proto__": { "approved": true }'),
      'unknown_member',
      '/proposal/__proto__',
    ],
    ['O05 __proto__ at the top', { top: ', "__proto__": {}' }, 'unknown_member', '/__proto__'],
    ['O05 an extra decimal amount', amount('1999, "amount": 19.99'), 'unknown_member', '/input/amount'],
    [
      'O05 names of Object.prototype in metadata',
      metadata('{ "constructor": "x", "__proto__": "y", "toString": "z" }'),
      'unknown_member',
      '/input/metadata/__proto__',
    ],
    // O07: fractions where integers belong.
    ['O07 a fraction', amount('1998.9999999999998'), 'amount_not_integer', '/input/requested_amount_minor'],
    [
      'O07 a fraction that a double rounds to a whole number',
      amount('1998.99999999999999999'),
      'number_not_safe',
      '/input/requested_amount_minor',
    ],
    ['O07 a decimal text', amount('"19.99"'), 'amount_not_integer', '/input/requested_amount_minor'],
    ['O07 true', amount('true'), 'amount_not_integer', '/input/requested_amount_minor'],
    // O08: nothing is not everything.
    ['O08 zero', amount('0'), 'amount_not_positive', '/input/requested_amount_minor'],
    ['O08 minus zero', amount('-0'), 'amount_not_positive', '/input/requested_amount_minor'],
    ['O08 no amount', { input: '"metadata": {}' }, 'amount_missing', '/input/requested_amount_minor'],
    ['O08 null', amount('null'), 'amount_missing', '/input/requested_amount_minor'],
    ['O08 an empty text', amount('""'), 'amount_missing', '/input/requested_amount_minor'],
    ['O08 a negative amount', amount('-1999'), 'amount_not_positive', '/input/requested_amount_minor'],
    ['O08 no amount in the proposal', proposal('"destination": "card"'), 'amount_missing', '/proposal/amount_minor'],
    // O13: the caller says that it is approved.
    [
      'O13 a state',
      { top: ', "status": "approved", "approval": { "approved": true, "approver": "cfo@example.test" }' },
      'unknown_member',
      '/status',
    ],
    [
      'O13 in the proposal',
      proposal('"amount_minor": 1999, "requires_approval": false'),
      'unknown_member',
      '/proposal/requires_approval',
    ],
  ] as const)('%s is refused with its place and leaves nothing behind', async (_, parts, code, path) => {
    await expectRefused(raw(parts), code, path);
    expect(({} as { approved?: unknown }).approved).toBeUndefined();
  });

  test('O13 a request that claims to be approved leaves an audit event', async () => {
    const before = (await fixture.audits()).length;
    await api.post('/v1/runs', requester, raw({ top: ', "status": "approved"' }));
    expect((await fixture.audits()).slice(before)).toMatchObject([
      { what: 'create_run', code: 'unknown_member', detail: { roles: ['requester'], path: '/status' } },
    ]);
  });

  test('O15 a decision that names its decider is refused whatever the rest says', async () => {
    const approver = (await fixture.store.principal('approver')).key;
    const { run_id } = await fixture.store.toAwaitingApproval();
    const body = '{ "decision": "approve", "digest": "<digest shown on the card>", "decided_by": "boss@example.test" }';
    const reply = await api.post(`/v1/runs/${run_id}/decisions`, approver, body);
    expect(reply.status).toBe(400);
    expect((await api.client(approver).getRun(run_id)).approval?.decisions).toEqual([]);
  });

  test.each([
    ['O02 a whole emoji', metadata('{ "note": "thanks \\ud83d\\ude00" }'), { note: 'thanks 😀' }],
    [
      'O03 a long order number as text',
      metadata('{ "order_no": "9007199254740993" }'),
      { order_no: '9007199254740993' },
    ],
    [
      'O05 harmless names of Object.prototype',
      metadata('{ "constructor": "x", "toString": "z" }'),
      { constructor: 'x', toString: 'z' },
    ],
    ['a fraction where one is allowed', metadata('{ "n": 1.5, "m": 5e-324 }'), { n: 1.5, m: 5e-324 }],
  ])('%s is kept as it is', async (_, parts, expected) => {
    const { status, body } = await api.post('/v1/runs', requester, raw(parts));
    expect(status).toBe(201);
    const read = await api.get(`/v1/runs/${body.run_id}`, requester);
    expect(read.body.input.metadata).toEqual(expected);
  });

  // O22: external references with colons, digits and worse.
  test.each([
    ['order:7', 201],
    ['order:2026:11:30:7', 201],
    ['a:b:c', 201],
    ['123456', 201],
    ['00123', 201],
    ['0', 201],
    ['ref/with/slash', 400],
    ['ref with space', 400],
    ['über-7', 400],
    ['', 400],
  ])('O22 the reference %j is answered with %i', async (reference, status) => {
    const body = createBody();
    const reply = await api.post('/v1/runs', requester, {
      ...body,
      input: { ...(body.input as object), order_id: reference },
    });
    const fault = { code: 'identifier_charset', path: '/input/order_id' };
    expect(reply).toMatchObject({ status, body: status === 400 ? fault : { state: 'queued', generation: 1 } });
    const named = await api.post('/v1/runs', requester, { ...createBody(), request_id: reference });
    expect(named.status).toBe(status);
  });
});

describe('the raw body', () => {
  const bytes = (text: string) => new TextEncoder().encode(text);

  test.each([
    ['empty', '', 'body_missing'],
    ['only blank', '  \n', 'json_syntax'],
    ['not JSON', '{"a":', 'json_syntax'],
    ['two documents', '{} {}', 'json_syntax'],
    ['with a comment', '{/* */}', 'json_syntax'],
    ['with a trailing comma', '{"a":1,}', 'json_syntax'],
    ['with a byte order mark', '\uFEFF{}', 'json_syntax'],
    ['not UTF-8', new Uint8Array([0x7b, 0x22, 0xff, 0x22, 0x7d]), 'text_not_utf8'],
    ['with a surrogate in its bytes', new Uint8Array([0x22, 0xed, 0xa0, 0x80, 0x22]), 'text_not_utf8'],
    ['an overlong spelling', new Uint8Array([0x22, 0xc0, 0xaf, 0x22]), 'text_not_utf8'],
    ['UTF-16', new Uint8Array([0xff, 0xfe, 0x7b, 0, 0x7d, 0]), 'text_not_utf8'],
    ['nested without end', '['.repeat(100_000), 'json_syntax'],
    ['nested too deep', `${'['.repeat(100_000)}${']'.repeat(100_000)}`, 'nesting_too_deep'],
    ['no object', '"run"', 'value_invalid'],
    ['null', 'null', 'value_invalid'],
  ])('%s is refused', async (_, body, code) => {
    await expectRefused(body, code, '');
  });

  test.each([
    ['text/plain', {}],
    ['application/x-www-form-urlencoded', {}],
    ['application/jsonp', {}],
    ['application/json; charset=iso-8859-1', {}],
    ['application/json', { 'content-encoding': 'gzip' }],
  ])('of type %s %o is refused with 415', async (type, more) => {
    const reply = await api.post('/v1/runs', requester, createBody(), { 'content-type': type, ...more });
    expect(reply).toMatchObject({ status: 415, body: { code: 'content_type_unsupported' } });
  });

  test('without a type is refused with 415', async () => {
    const response = await fetch(`${api.url}/v1/runs`, {
      method: 'POST',
      headers: { authorization: `Bearer ${requester}` },
      body: bytes('{}'),
    });
    expect(response.status).toBe(415);
    expect(await response.json()).toMatchObject({ code: 'content_type_unsupported' });
  });

  test('may hold 256 KB and not one byte more, announced or not', async () => {
    const padded = (size: number) => {
      const text = raw({});
      return text + ' '.repeat(size - text.length);
    };
    expect((await api.post('/v1/runs', requester, padded(262_144))).status).toBe(201);
    const before = await fixture.runCount();
    expect(await api.post('/v1/runs', requester, padded(262_145))).toMatchObject({
      status: 413,
      body: { code: 'body_too_large' },
    });
    expect((await chunked(padded(262_145))).status).toBe(413);
    expect((await chunked(padded(5_000_000))).status).toBe(413);
    expect((await chunked(padded(262_144))).status).toBe(201);
    expect(await fixture.runCount()).toBe(before + 1);
  });

  /** Sends without a length, in chunks, and reads the answer's status as soon as it comes. */
  function chunked(text: string): Promise<{ status: number }> {
    return new Promise((resolve, reject) => {
      const call = httpRequest(
        `${api.url}/v1/runs`,
        { method: 'POST', headers: { authorization: `Bearer ${requester}`, 'content-type': 'application/json' } },
        (response) => {
          resolve({ status: response.statusCode ?? 0 });
          response.resume();
        },
      );
      call.on('error', reject);
      for (let at = 0; at < text.length; at += 60_000) call.write(text.slice(at, at + 60_000));
      call.end();
    });
  }

  test('that breaks off is dropped without a record or a logged fault', async () => {
    const before = [await fixture.runCount(), api.logged.length];
    const observed = api.observed.length;
    const { hostname, port } = new URL(api.url);
    const socket = connect(Number(port), hostname);
    socket.write(
      `POST /v1/runs HTTP/1.1\r\nHost: ${hostname}\r\nAuthorization: Bearer ${requester}\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{"request_id`,
    );
    await new Promise((resolve) => setTimeout(resolve, 100));
    socket.destroy();
    await expect.poll(() => api.observed.length).toBe(observed + 1);
    expect(api.observed.at(-1)?.status).toBe(400);
    expect([await fixture.runCount(), api.logged.length]).toEqual(before);
  });

  test('of a proposal and of a cancellation goes through the same gate', async () => {
    const { run_id } = await fixture.store.createRun();
    const path = `/v1/runs/${run_id}`;
    const twice = `{"proposal": ${JSON.stringify(PROPOSAL).replace('}', ',"amount_minor":1}')}}`;
    expect((await api.post(`${path}/proposals`, requester, twice)).body).toMatchObject({
      code: 'duplicate_member',
      path: '/proposal/amount_minor',
    });
    expect((await api.post(`${path}/cancel`, requester, '{"reason":"\\ud800"}')).body).toMatchObject({
      code: 'text_not_well_formed',
      path: '/reason',
    });
    expect((await api.post(`${path}/cancel`, requester, '{"force":true}')).body).toMatchObject({
      code: 'unknown_member',
      path: '/force',
    });
    expect((await api.get(path, requester)).body.state).toBe('queued');
  });

  test('with an endless member name is refused, and the audit keeps a bounded part of it', async () => {
    const name = `${'x'.repeat(199)}😀${'y'.repeat(100_000)}`;
    await expectRefused(raw({ top: `, "${name}": 1` }), 'unknown_member', `/${name}`);
    const { detail } = (await fixture.audits()).at(-1) ?? {};
    expect(detail?.path).toBe(`/${'x'.repeat(199)}`);
  });
});
