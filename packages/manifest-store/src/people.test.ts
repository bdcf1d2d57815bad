import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { type StoreFixture, settableClock, storeFixture, testIds } from '../../../testing/store-fixture.ts';
import { hashSecret, parseApiKey } from './keys.ts';
import type { OwnerChange } from './owner-change.ts';
import {
  addPerson,
  disablePerson,
  enablePerson,
  INVITATION_LIFE_MAX_MS,
  invitePerson,
  linkPerson,
  listPeople,
  setPerson,
} from './people.ts';

let db: StoreFixture;
beforeAll(async () => {
  db = await storeFixture(18);
});
afterAll(() => db.close());

const TENANT = 'shop_people';
const ISSUER = 'https://login.example.com';
const named = (name: string, tenant_id = TENANT) => ({ tenant_id, name });

function done<T>(change: OwnerChange<T>): T {
  if (change.kind === 'refused') throw new Error(`${change.code}: ${change.subject}`);
  return change;
}
async function add(name: string, change: Partial<Parameters<typeof addPerson>[2]> = {}): Promise<string> {
  const wanted = { ...named(name), roles: ['approver'] as const, groups: [], owner_of: [], ...change };
  return done(await addPerson(db.owner, testIds, wanted)).principal_id;
}
const only = async (name: string) => (await listPeople(db.owner, TENANT)).find((one) => one.name === name);
const audits = async (principal_id: string) =>
  await db.owner<{ what: string; code: string; detail: Record<string, unknown> }[]>`
    select what, code, detail from cs.audit_event
     where tenant_id = ${TENANT} and detail ->> 'principal_id' = ${principal_id} order by audit_id`;
async function opensWith(key: string): Promise<boolean> {
  const parsed = parseApiKey(key);
  if (parsed === undefined) throw new Error('not a key');
  return (await db.api.authenticate(parsed.key_id, parsed.secret_hash)) !== undefined;
}
const auditCount = async () => (await db.owner`select from cs.audit_event`).length;
async function openSession(principal_id: string): Promise<string> {
  const session_id = `ses_${testIds.uuid()}`;
  await db.owner`
    insert into cs.session (session_id, secret_hash, tenant_id, principal_id, method, created_at, authenticated_at, last_seen_at, expires_at)
    values (${session_id}, ${session_id}, ${TENANT}, ${principal_id}, 'passkey', cs.clock(), cs.clock(), cs.clock(), cs.clock() + interval '1 hour')`;
  return session_id;
}
const openSessions = async (principal_id: string) =>
  (await db.owner`select from cs.session where principal_id = ${principal_id} and revoked_at is null`).length;
const tokenOpen = async (token: string) =>
  (
    await db.owner`select from cs.invitation where token_hash = ${hashSecret(token)} and consumed_at is null and expires_at > cs.clock()`
  ).length === 1;

describe('people', () => {
  test('a person is added with roles, groups and the accounts they answer for, and the audit tells it', async () => {
    const { principal_id: agent } = await db.principal('requester', 'agent-a', TENANT);
    const principal_id = await add('ana@example.com', {
      roles: ['approver', 'auditor'],
      groups: ['finance'],
      owner_of: ['Agent-A'],
    });
    expect(await only('ana@example.com')).toMatchObject({
      principal_id,
      kind: 'person',
      roles: ['approver', 'auditor'],
      groups: ['finance'],
      disabled_at: null,
      passkeys: 0,
      identities: [],
      invited_until: null,
    });
    expect((await only('agent-a'))?.owner).toBe('ana@example.com');
    expect(await audits(principal_id)).toMatchObject([
      {
        what: 'add_person',
        code: 'added',
        detail: { roles: ['approver', 'auditor'], groups: ['finance'], owner_of: [{ principal_id: agent }] },
      },
    ]);
  });

  test('two spellings of one name are one person', async () => {
    await add('Una@Example.COM');
    const again = { ...named('una@example.com'), roles: ['auditor'] as const, groups: [], owner_of: [] };
    expect(await addPerson(db.owner, testIds, again)).toEqual({
      kind: 'refused',
      code: 'name_taken',
      subject: 'Una@Example.COM',
    });
    const set = done(await setPerson(db.owner, { ...named('UNA@example.com'), roles: ['auditor'] }));
    expect(set.roles).toEqual(['auditor']);
  });

  test('of twenty who add the same name at once, one does', async () => {
    const wanted = { ...named('race'), roles: ['approver'] as const, groups: [], owner_of: [] };
    const all = await Promise.all(Array.from({ length: 20 }, () => addPerson(db.owner, testIds, wanted)));
    expect(all.filter(({ kind }) => kind === 'done')).toHaveLength(1);
    expect(all.filter((one) => one.kind === 'refused' && one.code === 'name_taken')).toHaveLength(19);
  });

  test('an account that is not there leaves no trace of the person who should own it', async () => {
    const before = await auditCount();
    const wanted = { ...named('nobody-yet'), roles: [], groups: [], owner_of: ['no-such-agent'] };
    expect(await addPerson(db.owner, testIds, wanted)).toMatchObject({
      code: 'service_account_unknown',
      subject: 'no-such-agent',
    });
    expect(await only('nobody-yet')).toBeUndefined();
    expect(await auditCount()).toBe(before);
  });

  test('a role that is gone closes the keys that carry it, and opens them again when it is back', async () => {
    const { key, principal_id } = await db.principal('auditor', 'rolf', TENANT);
    const opens = () => opensWith(key);
    expect(await opens()).toBe(true);
    done(await setPerson(db.owner, { ...named('rolf'), roles: ['operator'], groups: ['x'] }));
    expect(await opens()).toBe(false);
    done(await setPerson(db.owner, { ...named('rolf'), roles: ['auditor'] }));
    expect(await opens()).toBe(true);
    expect(await only('rolf')).toMatchObject({ roles: ['auditor'], groups: ['x'] });
    expect((await audits(principal_id))[0]).toMatchObject({
      what: 'set_person',
      detail: { before: { roles: ['auditor'], groups: [] }, after: { roles: ['operator'], groups: ['x'] } },
    });
  });

  test.each(['approver', 'operator', 'break_glass'] as const)('a service account never becomes %s', async (role) => {
    await db.principal('requester', 'agent-b', TENANT);
    expect(await setPerson(db.owner, { ...named('agent-b'), roles: [role] })).toMatchObject({
      code: 'service_account_never_decides',
    });
    expect((await only('agent-b'))?.roles).toEqual(['requester']);
  });

  test('an approval of who lost the role or was disabled is no longer counted', async () => {
    const { principal_id } = await db.principal('approver', 'leaver');
    const row = await db.toAwaitingApproval();
    await db.approve(row, await db.principal('approver', 'leaver'));
    const obstacle = async () => {
      const loaded = await db.stores.executor.load(row.run_id);
      return loaded?.manifest.approval?.decisions.find((one) => one.principal_id === principal_id)?.obstacle;
    };
    expect(await obstacle()).toBeNull();
    done(await setPerson(db.owner, { ...named('leaver', 'shop_north'), roles: ['auditor'] }));
    expect(await obstacle()).toBe('not_an_approver');
    done(await disablePerson(db.owner, named('leaver', 'shop_north')));
    expect(await obstacle()).toBe('disabled');
  });

  test.each([
    ['set', () => setPerson(db.owner, { ...named('ghost'), groups: [] })],
    ['invite', () => invitePerson(db.owner, testIds, { ...named('ghost'), expiresInMs: 1_000 })],
    ['disable', () => disablePerson(db.owner, named('ghost'))],
    ['enable', () => enablePerson(db.owner, named('ghost'))],
    ['link', () => linkPerson(db.owner, { ...named('ghost'), issuer: ISSUER, subject: 's' })],
  ])('%s of somebody unknown is refused and writes nothing', async (_, change) => {
    const before = await auditCount();
    expect(await change()).toEqual({ kind: 'refused', code: 'person_unknown', subject: 'ghost' });
    expect(await auditCount()).toBe(before);
  });

  test('a person of one tenant is unknown in another', async () => {
    await add('here');
    expect(await disablePerson(db.owner, named('here', 'shop_elsewhere'))).toMatchObject({ code: 'person_unknown' });
    expect(await listPeople(db.owner, 'shop_elsewhere')).toEqual([]);
  });
});

describe('invitations', () => {
  test('only the hash is stored, the newest link alone is open, and none outlives its time', async () => {
    const clock = await settableClock(db);
    const principal_id = await add('ines');
    const first = done(await invitePerson(db.owner, testIds, { ...named('ines'), expiresInMs: 60_000 }));
    expect(await tokenOpen(first.token)).toBe(true);
    const second = done(await invitePerson(db.owner, testIds, { ...named('INES'), expiresInMs: 60_000 }));
    expect([await tokenOpen(first.token), await tokenOpen(second.token)]).toEqual([false, true]);
    expect((await only('ines'))?.invited_until).toBe(second.expires_at);
    await clock.advanceMs(60_000);
    expect(await tokenOpen(second.token)).toBe(false);

    const written = JSON.stringify([await db.owner`select * from cs.invitation`, await audits(principal_id)]);
    expect(written).toContain(second.invitation_id);
    expect(written).not.toContain(second.token);
  });

  test('a life above 24 hours is a mistake of the caller', async () => {
    await add('lena');
    const invite = (expiresInMs: number) => invitePerson(db.owner, testIds, { ...named('lena'), expiresInMs });
    for (const ms of [INVITATION_LIFE_MAX_MS + 1, 0, Number.NaN]) await expect(invite(ms)).rejects.toThrow(RangeError);
    expect(await invite(INVITATION_LIFE_MAX_MS)).toMatchObject({ kind: 'done' });
  });

  test('service accounts and disabled people get none', async () => {
    await db.principal('requester', 'agent-c', TENANT);
    await add('dora');
    done(await disablePerson(db.owner, named('dora')));
    const invite = (name: string) => invitePerson(db.owner, testIds, { ...named(name), expiresInMs: 1_000 });
    expect(await invite('agent-c')).toMatchObject({ code: 'not_a_person' });
    expect(await invite('dora')).toMatchObject({ code: 'person_disabled' });
  });
});

describe('shutting out', () => {
  test('ends sessions, voids invitations and closes keys; letting in again revives the keys alone', async () => {
    const { principal_id, key } = await db.principal('auditor', 'otto', TENANT);
    const opens = () => opensWith(key);
    await openSession(principal_id);
    await openSession(principal_id);
    const { token } = done(await invitePerson(db.owner, testIds, { ...named('otto'), expiresInMs: 60_000 }));

    expect(await disablePerson(db.owner, named('Otto'))).toMatchObject({ changed: true, sessions_ended: 2 });
    expect([await opens(), await openSessions(principal_id), await tokenOpen(token)]).toEqual([false, 0, false]);
    expect((await only('otto'))?.disabled_at).not.toBeNull();
    expect(await disablePerson(db.owner, named('otto'))).toMatchObject({ changed: false });

    expect(await enablePerson(db.owner, named('otto'))).toMatchObject({ changed: true });
    expect([await opens(), await openSessions(principal_id), await tokenOpen(token)]).toEqual([true, 0, false]);
    expect(await enablePerson(db.owner, named('otto'))).toMatchObject({ changed: false });
    expect((await audits(principal_id)).map(({ code }) => code)).toEqual(['invited', 'disabled', 'enabled']);
  });
});

describe('identities', () => {
  test('one identity opens one door, whosever tenant it is in', async () => {
    const principal_id = await add('ida');
    await add('iva');
    done(await addPerson(db.owner, testIds, { ...named('ilse', 'shop_south'), roles: [], groups: [], owner_of: [] }));
    const link = (name: string, tenant?: string) =>
      linkPerson(db.owner, { ...named(name, tenant), issuer: ISSUER, subject: 'sub-ida' });
    expect(await link('ida')).toMatchObject({ changed: true });
    expect(await link('IDA')).toMatchObject({ changed: false });
    expect(await link('iva')).toEqual({ kind: 'refused', code: 'identity_taken', subject: 'ida' });
    expect(await link('ilse', 'shop_south')).toMatchObject({ code: 'identity_taken' });
    expect((await only('ida'))?.identities).toEqual([{ issuer: ISSUER, subject: 'sub-ida' }]);
    expect(JSON.stringify(await audits(principal_id))).not.toContain('sub-ida');
  });

  test('a service account has none', async () => {
    await db.principal('requester', 'agent-d', TENANT);
    const link = { ...named('agent-d'), issuer: ISSUER, subject: 'sub-agent' };
    expect(await linkPerson(db.owner, link)).toMatchObject({ code: 'not_a_person' });
  });
});
