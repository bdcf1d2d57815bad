import { disablePerson, invitePerson } from '@counterstamp/manifest-store';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { type Browser, createBrowser, invited, signedIn } from '../../../testing/browser.ts';
import { settableClock, testIds } from '../../../testing/store-fixture.ts';
import { type ApiFixture, apiFixture, type RunningApi } from '../testing/api-fixture.ts';
import { SESSION_IDLE_MS, SESSION_LIFE_MS, STEP_UP_MS } from './sessions.ts';

let fixture: ApiFixture;
let api: RunningApi;
let clock: Awaited<ReturnType<typeof settableClock>>;
beforeAll(async () => {
  fixture = await apiFixture();
  api = await fixture.start();
  clock = await settableClock(fixture.store);
});
afterAll(() => fixture.close());

/** A different browser of the same person, with the same passkey. */
async function another(browser: Browser): Promise<Browser> {
  const other = createBrowser(api.url, browser.authenticator);
  await other.signIn();
  return other;
}

describe('enrolment', () => {
  test('an invitation makes a passkey and signs its person in', async () => {
    const { principal_id, token } = await invited(fixture.store.owner, 'eva', ['approver'], { groups: ['finance'] });
    const eva = createBrowser(api.url);
    const reply = await eva.enrol(token);
    expect(reply.status).toBe(201);
    expect(reply.body).toMatchObject({
      ...{ principal_id, tenant_id: 'shop_north', name: 'eva', roles: ['approver'], groups: ['finance'] },
      method: 'passkey',
    });
    expect(reply.headers.get('set-cookie')).toMatch(
      /^__Host-cs_session=[A-Za-z0-9_-]{43}; Max-Age=43200; Path=\/; HttpOnly; Secure; SameSite=Strict$/,
    );
    expect((await eva.send('GET', '/v1/session')).body).toEqual(reply.body);
    expect((await eva.signIn()).status).toBe(201);
  });

  test('looking at an invitation leaves it usable, and using it twice is refused', async () => {
    const { token } = await invited(fixture.store.owner, 'twice', []);
    const browser = createBrowser(api.url);
    for (let look = 0; look < 3; look++) {
      const asked = await browser.send('POST', '/v1/enrolment/options', { invitation: token });
      expect(asked.body).toMatchObject({ name: 'twice', options: { attestation: 'none' } });
    }
    expect((await browser.enrol(token)).status).toBe(201);
    expect((await createBrowser(api.url).enrol(token)).body.code).toBe('invitation_invalid');
  });

  test('of many uses of one invitation at once, one makes a passkey', async () => {
    const { principal_id, token } = await invited(fixture.store.owner, 'crowd', []);
    const replies = await Promise.all(Array.from({ length: 8 }, () => createBrowser(api.url).enrol(token)));
    expect(replies.filter((reply) => reply.status === 201)).toHaveLength(1);
    expect(replies.filter((reply) => reply.body.code === 'invitation_invalid')).toHaveLength(7);
    const rows = await fixture.store.owner`select from cs.passkey where principal_id = ${principal_id}`;
    expect(rows).toHaveLength(1);
  });

  test('an invitation that expired, was never made, or was replaced is refused', async () => {
    const { token } = await invited(fixture.store.owner, 'late', []);
    const again = await invitePerson(fixture.store.owner, testIds, {
      ...{ tenant_id: 'shop_north', name: 'late', expiresInMs: 3_600_000 },
    });
    if (again.kind === 'refused') throw new Error(again.code);
    const browser = createBrowser(api.url);
    expect((await browser.enrol(token)).body).toMatchObject({ code: 'invitation_invalid', path: '/invitation' });
    expect((await browser.enrol('x'.repeat(43))).body.code).toBe('invitation_invalid');
    await clock.advanceMs(3_600_000);
    expect((await browser.enrol(again.token)).body.code).toBe('invitation_invalid');
  });

  test("one invitation's challenge enrols nobody by another's", async () => {
    const mine = await invited(fixture.store.owner, 'mine', []);
    const other = await invited(fixture.store.owner, 'other', []);
    const browser = createBrowser(api.url);
    const asked = await browser.send('POST', '/v1/enrolment/options', { invitation: mine.token });
    const response = await browser.authenticator.register(asked.body.options);
    const body = { invitation: other.token, name: 'a key', response };
    expect((await browser.send('POST', '/v1/enrolment', body)).body.code).toBe('challenge_invalid');
    expect((await browser.send('POST', '/v1/enrolment', { ...body, invitation: mine.token })).status).toBe(201);
  });

  test.each([
    ['another origin', { origin: 'https://approve.example.org' }],
    ['no user verification', { userVerified: false }],
  ])('a passkey made with %s is refused, and the invitation stays', async (name, misbehaviour) => {
    const { token } = await invited(fixture.store.owner, `wrong ${name}`.replaceAll(' ', '_'), []);
    const browser = createBrowser(api.url);
    expect((await browser.enrol(token, misbehaviour)).body.code).toBe('assertion_invalid');
    expect((await browser.enrol(token)).status).toBe(201);
  });
});

describe('signing in', () => {
  test('a challenge signs in once', async () => {
    const once = await signedIn(fixture.store.owner, api.url, 'once', []);
    const asked = await once.send('POST', '/v1/session/options', {}, { cookie: '' });
    const response = await once.authenticator.authenticate(asked.body.options);
    const sent = () => once.send('POST', '/v1/session', { response }, { cookie: '' });
    expect((await sent()).status).toBe(201);
    expect((await sent()).body.code).toBe('challenge_invalid');
  });

  test('an expired challenge, another origin, and a person not verified sign nobody in', async () => {
    const browser = await signedIn(fixture.store.owner, api.url, 'strict', []);
    expect((await browser.signIn({ origin: 'https://evil.example.com' })).body.code).toBe('assertion_invalid');
    expect((await browser.signIn({ userVerified: false })).body.code).toBe('assertion_invalid');
    const asked = await browser.send('POST', '/v1/session/options', {});
    const response = await browser.authenticator.authenticate(asked.body.options);
    await clock.advanceMs(5 * 60_000);
    expect((await browser.send('POST', '/v1/session', { response })).body.code).toBe('challenge_invalid');
  });

  test('a passkey that only the database vouches for signs nobody in', async () => {
    const browser = await signedIn(fixture.store.owner, api.url, 'forged', []);
    await fixture.store.owner`
      update cs.passkey set certificate = jsonb_set(certificate, '{signatures,0,sig}', to_jsonb(encode(sha256('x') || sha256('y'), 'base64')))
       where principal_id = ${browser.principal_id}`;
    const reply = await browser.signIn();
    expect(reply.body).toMatchObject({ code: 'assertion_invalid' });
    expect(reply.body.detail).toContain('certificate');
  });

  test("a forged row with another person's id does not let one in as them", async () => {
    const [victim, thief] = [
      await signedIn(fixture.store.owner, api.url, 'victim', ['approver']),
      await signedIn(fixture.store.owner, api.url, 'thief', []),
    ];
    await fixture.store
      .owner`update cs.passkey set principal_id = ${victim.principal_id} where principal_id = ${thief.principal_id}`;
    expect((await thief.signIn()).body.code).toBe('assertion_invalid');
  });
});

describe('a session', () => {
  test('ends by signing out, and the cookie opens nothing any more', async () => {
    const browser = await signedIn(fixture.store.owner, api.url, 'leaver', ['auditor']);
    const other = await another(browser);
    const out = await browser.send('DELETE', '/v1/session');
    expect(out.headers.get('set-cookie')).toContain('Max-Age=0');
    expect((await browser.send('GET', '/v1/session')).status).toBe(401);
    expect((await other.send('GET', '/v1/session')).status).toBe(200);
  });

  test('ends after an hour unused, and a working day after sign-in however much it is used', async () => {
    const browser = await signedIn(fixture.store.owner, api.url, 'idler', ['auditor']);
    await clock.advanceMs(SESSION_IDLE_MS - 1);
    expect((await browser.send('GET', '/v1/runs')).status).toBe(200);
    await clock.advanceMs(SESSION_IDLE_MS);
    expect((await browser.send('GET', '/v1/runs')).status).toBe(401);

    await browser.signIn();
    for (let spent = 0; spent + SESSION_IDLE_MS / 2 < SESSION_LIFE_MS; spent += SESSION_IDLE_MS / 2) {
      expect((await browser.send('GET', '/v1/runs')).status).toBe(200);
      await clock.advanceMs(SESSION_IDLE_MS / 2);
    }
    expect((await browser.send('GET', '/v1/runs')).status).toBe(200);
    await clock.advanceMs(SESSION_IDLE_MS / 2);
    expect((await browser.send('GET', '/v1/runs')).status).toBe(401);
  });

  test("of a disabled person opens nothing, and the person's passkey neither", async () => {
    const browser = await signedIn(fixture.store.owner, api.url, 'gone', ['auditor']);
    await disablePerson(fixture.store.owner, { tenant_id: 'shop_north', name: 'gone' });
    expect((await browser.send('GET', '/v1/runs')).status).toBe(401);
    expect((await createBrowser(api.url, browser.authenticator).signIn()).body.code).toBe('credential_revoked');
  });

  test('has the roles that the person has now', async () => {
    const browser = await signedIn(fixture.store.owner, api.url, 'changing', ['auditor']);
    expect((await browser.send('GET', '/v1/holds')).status).toBe(200);
    await fixture.store
      .owner`update cs.principal set roles = '{requester}' where principal_id = ${browser.principal_id}`;
    expect((await browser.send('GET', '/v1/holds')).body.code).toBe('role_missing');
  });

  test('becomes fresh again by the passkey of its person, by nobody else and by no other challenge', async () => {
    const browser = await signedIn(fixture.store.owner, api.url, 'stepper', []);
    const stranger = await signedIn(fixture.store.owner, api.url, 'stranger', []);
    await clock.advanceMs(STEP_UP_MS);
    expect((await browser.send('POST', '/v1/passkeys/options')).body.code).toBe('step_up_required');

    const asked = await browser.send('POST', '/v1/session/step-up/options');
    const foreign = await stranger.authenticator.authenticate(asked.body.options);
    expect((await browser.send('POST', '/v1/session/step-up', { response: foreign })).body.code).toBe(
      'credential_revoked',
    );
    const signIn = await browser.send('POST', '/v1/session/options', {});
    const ofSignIn = await browser.authenticator.authenticate(signIn.body.options);
    expect((await browser.send('POST', '/v1/session/step-up', { response: ofSignIn })).body.code).toBe(
      'challenge_invalid',
    );
    const second = await another(browser);
    const ofOther = await second.send('POST', '/v1/session/step-up/options');
    const elsewhere = await browser.authenticator.authenticate(ofOther.body.options);
    expect((await browser.send('POST', '/v1/session/step-up', { response: elsewhere })).body.code).toBe(
      'challenge_invalid',
    );
    expect((await browser.send('POST', '/v1/passkeys/options')).body.code).toBe('step_up_required');

    const stepped = await browser.stepUp();
    expect(stepped.status).toBe(200);
    expect((await browser.send('GET', '/v1/session')).body.authenticated_at).toBe(stepped.body.authenticated_at);
    expect((await browser.send('POST', '/v1/passkeys/options')).status).toBe(200);
  });
});

describe('a change with a session cookie', () => {
  test.each([
    ['no token', { 'x-csrf-token': '' }],
    ['a wrong token', { 'x-csrf-token': 'x'.repeat(43) }],
    ['no origin', { origin: '' }],
    ['a foreign origin', { origin: 'https://evil.example.com' }],
    ['the origin of a neighbour on the same site', { origin: 'https://other.example.com' }],
    ['no origin and a fetch from the same site only', { origin: '', 'sec-fetch-site': 'same-site' }],
    ['an opaque origin', { origin: 'null', 'sec-fetch-site': 'same-origin' }],
  ])('is refused with %s', async (name, headers) => {
    const browser = await signedIn(fixture.store.owner, api.url, `csrf_${name.replaceAll(/[^a-z]/g, '_')}`, [
      'operator',
    ]);
    const reply = await browser.send('PUT', '/v1/holds/all', { reason: 'maintenance' }, headers);
    expect(reply).toMatchObject({ status: 403, body: { code: 'csrf_refused' } });
    expect((await browser.send('GET', '/v1/holds')).body).toEqual({ holds: [] });
    expect((await browser.send('DELETE', '/v1/session', undefined, headers)).body.code).toBe('csrf_refused');
  });

  test("is refused with another session's token, be it the same person's", async () => {
    const browser = await signedIn(fixture.store.owner, api.url, 'tokens', ['operator']);
    const other = await another(browser);
    const headers = { 'x-csrf-token': other.session?.csrf_token ?? '' };
    expect((await browser.send('PUT', '/v1/holds/all', { reason: 'x' }, headers)).body.code).toBe('csrf_refused');
  });

  test('is taken when the browser names no origin but says that the page is ours', async () => {
    const browser = await signedIn(fixture.store.owner, api.url, 'fetch_site', ['operator']);
    const headers = { origin: '', 'sec-fetch-site': 'same-origin' };
    expect((await browser.send('DELETE', '/v1/session', undefined, headers)).status).toBe(200);
  });

  test('is refused when its body is no JSON by its type', async () => {
    const browser = await signedIn(fixture.store.owner, api.url, 'forms', ['operator']);
    const reply = await browser.send('PUT', '/v1/holds/all', { reason: 'x' }, { 'content-type': 'text/plain' });
    expect(reply).toMatchObject({ status: 415, body: { code: 'content_type_unsupported' } });
  });
});

test.each(['/v1/enrolment/options', '/v1/enrolment', '/v1/session/options', '/v1/session'])(
  'POST %s takes nothing from a page of another origin, and no form',
  async (path) => {
    const browser = createBrowser(api.url);
    expect((await browser.send('POST', path, {}, { origin: 'https://evil.example.com' })).body.code).toBe(
      'csrf_refused',
    );
    expect((await browser.send('POST', path, {}, { origin: '' })).body.code).toBe('csrf_refused');
    expect((await browser.send('POST', path, {}, { 'content-type': 'text/plain' })).status).toBe(415);
    expect((await browser.send('POST', path)).body.code).toBe('body_missing');
  },
);

test('a request with a key and a cookie is refused', async () => {
  const browser = await signedIn(fixture.store.owner, api.url, 'both', ['auditor']);
  const { key } = await fixture.store.principal('auditor');
  const reply = await browser.send('GET', '/v1/runs', undefined, { authorization: `Bearer ${key}` });
  expect(reply).toMatchObject({ status: 400, body: { code: 'credentials_ambiguous' } });
});

test('what only a signed-in person may do is refused to a key', async () => {
  const { key } = await fixture.store.principal('approver');
  expect((await api.get('/v1/passkeys', key)).body.code).toBe('session_required');
  expect((await api.get('/v1/session', key)).body.code).toBe('session_required');
  expect((await api.get('/v1/session')).body.code).toBe('unauthenticated');
});

test('a cookie that cannot be one of ours is refused without a word to the database', async () => {
  const browser = createBrowser(api.url);
  for (const cookie of ['__Host-cs_session=', '__Host-cs_session=short', '__Host-cs_session=%00'])
    expect((await browser.send('GET', '/v1/runs', undefined, { cookie })).status).toBe(401);
});

test('without sign-in set up, cookies mean nothing and its routes say so', async () => {
  const bare = await fixture.start({ signIn: undefined });
  const browser = createBrowser(bare.url);
  expect((await browser.send('POST', '/v1/session/options', {})).body.code).toBe('sign_in_unavailable');
});

test('every answer forbids framing, sniffing, storing and referring', async () => {
  for (const path of ['/v1/runs', '/healthz', '/nowhere', '/openapi.json']) {
    const { headers } = await api.get(path);
    expect(Object.fromEntries(headers)).toMatchObject({
      'cache-control': 'no-store',
      'content-security-policy': "default-src 'none'; base-uri 'none'; frame-ancestors 'none'; form-action 'none'",
      'cross-origin-resource-policy': 'same-origin',
      'referrer-policy': 'no-referrer',
      'strict-transport-security': 'max-age=63072000; includeSubDomains',
      'x-content-type-options': 'nosniff',
      'x-frame-options': 'DENY',
    });
  }
});

test('neither log nor database holds a secret of an invitation, a session or a token', async () => {
  const { token } = await invited(fixture.store.owner, 'secretive', []);
  const browser = createBrowser(api.url);
  await browser.enrol(token);
  await browser.enrol(token);
  const secret = browser.cookie?.split('=')[1] ?? 'none';
  const rows = await fixture.store.owner<{ text: string }[]>`
    select (select json_agg(s) from cs.session s)::text || (select json_agg(i) from cs.invitation i)::text
      || (select json_agg(a) from cs.audit_event a)::text || (select json_agg(c) from cs.challenge c)::text as text`;
  const everything = JSON.stringify(api.logged) + rows[0]?.text;
  for (const secretText of [token, secret, browser.session?.csrf_token ?? 'none'])
    expect(everything).not.toContain(secretText);
  expect(browser.session?.csrf_token).not.toBe(secret);
});
