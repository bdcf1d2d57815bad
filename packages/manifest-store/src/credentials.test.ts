import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { type StoreFixture, settableClock, storeFixture, testIds } from '../../../testing/store-fixture.ts';
import { issueKey, listKeys, listPasskeysOf, revokeKey, revokePasskeyOf } from './credentials.ts';
import { parseApiKey } from './keys.ts';
import type { OwnerChange } from './owner-change.ts';
import { addPerson, disablePerson, listPeople, setPerson } from './people.ts';

let db: StoreFixture;
beforeAll(async () => {
  db = await storeFixture(18);
});
afterAll(() => db.close());

const TENANT = 'shop_keys';
const named = (name: string) => ({ tenant_id: TENANT, name });

function done<T>(change: OwnerChange<T>): T {
  if (change.kind === 'refused') throw new Error(`${change.code}: ${change.subject}`);
  return change;
}
async function add(name: string): Promise<string> {
  const wanted = { ...named(name), roles: ['approver'] as const, groups: [], owner_of: [] };
  return done(await addPerson(db.owner, testIds, wanted)).principal_id;
}
const issue = (name: string, change: Partial<Parameters<typeof issueKey>[2]> = {}) =>
  issueKey(db.owner, testIds, { ...named(name), role: 'auditor', groups: [], ...change });
const auditCount = async () => (await db.owner`select from cs.audit_event`).length;
async function opens(key: string): Promise<boolean> {
  const parsed = parseApiKey(key);
  if (parsed === undefined) throw new Error('not a key');
  return (await db.api.authenticate(parsed.key_id, parsed.secret_hash)) !== undefined;
}

describe('keys', () => {
  test('a key brings its holder, their groups and their owner, and the audit tells all but the secret', async () => {
    const owner_id = await add('ben');
    const made = done(await issue('agent-a', { role: 'requester', groups: ['support'], owner: 'BEN' }));
    const holder = (await listPeople(db.owner, TENANT)).find((one) => one.name === 'agent-a');
    expect(holder).toMatchObject({ kind: 'service_account', groups: ['support'], owner: 'ben' });
    const [event] = await db.owner<{ detail: unknown }[]>`
      select detail from cs.audit_event where what = 'create_key' and detail ->> 'key_id' = ${made.key_id}`;
    expect(event?.detail).toMatchObject({ principal_id: made.principal_id, role: 'requester', owner_id });
    expect(JSON.stringify(event)).not.toContain(made.key.split('_')[2]);
  });

  test.each([
    ['an owner who is not there', 'agent-b', { owner: 'ghost' }, 'owner_unknown'],
    ['an owner who is a service account', 'agent-b', { owner: 'agent-a' }, 'owner_unknown'],
    [
      'a deciding role for a service account',
      'agent-a',
      { role: 'approver' as const },
      'service_account_never_decides',
    ],
    ['a holder who is disabled', 'dora', {}, 'person_disabled'],
  ])('%s is refused, and nothing is written', async (_, name, change, code) => {
    await add('dora');
    done(await disablePerson(db.owner, named('dora')));
    const before = [await auditCount(), (await listKeys(db.owner, { tenant_id: TENANT })).length];
    expect(await issue(name, change)).toMatchObject({ kind: 'refused', code });
    expect([await auditCount(), (await listKeys(db.owner, { tenant_id: TENANT })).length]).toEqual(before);
    await db.owner`delete from cs.principal where tenant_id = ${TENANT} and name = 'dora'`;
  });

  test('a revoked key opens nothing from then on, and stays revoked', async () => {
    const { key, key_id } = done(await issue('rita'));
    expect(await opens(key)).toBe(true);
    expect(await revokeKey(db.owner, key_id)).toMatchObject({ name: 'rita', changed: true });
    expect(await opens(key)).toBe(false);
    const before = await auditCount();
    expect(await revokeKey(db.owner, key_id)).toMatchObject({ changed: false });
    expect(await auditCount()).toBe(before);
    expect(await revokeKey(db.owner, 'key_0')).toEqual({ kind: 'refused', code: 'key_unknown', subject: 'key_0' });
  });

  test('the list says of each key whether it opens anything, and why not', async () => {
    const clock = await settableClock(db);
    const standing = async () => (await listKeys(db.owner, { ...named('Lotte') })).map((one) => one.standing);
    const { key } = done(await issue('lotte', { expiresInMs: 60_000 }));
    expect(await standing()).toEqual(['open']);
    expect(await opens(key)).toBe(true);
    expect((await listKeys(db.owner, named('lotte')))[0]?.last_used_at).not.toBeNull();
    done(await setPerson(db.owner, { ...named('lotte'), roles: [] }));
    expect(await standing()).toEqual(['role_withdrawn']);
    done(await disablePerson(db.owner, named('lotte')));
    expect(await standing()).toEqual(['holder_disabled']);
    await clock.advanceMs(60_000);
    expect(await standing()).toEqual(['expired']);
  });
});

describe('passkeys', () => {
  let made = 0;
  /** As an enrolment leaves it behind. */
  async function passkey(principal_id: string): Promise<string> {
    const credential_id = `-credential_${++made}`;
    await db.owner`
      insert into cs.passkey (credential_id, tenant_id, principal_id, public_key, transports, name, backed_up, certificate, created_at)
      values (${credential_id}, ${TENANT}, ${principal_id}, 'cose', array['usb'], 'a key', false, '{}', cs.clock())`;
    return credential_id;
  }
  const revoke = (credential_id: string, last = false) => revokePasskeyOf(db.owner, credential_id, { last });

  test('one of two is revoked at once, the last one only when that is said', async () => {
    const principal_id = await add('pia');
    const [first, second] = [await passkey(principal_id), await passkey(principal_id)];
    expect(await revoke(first)).toMatchObject({ name: 'pia', changed: true, passkeys_left: 1 });
    expect(await revoke(first)).toMatchObject({ changed: false, passkeys_left: 1 });
    expect(await revoke(second)).toEqual({ kind: 'refused', code: 'passkey_last', subject: 'pia' });
    expect(await revoke(second, true)).toMatchObject({ changed: true, passkeys_left: 0 });
    const listed = await listPasskeysOf(db.owner, named('PIA'));
    expect(listed.map((one) => one.credential_id).sort()).toEqual([first, second]);
    expect(listed.every((one) => one.revoked_at !== null)).toBe(true);
    expect(await revoke('nothing')).toMatchObject({ code: 'passkey_not_found' });
  });

  test('of two who revoke the last two passkeys at once, one is refused', async () => {
    const principal_id = await add('paul');
    const both = [await passkey(principal_id), await passkey(principal_id)];
    const outcomes = await Promise.all(both.map((one) => revoke(one)));
    expect(outcomes.map((one) => one.kind).sort()).toEqual(['done', 'refused']);
  });

  test('the sessions of its person end with it, and the audit tells it', async () => {
    const principal_id = await add('petra');
    const credential_id = await passkey(principal_id);
    await db.owner`
      insert into cs.session (session_id, secret_hash, tenant_id, principal_id, method, created_at, authenticated_at, last_seen_at, expires_at)
      values ('ses_petra', 'hash', ${TENANT}, ${principal_id}, 'passkey', cs.clock(), cs.clock(), cs.clock(), cs.clock() + interval '1 hour')`;
    done(await revoke(credential_id, true));
    expect(await db.owner`select from cs.session where session_id = 'ses_petra' and revoked_at is null`).toHaveLength(
      0,
    );
    const [event] = await db.owner<{ code: string; detail: unknown }[]>`
      select code, detail from cs.audit_event where what = 'revoke_passkey' and detail ->> 'credential_id' = ${credential_id}`;
    expect(event).toMatchObject({ code: 'revoked', detail: { principal_id, sessions_ended: 1 } });
  });
});
