import { createHash, randomBytes } from 'node:crypto';
import type { Digest } from '@counterstamp/manifest-core';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { type StoreFixture, settableClock, storeFixture, testIds } from '../../../testing/store-fixture.ts';
import { NotPermitted } from './connection.ts';
import { createIdentityStore, type IdentityStore, type NewSession } from './identity-store.ts';
import { hashSecret } from './keys.ts';
import { addPerson, disablePerson, invitePerson } from './people.ts';
import type { PrincipalRef } from './principal.ts';

const MINUTE_MS = 60_000;

describe.each([18, 15] as const)('on PostgreSQL %i', (version) => {
  let db: StoreFixture;
  let identities: IdentityStore;
  let clock: Awaited<ReturnType<typeof settableClock>>;
  beforeAll(async () => {
    db = await storeFixture(version);
    identities = createIdentityStore(db.serviceSql.api);
    clock = await settableClock(db);
  });
  afterAll(() => db.close());

  async function person(name: string, tenant_id = 'shop_north'): Promise<PrincipalRef & { token_hash: Digest }> {
    const added = await addPerson(db.owner, testIds, {
      tenant_id,
      name,
      roles: ['approver'],
      groups: [],
      owner_of: [],
    });
    const invited = await invitePerson(db.owner, testIds, { tenant_id, name, expiresInMs: 60 * MINUTE_MS });
    if (added.kind === 'refused' || invited.kind === 'refused') throw new Error(`${name} was not invited`);
    return { tenant_id, principal_id: added.principal_id, token_hash: hashSecret(invited.token) };
  }

  const text = () => randomBytes(32).toString('base64url');
  const session = (): NewSession => ({
    session_id: testIds.id('session'),
    secret_hash: hashSecret(text()),
    life_ms: 60 * MINUTE_MS,
  });
  const passkey = (credential_id = text()) => ({
    ...{ credential_id, public_key: 'AA', transports: ['internal'], name: 'a key' },
    ...{ backed_up: false, certificate: {} },
  });

  async function challenge(
    who: PrincipalRef | null,
    purpose: 'enrol' | 'sign_in' | 'step_up',
    subject: Record<string, string> = {},
  ): Promise<string> {
    const value = text();
    await identities.beginChallenge(who, { purpose, challenge: value, subject, life_ms: 5 * MINUTE_MS });
    return value;
  }

  /** A person with one passkey and an open session. */
  async function enrolled(name: string) {
    const who = await person(name);
    const invitation = await identities.invitationFor(who.token_hash);
    const made = passkey();
    const opened = session();
    const asked = await challenge(who, 'enrol', { invitation_id: invitation?.invitation_id ?? '' });
    const result = await identities.enrolPasskey(who, { token_hash: who.token_hash, opened }, asked, made);
    if (result !== 'enrolled') throw new Error(`${name} did not enrol: ${result}`);
    return { who, opened, credential_id: made.credential_id };
  }

  test('a challenge is for one purpose, one person and one subject, and for once', async () => {
    const { who, opened, credential_id } = await enrolled('ada');
    const { session_id } = opened;
    const stepUp = (value: string) => identities.stepUp(who, session_id, { credential_id, challenge: value });

    expect(await stepUp(await challenge(null, 'sign_in'))).toBe(false);
    expect(await stepUp(await challenge(who, 'step_up', { session_id: 'ses_other' }))).toBe(false);
    const other = await enrolled('bob');
    expect(await stepUp(await challenge(other.who, 'step_up', { session_id }))).toBe(false);
    expect(await stepUp(text())).toBe(false);

    const value = await challenge(who, 'step_up', { session_id });
    const uses = await Promise.all(Array.from({ length: 10 }, () => stepUp(value)));
    expect(uses.filter(Boolean)).toHaveLength(1);
  });

  test('a challenge that expired is not used, and what is long over is cleared away', async () => {
    const { who, opened, credential_id } = await enrolled('cleo');
    const value = await challenge(who, 'step_up', { session_id: opened.session_id });
    await clock.advanceMs(5 * MINUTE_MS);
    expect(await identities.stepUp(who, opened.session_id, { credential_id, challenge: value })).toBe(false);
    await clock.advanceMs(61 * MINUTE_MS);
    await challenge(null, 'sign_in');
    expect(await db.owner`select challenge from cs.challenge where challenge = ${value}`).toEqual([]);
  });

  test('a challenge over a pre-image is over when the pre-image says so', async () => {
    const { who } = await enrolled('dana');
    const [now] = await db.owner<{ at: string }[]>`select cs.iso(cs.clock()) as at`;
    const expires_at = new Date(Date.parse(now?.at ?? '') + 1_000).toISOString().replace('Z', '000Z');
    const pre_image = JSON.stringify({ expires_at });
    const asked = { purpose: 'decide', challenge: text(), subject: { pre_image }, life_ms: MINUTE_MS } as const;
    expect(await identities.beginChallenge(who, asked)).toBe(expires_at);
  });

  test('an unknown person, one of another tenant and a disabled one are all refused the same', async () => {
    const { who, opened, credential_id } = await enrolled('eli');
    const service = await db.principal('requester');
    await disablePerson(db.owner, { tenant_id: 'shop_north', name: 'eli' });
    for (const stranger of [
      who,
      { tenant_id: 'shop_north', principal_id: 'prn_unknown' },
      { ...(await person('fay', 'shop_south')), tenant_id: 'shop_north' },
      service,
    ]) {
      const attempts = [
        () => challenge(stranger, 'step_up'),
        () => identities.enrolPasskey(stranger, { session_id: opened.session_id }, text(), passkey()),
        () => identities.openSession(stranger, { method: 'oidc' }, session()),
        () => identities.stepUp(stranger, opened.session_id, { credential_id, challenge: text() }),
        () => identities.listPasskeys(stranger),
        () => identities.revokePasskey(stranger, opened.session_id, credential_id),
      ];
      for (const attempt of attempts) await expect(attempt()).rejects.toBeInstanceOf(NotPermitted);
    }
    expect(await identities.sessionOf(opened.secret_hash, 60 * MINUTE_MS)).toBeUndefined();
    expect(await identities.passkeyFor(credential_id)).toBeUndefined();
    expect(await identities.invitationFor(hashSecret('nothing'))).toBeUndefined();
  });

  test("another person's session, invitation and passkey do nothing for one", async () => {
    const [gil, hal] = [await enrolled('gil'), await enrolled('hal')];
    await expect(
      identities.enrolPasskey(gil.who, { session_id: hal.opened.session_id }, text(), passkey()),
    ).rejects.toBeInstanceOf(NotPermitted);
    const ivy = await person('ivy');
    const by = { token_hash: ivy.token_hash, opened: session() };
    expect(await identities.enrolPasskey(gil.who, by, text(), passkey())).toBe('invitation_invalid');
    const signIn = await challenge(null, 'sign_in');
    const stolen = { method: 'passkey', credential_id: hal.credential_id, challenge: signIn } as const;
    expect(await identities.openSession(gil.who, stolen, session())).toBe(false);
    const revoked = await identities.revokePasskey(gil.who, gil.opened.session_id, hal.credential_id);
    expect(revoked).toBe('passkey_not_found');
    await identities.closeSession(gil.who, hal.opened.session_id);
    expect(await identities.sessionOf(hal.opened.secret_hash, MINUTE_MS)).toMatchObject({ name: 'hal' });
  });

  test('a passkey enrols once, whoever brings it again', async () => {
    const { who, opened, credential_id } = await enrolled('jan');
    const asked = await challenge(who, 'enrol', { session_id: opened.session_id });
    const by = { session_id: opened.session_id };
    expect(await identities.enrolPasskey(who, by, asked, passkey(credential_id))).toBe('passkey_known');
  });

  test('of two passkeys revoked at once one stays, and the other sessions end', async () => {
    const { who, opened, credential_id } = await enrolled('kim');
    const spare = passkey();
    const asked = await challenge(who, 'enrol', { session_id: opened.session_id });
    expect(await identities.enrolPasskey(who, { session_id: opened.session_id }, asked, spare)).toBe('enrolled');
    const other = session();
    await identities.openSession(who, { method: 'oidc' }, other);

    const results = await Promise.all(
      [credential_id, spare.credential_id].map((id) => identities.revokePasskey(who, opened.session_id, id)),
    );
    expect(results.sort()).toEqual(['passkey_last', 'revoked']);
    const living = (await identities.listPasskeys(who)).filter((one) => one.revoked_at === null);
    expect(living).toHaveLength(1);
    expect(await identities.sessionOf(opened.secret_hash, MINUTE_MS)).toBeDefined();
    expect(await identities.sessionOf(other.secret_hash, MINUTE_MS)).toBeUndefined();
  });

  test('every step of a person is in the audit, without a secret', async () => {
    const { who, opened } = await enrolled('lou');
    await identities.closeSession(who, opened.session_id);
    const rows = await db.owner<{ what: string; code: string; detail: string }[]>`
      select what, code, detail::text as detail from cs.audit_event where principal_id = ${who.principal_id} order by audit_id`;
    expect(rows.map(({ what, code }) => `${what} ${code}`)).toEqual([
      'enrol_passkey enrolled',
      'sign_in passkey',
      'sign_out closed',
    ]);
    expect(JSON.stringify(rows)).not.toContain(opened.secret_hash);
  });

  test('no other service may ask about people', async () => {
    const hash = createHash('sha256').update('x').digest('hex');
    for (const service of ['preflight', 'executor', 'verifier', 'reconciler'] as const) {
      await expect(
        createIdentityStore(db.serviceSql[service]).sessionOf(`sha256:${hash}` as Digest, MINUTE_MS),
      ).rejects.toMatchObject({ code: '42501' });
    }
  });
});
