import { createClient } from '@counterstamp/api-contract';
import type { SoftwareAuthenticator } from '@counterstamp/signatures/software-authenticator';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { type Browser, createBrowser, invited, ORIGIN, signedIn } from '../../../testing/browser.ts';
import { settableClock } from '../../../testing/store-fixture.ts';
import { type ApiFixture, apiFixture, type RunningApi } from '../testing/api-fixture.ts';
import { STEP_UP_MS } from './sessions.ts';

type RequestJson = Parameters<SoftwareAuthenticator['authenticate']>[0];
type CreationJson = Parameters<SoftwareAuthenticator['register']>[0];

let fixture: ApiFixture;
let api: RunningApi;
beforeAll(async () => {
  fixture = await apiFixture();
  api = await fixture.start();
});
afterAll(() => fixture.close());

async function add(browser: Browser, misbehaviour?: { origin?: string; userVerified?: boolean }) {
  const asked = await browser.send('POST', '/v1/passkeys/options');
  const response = await browser.authenticator.register(asked.body.options, misbehaviour);
  return await browser.send('POST', '/v1/passkeys', { name: 'spare', response });
}

test('a person enrols further passkeys, is not offered those they have, and signs in with each', async () => {
  const browser = await signedIn(fixture.store.owner, api.url, 'nina', []);
  const added = await add(browser);
  expect(added.status).toBe(201);
  const known = added.body.passkeys.map((passkey) => passkey.credential_id);
  expect(known).toHaveLength(2);
  const asked = await browser.send('POST', '/v1/passkeys/options');
  expect(asked.body.options.excludeCredentials?.map(({ id }) => id)).toEqual(known);
  expect(asked.body.options.authenticatorSelection).toMatchObject({
    ...{ residentKey: 'required', userVerification: 'required' },
  });
  expect((await browser.send('GET', '/v1/passkeys')).body).toEqual(added.body);

  for (const id of known) {
    const options = (await browser.send('POST', '/v1/session/options', {})).body.options;
    const response = await browser.authenticator.authenticate({
      ...options,
      allowCredentials: [{ id, type: 'public-key' }],
    });
    expect((await browser.send('POST', '/v1/session', { response })).status).toBe(201);
  }
});

test('a passkey made elsewhere, unverified, or over a challenge used up is refused', async () => {
  const browser = await signedIn(fixture.store.owner, api.url, 'olaf', []);
  expect((await add(browser, { origin: 'https://evil.example.com' })).body.code).toBe('assertion_invalid');
  expect((await add(browser, { userVerified: false })).body.code).toBe('assertion_invalid');
  const asked = await browser.send('POST', '/v1/passkeys/options');
  const first = await browser.authenticator.register(asked.body.options);
  const second = await browser.authenticator.register(asked.body.options);
  expect((await browser.send('POST', '/v1/passkeys', { name: 'a', response: first })).status).toBe(201);
  expect((await browser.send('POST', '/v1/passkeys', { name: 'b', response: second })).body.code).toBe(
    'challenge_invalid',
  );
});

test('revoking one ends the other sessions of the person, and the passkey signs in no more', async () => {
  const browser = await signedIn(fixture.store.owner, api.url, 'pia', []);
  const elsewhere = createBrowser(api.url, browser.authenticator);
  await elsewhere.signIn();
  const { passkeys } = (await add(browser)).body;
  const first = passkeys[0]?.credential_id;
  const revoked = await browser.send('DELETE', `/v1/passkeys/${first}`);
  expect(revoked.body.passkeys.map((passkey) => passkey.revoked_at === null)).toEqual([false, true]);
  expect((await elsewhere.send('GET', '/v1/session')).status).toBe(401);
  expect((await browser.send('GET', '/v1/session')).status).toBe(200);
  // The authenticator answers with its first one.
  expect((await elsewhere.signIn()).body.code).toBe('credential_revoked');
});

test("the last passkey, an unknown one and another person's stay, and the tries are in the audit once each", async () => {
  const browser = await signedIn(fixture.store.owner, api.url, 'quin', []);
  const other = await signedIn(fixture.store.owner, api.url, 'rosa', []);
  const idOf = async (of: Browser) => (await of.send('GET', '/v1/passkeys')).body.passkeys[0]?.credential_id;
  const revoke = async (id: string | undefined) => (await browser.send('DELETE', `/v1/passkeys/${id}`)).body.code;
  expect(await revoke(await idOf(browser))).toBe('passkey_last');
  expect(await revoke(await idOf(other))).toBe('passkey_not_found');
  expect(await revoke('unknown')).toBe('passkey_not_found');
  const tries = (await fixture.audits()).filter(
    (event) => event.what === 'revoke_passkey' && event.principal_id === browser.principal_id,
  );
  expect(tries.map((event) => event.code)).toEqual(['passkey_last', 'passkey_not_found', 'passkey_not_found']);
});

test('the client speaks for a signed-in person as for a key', async () => {
  const browser = await signedIn(fixture.store.owner, api.url, 'tilda', []);
  const { authenticator, session, cookie = '' } = browser;
  const headers = () => ({ cookie, origin: ORIGIN, 'x-csrf-token': session?.csrf_token ?? '' });
  const client = createClient({ baseUrl: api.url, fetch, headers });
  const asked = <O>({ options }: { options: unknown }) => options as O;

  expect(await client.readSession()).toEqual(session);
  const response = await authenticator.authenticate(asked<RequestJson>(await client.stepUpOptions()));
  expect(await client.stepUp({ response })).toMatchObject({ name: 'tilda' });
  const made = await authenticator.register(asked<CreationJson>(await client.passkeyOptions()));
  const { passkeys } = await client.addPasskey({ name: 'spare', response: made });
  expect(passkeys.map((passkey) => passkey.name)).toEqual(['a key', 'spare']);
  expect((await client.revokePasskey(made.id)).passkeys.at(-1)?.revoked_at).not.toBeNull();
  expect(await client.listPasskeys()).toMatchObject({ passkeys: [{ name: 'a key' }, { name: 'spare' }] });

  const again = await authenticator.authenticate(asked<RequestJson>(await client.signInOptions()));
  expect(await client.signIn({ response: again })).toMatchObject({ name: 'tilda' });
  expect(await client.signOut()).toEqual({ ended: true });
  await expect(client.readSession()).rejects.toMatchObject({ code: 'unauthenticated' });

  const { token: invitation } = await invited(fixture.store.owner, 'ulla', []);
  const open = createClient({ baseUrl: api.url, fetch, headers: () => ({ origin: ORIGIN }) });
  const options = await open.enrolmentOptions({ invitation });
  expect(options.name).toBe('ulla');
  const first = await authenticator.register(asked<CreationJson>(options));
  expect(await open.enrol({ invitation, name: 'a key', response: first })).toMatchObject({ name: 'ulla' });
});

test('adding and revoking ask for a fresh proof of who one is', async () => {
  const clock = await settableClock(fixture.store);
  const browser = await signedIn(fixture.store.owner, api.url, 'sven', []);
  const asked = await browser.send('POST', '/v1/passkeys/options');
  const response = await browser.authenticator.register(asked.body.options);
  await clock.advanceMs(STEP_UP_MS);
  for (const [method, path, body] of [
    ['POST', '/v1/passkeys/options', undefined],
    ['POST', '/v1/passkeys', { name: 'late', response }],
    ['DELETE', `/v1/passkeys/${response.id}`, undefined],
  ] as const)
    expect((await browser.send(method, path, body)).body.code).toBe('step_up_required');
  expect((await browser.send('GET', '/v1/passkeys')).status).toBe(200);
});
