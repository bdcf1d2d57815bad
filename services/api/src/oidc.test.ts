import { createIdentityStore, disablePerson, enablePerson, hashSecret, linkPerson } from '@counterstamp/manifest-store';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { ORIGIN } from '../../../testing/browser.ts';
import { type ApiFixture, apiFixture, type RunningApi } from '../testing/api-fixture.ts';
import { type RunningProvider, startIdentityProvider } from '../testing/identity-provider.ts';
import { createOidc } from './oidc.ts';
import { FLOW_LIFE_MS, flowKeyOf, newFlow, openFlow, sealFlow } from './oidc-flow.ts';

const CALLBACK = `${ORIGIN}/v1/oidc/callback`;
const SUBJECT = 'sub-ana';
const TENANT = 'shop_north';

let fixture: ApiFixture;
let provider: RunningProvider;
let api: RunningApi;
let second: RunningApi;
let ana: string;
/** The wall clock of the apis stands at the real time, plus this many milliseconds. */
let aheadMs = 0;

beforeAll(async () => {
  fixture = await apiFixture();
  provider = await startIdentityProvider(CALLBACK);
  const start = () => fixture.start({ oidc: createOidc(provider.settings, ORIGIN, () => Date.now() + aheadMs) });
  [api, second] = [await start(), await start()];
  ana = (await fixture.store.principal('approver', 'ana', TENANT)).principal_id;
  await linkPerson(fixture.store.owner, {
    tenant_id: TENANT,
    name: 'ana',
    issuer: provider.settings.issuer,
    subject: SUBJECT,
  });
});
afterAll(async () => {
  await fixture.close();
  await provider.stop();
});

/** What a browser sends when the provider sent it back. */
interface CallbackRequest {
  path: string;
  cookie: string;
}
interface Page {
  status: number;
  text: string;
  code: string | undefined;
  headers: Headers;
  /** Every cookie set, by name, with its attributes. */
  cookies: Map<string, { value: string; attributes: string }>;
}
async function open(at: RunningApi, path: string, cookie = '', method = 'GET'): Promise<Page> {
  const response = await fetch(`${at.url}${path}`, { method, redirect: 'manual', headers: { cookie } });
  const text = await response.text();
  const isProblem = response.headers.get('content-type') === 'application/problem+json' && text !== '';
  const cookies = response.headers.getSetCookie().map((set) => {
    const [, name = '', value = '', attributes = ''] = /^([^=]+)=([^;]*);?(.*)$/.exec(set) ?? [];
    return [name, { value, attributes }] as const;
  });
  return {
    status: response.status,
    text,
    code: isProblem ? (JSON.parse(text) as { code: string }).code : undefined,
    headers: response.headers,
    cookies: new Map(cookies),
  };
}

/** To the provider, through its login as `person`, and back to the point where the browser would ask for our callback. */
async function toCallback(person: string | null = SUBJECT): Promise<CallbackRequest> {
  provider.person = person;
  const login = await open(api, '/v1/oidc/login');
  expect(login.status).toBe(303);
  const back = await provider.signIn(login.headers.get('location') ?? '');
  expect(back.origin + back.pathname).toBe(CALLBACK);
  return { path: `${back.pathname}${back.search}`, cookie: flowCookieOf(login) };
}
const flowCookieOf = (page: Page) => `__Host-cs_oidc=${page.cookies.get('__Host-cs_oidc')?.value}`;
const sessionCount = async () => (await fixture.store.owner`select from cs.session`).length;
const everything = async () =>
  JSON.stringify([
    await fixture.store.owner`select * from cs.session`,
    await fixture.store.owner`select * from cs.challenge`,
    await fixture.audits(),
  ]);

describe('sign-in through the identity provider', () => {
  test('asks the provider for a fresh login, by a flow that only this browser can end', async () => {
    const before = await everything();
    const login = await open(api, '/v1/oidc/login');
    const asked = new URL(login.headers.get('location') ?? '').searchParams;
    expect(Object.fromEntries(asked)).toMatchObject({
      client_id: provider.settings.client_id,
      redirect_uri: CALLBACK,
      response_type: 'code',
      scope: 'openid',
      code_challenge_method: 'S256',
      prompt: 'login',
      max_age: '600',
    });
    const { value, attributes } = login.cookies.get('__Host-cs_oidc') ?? {};
    expect(attributes).toContain('HttpOnly');
    expect(attributes).toContain('Secure');
    expect(attributes).toContain('SameSite=Lax');
    expect(attributes).toContain('Path=/;');
    expect(attributes).toContain('Max-Age=600');
    for (const secret of [asked.get('state'), asked.get('nonce')]) {
      expect(Buffer.from(value ?? '', 'base64url').toString('latin1')).not.toContain(secret);
    }
    expect(await everything()).toBe(before);
  });

  test('opens the linked person’s session, by a page that goes on without a script', async () => {
    const { path, cookie } = await toCallback();
    const page = await open(api, path, cookie);
    expect(page.status).toBe(200);
    expect(page.text).toContain('http-equiv="refresh" content="0;url=/"');
    expect(page.text).not.toContain('<script');
    expect(page.cookies.get('__Host-cs_oidc')?.attributes).toContain('Max-Age=0');
    const session = page.cookies.get('__Host-cs_session');
    expect(session?.attributes).toContain('SameSite=Strict');
    const view = await open(api, '/v1/session', `__Host-cs_session=${session?.value}`);
    expect(JSON.parse(view.text)).toMatchObject({ principal_id: ana, tenant_id: TENANT, name: 'ana', method: 'oidc' });
    expect((await fixture.audits()).at(-1)).toMatchObject({ what: 'sign_in', code: 'oidc', principal_id: ana });
  });

  test('may end in another process than it began in', async () => {
    const { path, cookie } = await toCallback();
    expect((await open(second, path, cookie)).status).toBe(200);
  });

  test('happens once: the same answer opens nothing again, in either process or in both at once', async () => {
    const first = await toCallback();
    expect((await open(api, first.path, first.cookie)).status).toBe(200);
    const sessions = await sessionCount();
    for (const at of [api, second]) {
      expect(await open(at, first.path, first.cookie)).toMatchObject({ status: 403, code: 'identity_refused' });
    }
    expect(await sessionCount()).toBe(sessions);

    const other = await toCallback();
    const both = await Promise.all([api, second].map((at) => open(at, other.path, other.cookie)));
    expect(both.filter(({ status }) => status === 200).length).toBeLessThanOrEqual(1);
    expect(await sessionCount()).toBeLessThanOrEqual(sessions + 1);
  });

  test('a flow that is used up stays used up, whatever the provider says', async () => {
    const store = createIdentityStore(fixture.store.serviceSql.api);
    const identity = { issuer: provider.settings.issuer, subject: SUBJECT };
    const flow = { digest: hashSecret('the state of one flow'), life_ms: FLOW_LIFE_MS };
    const all = await Promise.all(Array.from({ length: 10 }, () => store.vouchedPerson(identity, flow)));
    expect(all.filter(({ kind }) => kind === 'known')).toEqual([
      { kind: 'known', tenant_id: TENANT, principal_id: ana },
    ]);
    expect(all.filter(({ kind }) => kind === 'flow_used')).toHaveLength(9);
  });
});

describe('refused, with nothing written and the provider not asked', () => {
  const cases: [string, (from: CallbackRequest) => CallbackRequest][] = [
    ['another state', ({ path, cookie }) => ({ path: path.replace(/state=[^&]*/, 'state=another'), cookie })],
    ['no state', ({ path, cookie }) => ({ path: path.replace(/state=[^&]*&?/, ''), cookie })],
    ['no cookie', ({ path }) => ({ path, cookie: '' })],
    ['no query at all', ({ cookie }) => ({ path: '/v1/oidc/callback', cookie })],
    ['a cookie cut short', ({ path, cookie }) => ({ path, cookie: cookie.slice(0, 40) })],
    ['a cookie with one bit changed', ({ path, cookie }) => ({ path, cookie: flipped(cookie) })],
  ];
  test.each(cases)('%s', async (_, change) => {
    const { path, cookie } = change(await toCallback());
    const [before, asked] = [await everything(), provider.tokenRequests()];
    expect(await open(api, path, cookie)).toMatchObject({ status: 403, code: 'identity_refused' });
    expect([await everything(), provider.tokenRequests()]).toEqual([before, asked]);
  });

  test('the flow of another browser', async () => {
    const [mine, theirs] = [await toCallback(), await toCallback()];
    const before = await everything();
    expect(await open(api, mine.path, theirs.cookie)).toMatchObject({ status: 403, code: 'identity_refused' });
    expect(await everything()).toBe(before);
  });

  test('a flow that took too long', async () => {
    const { path, cookie } = await toCallback();
    aheadMs = FLOW_LIFE_MS;
    expect(await open(api, path, cookie)).toMatchObject({ status: 403, code: 'identity_refused' });
    aheadMs = 0;
  });

  test('a look at the callback by HEAD leaves the answer for the person', async () => {
    const { path, cookie } = await toCallback();
    expect((await open(api, path, cookie, 'HEAD')).status).toBe(405);
    expect((await open(api, path, cookie)).status).toBe(200);
  });
});

describe('refused, though the provider answered', () => {
  test('somebody whom nobody linked: they stay unknown, and the try is on record without their subject', async () => {
    const principals = async () => (await fixture.store.owner`select from cs.principal`).length;
    const before = [await principals(), await sessionCount()];
    const { path, cookie } = await toCallback('sub-stranger');
    const page = await open(api, path, cookie);
    expect(page).toMatchObject({ status: 403, code: 'identity_unknown' });
    expect(page.cookies.has('__Host-cs_session')).toBe(false);
    expect([await principals(), await sessionCount()]).toEqual(before);
    expect((await fixture.audits()).at(-1)).toMatchObject({ what: 'sign_in', code: 'identity_unknown' });
    expect(await everything()).not.toContain('sub-stranger');
  });

  test('a person who is disabled, until they are let in again', async () => {
    const who = { tenant_id: TENANT, name: 'ana' };
    await disablePerson(fixture.store.owner, who);
    const shut = await toCallback();
    expect(await open(api, shut.path, shut.cookie)).toMatchObject({ status: 403, code: 'identity_unknown' });
    expect((await fixture.audits()).at(-1)).toMatchObject({ code: 'identity_unknown', principal_id: ana });
    await enablePerson(fixture.store.owner, who);
    const back = await toCallback();
    expect((await open(api, back.path, back.cookie)).status).toBe(200);
  });

  test('a person who gave up at the provider', async () => {
    const { path, cookie } = await toCallback(null);
    expect(path).toContain('error=access_denied');
    expect(await open(api, path, cookie)).toMatchObject({ status: 403, code: 'identity_refused' });
  });

  test('an answer that names another issuer', async () => {
    const { path, cookie } = await toCallback();
    const named = path.replace(/iss=[^&]*/, `iss=${encodeURIComponent('https://evil.example')}`);
    expect(named).not.toBe(path);
    expect(await open(api, named, cookie)).toMatchObject({ status: 403, code: 'identity_refused' });
  });

  test('a code that was not given for this flow', async () => {
    const [mine, theirs] = [await toCallback(), await toCallback()];
    const code = /code=([^&]*)/.exec(theirs.path)?.[1] ?? '';
    const swapped = mine.path.replace(/code=[^&]*/, `code=${code}`);
    expect(await open(api, swapped, mine.cookie)).toMatchObject({ status: 403, code: 'identity_refused' });
  });
});

describe('a provider that cannot be trusted or asked', () => {
  test('a token that its published keys did not sign is refused', async () => {
    const forging = await startIdentityProvider(CALLBACK);
    try {
      const at = await fixture.start({ oidc: createOidc(forging.settings, ORIGIN, () => Date.now()) });
      forging.forgeKeys();
      forging.person = SUBJECT;
      const login = await open(at, '/v1/oidc/login');
      const back = await forging.signIn(login.headers.get('location') ?? '');
      const page = await open(at, `${back.pathname}${back.search}`, flowCookieOf(login));
      expect(page).toMatchObject({ status: 403, code: 'identity_refused' });
    } finally {
      await forging.stop();
    }
  });

  test('one that is away makes login and callback say so, and works again once it is back', async () => {
    const away = await startIdentityProvider(CALLBACK);
    const { path, cookie } = await toCallback();
    const { issuer } = away.settings;
    await away.stop();
    const at = await fixture.start({ oidc: createOidc({ ...provider.settings, issuer }, ORIGIN, () => Date.now()) });
    for (const [to, with_] of [
      ['/v1/oidc/login', ''],
      [path, cookie],
    ] as const) {
      const page = await open(at, to, with_);
      expect(page).toMatchObject({ status: 503, code: 'identity_provider_unavailable' });
      expect(page.headers.get('retry-after')).not.toBeNull();
    }
    // What failed is not kept: the same flow ends in a process whose provider answers.
    expect((await open(api, path, cookie)).status).toBe(200);
  });

  test('an installation without one has nothing at these addresses', async () => {
    const without = await fixture.start();
    for (const path of ['/v1/oidc/login', '/v1/oidc/callback?code=x&state=y']) {
      expect(await open(without, path)).toMatchObject({ status: 404, code: 'route_not_found' });
    }
  });
});

test('no secret of a sign-in reaches the log', async () => {
  const { path, cookie } = await toCallback();
  await open(api, path, cookie);
  await open(api, path, cookie);
  const code = /code=([^&]*)/.exec(path)?.[1] ?? '';
  const written = JSON.stringify([api.logged, second.logged], (_, value: unknown) =>
    value instanceof Error ? `${value.stack}` : value,
  );
  for (const secret of [code, cookie.split('=')[1] ?? '', provider.settings.client_secret]) {
    expect(written).not.toContain(secret);
  }
});

describe('a sealed flow', () => {
  const random = (bytes: number) => new Uint8Array(bytes).fill(7);

  test('opens with the same secret until it is over, and with no other', () => {
    const key = flowKeyOf('the client secret of one installation');
    const flow = newFlow({ random }, 1_000);
    const sealed = sealFlow(key, flow, { random });
    expect(openFlow(flowKeyOf('the client secret of one installation'), sealed, 1_000)).toEqual(flow);
    expect(openFlow(key, sealed, 1_000 + FLOW_LIFE_MS)).toBeUndefined();
    expect(openFlow(flowKeyOf('another client secret'), sealed, 1_000)).toBeUndefined();
    expect(openFlow(key, '', 1_000)).toBeUndefined();
  });
});

/** The cookie with another character in the middle of its value. */
function flipped(cookie: string): string {
  const at = Math.floor(cookie.length / 2);
  return `${cookie.slice(0, at)}${cookie[at] === 'A' ? 'B' : 'A'}${cookie.slice(at + 1)}`;
}
