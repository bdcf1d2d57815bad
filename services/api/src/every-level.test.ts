import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { type ApiFixture, apiFixture, type RunningApi } from '../testing/api-fixture.ts';
import { realDoors } from '../testing/workflow-doors.ts';

let fixture: ApiFixture;
let api: RunningApi;
const keys: Record<string, string> = {};
let run: { run_id: string; revision: number };
let decision: string;

beforeAll(async () => {
  fixture = await apiFixture();
  api = await fixture.start({ workflows: realDoors });
  for (const role of ['requester', 'approver', 'operator'] as const)
    keys[role] = (await fixture.store.principal(role)).key;
  const waiting = await fixture.store.toAwaitingApproval();
  run = waiting;
  const { approval } = await api.client(keys.approver ?? '').getRun(waiting.run_id);
  decision = `"approval_id":"${approval?.approval_id}","approval_digest":"${approval?.approval_digest}","action_digest":"${approval?.action_digest}","decision":"reject"`;
});
afterAll(() => fixture.close());

let made = 0;
const input = '"order_id":"order_913","currency":"USD","reason":"damaged"';
const amount = '"requested_amount_minor":1999';
const proposal = '"operation":"refund_order","order_id":"order_913","currency":"USD","reason":"damaged"';
const create = (members: string) => `{"request_id":"case_level_${++made}",${members}}`;

/** Who sends what where. */
const DOORS = {
  runs: { role: 'requester', path: () => '/v1/runs' },
  proposals: { role: 'requester', path: () => `/v1/runs/${run.run_id}/proposals` },
  decisions: { role: 'approver', path: () => `/v1/runs/${run.run_id}/decisions` },
  cancel: { role: 'requester', path: () => `/v1/runs/${run.run_id}/cancel` },
  verdicts: { role: 'operator', path: () => `/v1/runs/${run.run_id}/verdicts` },
  supports: { role: 'operator', path: () => `/v1/runs/${run.run_id}/supports` },
  fence: { role: 'operator', path: () => '/v1/instances/ins_1/fence' },
} as const;
type Door = keyof typeof DOORS;

/** One place of one body that a caller can fill: a right body but for the members put there. */
interface Level {
  what: string;
  to: Door;
  body: (members: string) => string;
  /** Where the members stand. */
  at: string;
  /** Free-form: any member may stand here. */
  free?: true;
}
const LEVELS: readonly Level[] = [
  { what: 'a request', to: 'runs', at: '', body: (m) => create(`"input":{${input},${amount}},${m}`) },
  { what: 'the input', to: 'runs', at: '/input', body: (m) => create(`"input":{${input},${amount},${m}}`) },
  {
    what: 'the metadata of the input',
    to: 'runs',
    at: '/input/metadata',
    free: true,
    body: (m) => create(`"input":{${input},${amount},"metadata":{${m}}}`),
  },
  {
    what: 'an object deep in the metadata',
    to: 'runs',
    at: '/input/metadata/a/1/b',
    free: true,
    body: (m) => create(`"input":{${input},${amount},"metadata":{"a":[0,{"b":{${m}}}]}}`),
  },
  {
    what: 'an entry of the context',
    to: 'runs',
    at: '/context/0',
    body: (m) => create(`"input":{${input},${amount}},"context":[{"source":"mail","text":"hi",${m}}]`),
  },
  {
    what: 'the proposal of a request',
    to: 'runs',
    at: '/proposal',
    body: (m) => create(`"input":{${input},${amount}},"proposal":{${proposal},"amount_minor":1999,${m}}`),
  },
  {
    what: 'a body with a proposal',
    to: 'proposals',
    at: '',
    body: (m) => `{"proposal":{${proposal},"amount_minor":1},${m}}`,
  },
  {
    what: 'a later proposal',
    to: 'proposals',
    at: '/proposal',
    body: (m) => `{"proposal":{${proposal},"amount_minor":1,${m}}}`,
  },
  {
    what: 'the metadata of a later proposal',
    to: 'proposals',
    at: '/proposal/metadata',
    free: true,
    // The proposal itself is wrong, so that what is free to stand here still changes nothing.
    body: (m) => `{"proposal":{${proposal},"amount_minor":0,"metadata":{${m}}}}`,
  },
  { what: 'a decision', to: 'decisions', at: '', body: (m) => `{${decision},"action_revision":6,${m}}` },
  { what: 'a cancellation', to: 'cancel', at: '', body: (m) => `{"reason":"no",${m}}` },
  { what: 'a verdict', to: 'verdicts', at: '', body: (m) => `{"revision":6,"verdict":"landed","evidence":"x",${m}}` },
  {
    what: 'the observed effect of a verdict',
    to: 'verdicts',
    at: '/effect',
    body: (m) =>
      `{"revision":6,"verdict":"landed_differently","evidence":"x","effect":{"provider_ref":"re_1","status":"done",${m}}}`,
  },
  { what: 'a support', to: 'supports', at: '', body: (m) => `{"revision":6,"kind":"waive_fencing","reason":"x",${m}}` },
  { what: 'a fence', to: 'fence', at: '', body: (m) => `{"evidence":"x",${m}}` },
];

const FAULTS = [
  ['a member written twice', '"x":1,"x":1', 'duplicate_member', '/x'],
  ['a member written twice, once with an escape', '"ab":1,"a\\u0062":2', 'duplicate_member', '/ab'],
  ['half of a pair in a value', '"x":"\\ud83d"', 'text_not_well_formed', '/x'],
  ['half of a pair in a name', '"x\\udc00":1', 'text_not_well_formed', ''],
  ['U+0000 in a value', '"x":"a\\u0000"', 'text_has_nul', '/x'],
  ['U+0000 in a name', '"x\\u0000":1', 'text_has_nul', ''],
  ['an integer beyond 2^53 − 1', '"x":9007199254740992', 'number_not_safe', '/x'],
  ['a negative one', '"x":-9007199254740993', 'number_not_safe', '/x'],
  ['a number beyond every double', '"x":1e999', 'number_not_safe', '/x'],
  ['a fraction that would be rounded away', '"x":1.00000000000000000001', 'number_not_safe', '/x'],
  ['__proto__', '"__proto__":{"approved":true}', 'unknown_member', '/__proto__'],
  ['__proto__ in disguise', '"\\u005f_proto__":1', 'unknown_member', '/__proto__'],
] as const;

async function send(level: Level, members: string) {
  const { role, path } = DOORS[level.to];
  return await api.post(path(), keys[role], level.body(members));
}

async function expectRefused(level: Level, members: string, code: string, path: string): Promise<void> {
  const before = await fixture.runCount();
  expect(await send(level, members)).toMatchObject({ status: 400, body: { code, path } });
  expect(await fixture.runCount()).toBe(before);
  expect((await fixture.row(run.run_id as never)).revision).toBe(run.revision);
}

describe.each(LEVELS)('in $what', (level) => {
  test.each(FAULTS)('%s is refused by code and place, and changes nothing', async (_, members, code, below) => {
    await expectRefused(level, members, code, `${level.at}${below}`);
  });

  test('nesting without end is refused', async () => {
    await expectRefused(level, `"x":${'['.repeat(40)}${']'.repeat(40)}`, 'nesting_too_deep', '');
  });

  test('a member that nobody asked for is refused unless the place is free-form', async () => {
    for (const name of ['approved', 'constructor', 'toString', 'ключ']) {
      if (level.free !== true) await expectRefused(level, `"${name}":true`, 'unknown_member', `${level.at}/${name}`);
      else if (level.to === 'runs') expect((await send(level, `"${name}":true`)).status).toBe(201);
      else await expectRefused(level, `"${name}":true`, 'amount_not_positive', '/proposal/amount_minor');
    }
  });
});

describe('an integer with an exponent or a fraction', () => {
  test.each<[string, Level['to'], () => string, string, string]>([
    [
      'the amount',
      'runs',
      () => create(`"input":{${input},"requested_amount_minor":1e3}`),
      'amount_not_integer',
      '/input/requested_amount_minor',
    ],
    [
      'the life of the approval',
      'runs',
      () => create(`"input":{${input},${amount}},"approval_life_ms":20000.5`),
      'number_not_integer',
      '/approval_life_ms',
    ],
    [
      'the amount of the request’s proposal',
      'runs',
      () => create(`"input":{${input},${amount}},"proposal":{${proposal},"amount_minor":1e3}`),
      'amount_not_integer',
      '/proposal/amount_minor',
    ],
    [
      'the amount of a later proposal',
      'proposals',
      () => `{"proposal":{${proposal},"amount_minor":10.5}}`,
      'amount_not_integer',
      '/proposal/amount_minor',
    ],
    [
      'the amount of a later proposal, with an exponent',
      'proposals',
      () => `{"proposal":{${proposal},"amount_minor":1e1}}`,
      'amount_not_integer',
      '/proposal/amount_minor',
    ],
    [
      'the revision of a decision',
      'decisions',
      () => `{${decision},"action_revision":6e0}`,
      'number_not_integer',
      '/action_revision',
    ],
    [
      'the revision of a verdict',
      'verdicts',
      () => '{"revision":6e0,"verdict":"landed","evidence":"x"}',
      'number_not_integer',
      '/revision',
    ],
    [
      'the amount of an observed effect',
      'verdicts',
      () =>
        '{"revision":6,"verdict":"landed_differently","evidence":"x","effect":{"provider_ref":"r","status":"s","currency":"USD","amount_minor":1e2}}',
      'amount_not_integer',
      '/effect/amount_minor',
    ],
    [
      'the revision of a support',
      'supports',
      () => '{"revision":6.5,"kind":"waive_fencing","reason":"x"}',
      'number_not_integer',
      '/revision',
    ],
  ])('is refused as %s', async (what, to, body, code, path) => {
    await expectRefused({ what, to, at: '', body }, '', code, path);
  });
});

test.each(Object.keys(DOORS) as Door[])('%s takes JSON only, of a bounded size', async (to) => {
  const path = DOORS[to].path();
  const key = keys[DOORS[to].role];
  expect(await api.post(path, key, '{}', { 'content-type': 'text/plain' })).toMatchObject({
    status: 415,
    body: { code: 'content_type_unsupported' },
  });
  expect(await api.post(path, key, ' '.repeat(262_145))).toMatchObject({
    status: 413,
    body: { code: 'body_too_large' },
  });
  expect((await fixture.row(run.run_id as never)).revision).toBe(run.revision);
});
