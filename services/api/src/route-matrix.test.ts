import { ROUTES, type RouteName } from '@counterstamp/api-contract';
import type { RunId } from '@counterstamp/manifest-core';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { type Browser, ORIGIN, signedIn } from '../../../testing/browser.ts';
import { newRunId } from '../../../testing/store-fixture.ts';
import { type ApiFixture, apiFixture, createBody, INPUT, PROPOSAL, type RunningApi } from '../testing/api-fixture.ts';

/**
 * Who may do what, on their own tenant's things and on another's. Columns: the role of a key; no key at all; a key that expired, one that was
 * revoked; the session of an approver. `other`: the same request about what belongs to another tenant; a row without it names nothing of one.
 * `refusals`: the codes of what is no 2xx; every 401 is `unauthenticated`.
 */
const SPEC = `
                          requester  approver   operator   auditor    nobody     expired    revoked    session    refusals
  createRun         own   201        403        403        403        401        401        401        403        role_missing
  createRun         other 409        403        403        403        401        401        401        403        supersedes_invalid role_missing
  listRuns          own   200        200        200        200        401        401        401        200
  getRun            own   200        200        200        200        401        401        401        200
  getRun            other 404        404        404        404        401        401        401        404        run_not_found
  approvalCard      own   200        200        200        200        401        401        401        200
  approvalCard      other 404        404        404        404        401        401        401        404        run_not_found
  runEvents         own   200        200        200        200        401        401        401        200
  runEvents         other 404        404        404        404        401        401        401        404        run_not_found
  receipt           own   200        200        200        200        401        401        401        200
  receipt           other 404        404        404        404        401        401        401        404        run_not_found
  propose           own   200        403        403        403        401        401        401        403        role_missing
  propose           other 404        403        403        403        401        401        401        403        run_not_found role_missing
  decide            own   403        200        403        403        401        401        401        200        not_an_approver
  decide            other 403        404        403        403        401        401        401        404        not_an_approver run_not_found
  decisionChallenge own   403        403        403        403        401        401        401        200        session_required
  decisionChallenge other 403        403        403        403        401        401        401        404        session_required run_not_found
  cancelRun         own   200        403        200        403        401        401        401        403        role_missing
  cancelRun         other 404        403        404        403        401        401        401        403        run_not_found role_missing
  verdict           own   403        403        409        403        401        401        401        403        role_missing not_in_doubt
  verdict           other 403        403        404        403        401        401        401        403        role_missing run_not_found
  supportVerdict    own   403        403        409        403        401        401        401        403        role_missing not_in_doubt
  supportVerdict    other 403        403        404        403        401        401        401        403        role_missing run_not_found
  listInstances     own   403        403        200        403        401        401        401        403        role_missing
  fenceInstance     own   403        403        404        403        401        401        401        403        role_missing instance_not_found
  listAlarms        own   403        403        200        200        401        401        401        403        role_missing
  listHolds         own   403        403        200        200        401        401        401        403        role_missing
  setHold           own   403        403        200        403        401        401        401        403        role_missing
  releaseHold       own   403        403        200        403        401        401        401        403        role_missing
  enrolmentOptions  own   400        400        400        400        400        400        400        400        value_invalid
  enrol             own   400        400        400        400        400        400        400        400        member_missing
  signInOptions     own   200        200        200        200        200        200        200        200
  signIn            own   400        400        400        400        400        400        400        400        member_missing
  oidcLogin         own   404        404        404        404        404        404        404        404        route_not_found
  oidcCallback      own   404        404        404        404        404        404        404        404        route_not_found
  readSession       own   403        403        403        403        401        401        401        200        session_required
  signOut           own   403        403        403        403        401        401        401        200        session_required
  stepUpOptions     own   403        403        403        403        401        401        401        200        session_required
  stepUp            own   403        403        403        403        401        401        401        400        session_required member_missing
  listPasskeys      own   403        403        403        403        401        401        401        200        session_required
  passkeyOptions    own   403        403        403        403        401        401        401        200        session_required
  addPasskey        own   403        403        403        403        401        401        401        400        session_required member_missing
  revokePasskey     own   403        403        403        403        401        401        401        409        session_required passkey_last
  revokePasskey     other 403        403        403        403        401        401        401        404        session_required passkey_not_found
  checkpoints       own   403        403        200        200        401        401        401        403        role_missing
  keys              own   200        200        200        200        200        200        200        200
  health            own   200        200        200        200        200        200        200        200
  readiness         own   200        200        200        200        200        200        200        200
`;

const CALLERS = ['requester', 'approver', 'operator', 'auditor', 'nobody', 'expired', 'revoked', 'session'] as const;
type CallerName = (typeof CALLERS)[number];
type Whose = 'own' | 'other';
/** What a request is about. */
interface Target {
  run_id: RunId;
  credential_id: string;
  /** What a new run supersedes. */
  supersedes: RunId | null;
  /** The body of a decision on the run. */
  decision: Record<string, unknown>;
}
interface Asked {
  path: string;
  body?: unknown;
}
type Ask = (target: Target) => Asked;

const NORTH = 'shop_north';
const SOUTH = 'shop_south';

let fixture: ApiFixture;
let api: RunningApi;
let browser: Browser;
let stranger: Browser;
const keys = new Map<CallerName, string>();

beforeAll(async () => {
  fixture = await apiFixture();
  api = await fixture.start();
  const { owner } = fixture.store;
  for (const role of ['requester', 'approver', 'operator', 'auditor'] as const) {
    keys.set(role, (await fixture.store.principal(role)).key);
  }
  for (const [name, column] of [
    ['expired', 'expires_at'],
    ['revoked', 'revoked_at'],
  ] as const) {
    const { key, principal_id } = await fixture.store.principal('operator', name);
    await owner.unsafe(`update cs.api_key set ${column} = cs.clock() where principal_id = '${principal_id}'`);
    keys.set(name, key);
  }
  browser = await signedIn(fixture.store.owner, api.url, 'ada', ['approver']);
  stranger = await signedIn(fixture.store.owner, api.url, 'ben', ['approver'], { tenant: SOUTH });
});
afterAll(() => fixture.close());

const onRun =
  (end: string, body?: unknown): Ask =>
  ({ run_id }) => ({ path: `/v1/runs/${run_id}${end}`, ...(body === undefined ? {} : { body }) });
const at =
  (path: string, body?: unknown): Ask =>
  () => ({ path, ...(body === undefined ? {} : { body }) });

/** A request for each route that is right in form, and in substance wherever that needs no ceremony. */
const REQUESTS: Record<RouteName, Ask> = {
  createRun: ({ supersedes }) => ({ path: '/v1/runs', body: createBody(supersedes === null ? {} : { supersedes }) }),
  listRuns: at('/v1/runs'),
  getRun: onRun(''),
  approvalCard: onRun('/card'),
  runEvents: onRun('/events'),
  receipt: onRun('/receipt'),
  propose: onRun('/proposals', { proposal: PROPOSAL }),
  decide: ({ run_id, decision }) => ({ path: `/v1/runs/${run_id}/decisions`, body: decision }),
  decisionChallenge: ({ run_id, decision }) => ({ path: `/v1/runs/${run_id}/decisions/challenge`, body: decision }),
  cancelRun: onRun('/cancel'),
  verdict: onRun('/verdicts', { verdict: 'look_again', evidence: 'looked', revision: 6 }),
  supportVerdict: onRun('/supports', { kind: 'waive_fencing', reason: 'seen', revision: 6 }),
  listInstances: at('/v1/instances'),
  fenceInstance: at('/v1/instances/ins_unknown/fence', { evidence: 'gone' }),
  listAlarms: at('/v1/alarms'),
  listHolds: at('/v1/holds'),
  setHold: at('/v1/holds/sandbox-payments', { reason: 'test' }),
  releaseHold: at('/v1/holds/sandbox-payments'),
  enrolmentOptions: at('/v1/enrolment/options', { invitation: 'csi_unknown' }),
  enrol: at('/v1/enrolment', {}),
  signInOptions: at('/v1/session/options', {}),
  signIn: at('/v1/session', {}),
  oidcLogin: at('/v1/oidc/login'),
  oidcCallback: at('/v1/oidc/callback'),
  readSession: at('/v1/session'),
  signOut: at('/v1/session'),
  stepUpOptions: at('/v1/session/step-up/options', {}),
  stepUp: at('/v1/session/step-up', {}),
  listPasskeys: at('/v1/passkeys'),
  passkeyOptions: at('/v1/passkeys/options', {}),
  addPasskey: at('/v1/passkeys', {}),
  revokePasskey: ({ credential_id }) => ({ path: `/v1/passkeys/${credential_id}` }),
  checkpoints: at('/v1/checkpoints'),
  keys: at('/v1/keys'),
  health: at('/healthz'),
  readiness: at('/readyz'),
};

interface Reply {
  status: number;
  code: string | undefined;
  text: string;
}

async function send(caller: CallerName, name: RouteName, target: Target): Promise<Reply> {
  const { path, body } = REQUESTS[name](target);
  const method = ROUTES[name].method.toUpperCase();
  if (caller === 'session') {
    // Whoever signs out is not asked for again.
    const used = name === 'signOut' ? await signedIn(fixture.store.owner, api.url, 'eve', ['approver']) : browser;
    const reply = await used.send(method, path, body);
    return { status: reply.status, code: reply.body?.code, text: JSON.stringify(reply.body) };
  }
  const key = keys.get(caller);
  const response = await fetch(`${api.url}${path}`, {
    method,
    headers: {
      origin: ORIGIN,
      ...(key === undefined ? {} : { authorization: `Bearer ${key}` }),
      ...(body === undefined ? {} : { 'content-type': 'application/json' }),
    },
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    redirect: 'manual',
  });
  const text = await response.text();
  return { status: response.status, code: (JSON.parse(text) as { code?: string }).code, text };
}

/** A run that waits for a decision, and a passkey, of one's own tenant or of the other. */
async function targetOf(whose: Whose): Promise<Target> {
  const { run_id } = await fixture.store.toAwaitingApproval({ tenant_id: whose === 'own' ? NORTH : SOUTH });
  const loaded = await fixture.store.stores.executor.load(run_id);
  const approval = loaded?.manifest.approval;
  if (approval === null || approval === undefined) throw new Error('nothing to approve');
  const { approval_id, approval_digest, action_digest, action_revision } = approval;
  const passkeys = await (whose === 'own' ? browser : stranger).send('GET', '/v1/passkeys');
  return {
    run_id,
    credential_id: passkeys.body.passkeys[0]?.credential_id ?? '',
    supersedes: whose === 'own' ? null : run_id,
    decision: { decision: 'approve', approval_id, approval_digest, action_digest, action_revision },
  };
}

const ROWS = SPEC.trim()
  .split('\n')
  .slice(1)
  .map((line) => {
    const [name = '', whose = '', ...cells] = line.trim().split(/ +/);
    return { name, whose, statuses: cells.slice(0, CALLERS.length).map(Number), refusals: cells.slice(CALLERS.length) };
  });

test('every route has its row', () => {
  expect([...new Set(ROWS.map((row) => row.name))].sort()).toEqual(Object.keys(ROUTES).sort());
});

test.each(ROWS)('$name on $whose: $statuses', async ({ name, whose, statuses, refusals }) => {
  const route = nameOf(name);
  const codes = new Set<string>();
  const found: number[] = [];
  for (const caller of CALLERS) {
    const target = await targetOf(whose === 'own' ? 'own' : 'other');
    const reply = await send(caller, route, target);
    found.push(reply.status);
    if (reply.status === 401) expect(reply.code).toBe('unauthenticated');
    else if (reply.code !== undefined) codes.add(reply.code);
    expect(reply.text).not.toContain(SOUTH);
    if (whose !== 'other') continue;
    const run_id = newRunId();
    const nothing = await send(caller, route, { ...target, run_id, supersedes: run_id, credential_id: 'unknown' });
    expect(reply.text, caller).toBe(nothing.text);
  }
  expect(found).toEqual(statuses);
  expect([...codes].sort()).toEqual([...refusals].sort());
});

test('a list holds the runs of the own tenant and of no other', async () => {
  const theirs = await targetOf('other');
  for (const caller of ['requester', 'approver', 'operator', 'auditor', 'session'] as const) {
    expect((await send(caller, 'listRuns', theirs)).text).not.toContain(theirs.run_id);
  }
});

test('an approval of another tenant is as unknown to one’s own run as one that does not exist', async () => {
  const [own, other] = [await targetOf('own'), await targetOf('other')];
  for (const caller of ['approver', 'session'] as const) {
    for (const name of ['decide', 'decisionChallenge'] as const) {
      const foreign = await send(caller, name, { ...own, decision: other.decision });
      const nothing = await send(caller, name, { ...own, decision: { ...other.decision, approval_id: 'apr_unknown' } });
      expect(foreign.text).toBe(nothing.text);
    }
  }
});

test('the same request id in two tenants is two runs, each repeated in its own', async () => {
  const body = createBody();
  const south = await fixture.store.principal('requester', 'requester', SOUTH);
  const created = [
    await api.post('/v1/runs', keys.get('requester'), body),
    await api.post('/v1/runs', south.key, body),
  ];
  expect(created.map((reply) => reply.status)).toEqual([201, 201]);
  expect(created[0]?.body.run_id).not.toBe(created[1]?.body.run_id);
  const repeated = await api.post('/v1/runs', south.key, body);
  expect([repeated.status, repeated.body.run_id]).toEqual([200, created[1]?.body.run_id]);
  const conflict = await api.post('/v1/runs', south.key, { ...body, input: { ...INPUT, reason: 'another' } });
  expect([conflict.status, conflict.body.run_id]).toEqual([409, created[1]?.body.run_id]);
});

test('no metric says which tenant asked', () => {
  expect(api.observed.length).toBeGreaterThan(0);
  for (const seen of api.observed)
    expect(Object.keys(seen).sort()).toEqual(['duration_ms', 'method', 'route', 'status']);
  expect(JSON.stringify(api.observed)).not.toMatch(/shop_|run_[0-9a-f]|prn_/);
});

test('what was tried on another tenant’s things is in the trier’s audit alone, without their run', async () => {
  const { owner } = fixture.store;
  const mixed = await owner`
    select a.audit_id from cs.audit_event a left join cs.run r using (run_id) left join cs.principal p using (principal_id)
     where a.tenant_id is not null and (r.tenant_id <> a.tenant_id or p.tenant_id <> a.tenant_id)`;
  expect(mixed).toEqual([]);
  const theirs = await owner`select audit_id from cs.audit_event where tenant_id = ${SOUTH} and code = 'run_not_found'`;
  expect(theirs).toEqual([]);
  const own = await owner`select audit_id from cs.audit_event where tenant_id = ${NORTH} and code = 'run_not_found'`;
  expect(own.length).toBeGreaterThan(0);
});

function nameOf(text: string): RouteName {
  const name = (Object.keys(ROUTES) as RouteName[]).find((one) => one === text);
  if (name === undefined) throw new Error(`there is no route ${text}`);
  return name;
}
