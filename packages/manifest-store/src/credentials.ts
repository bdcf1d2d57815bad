import type { Ids } from '@counterstamp/manifest-core';
import { answered, type Sql } from './connection.ts';
import { createApiKey } from './keys.ts';
import { auditOwner, endSessions, type OwnerChange, ownerChange, principalNamed, refuse } from './owner-change.ts';
import { decides, type PrincipalName } from './people.ts';
import type { Role } from './principal.ts';

/** A key as the database's owner sees it. Times are UTC, RFC 3339 with microseconds. */
export interface ApiKeyRow {
  key_id: string;
  tenant_id: string;
  /** Who holds it. */
  name: string;
  role: Role;
  created_at: string;
  expires_at: string | null;
  /** To the minute. */
  last_used_at: string | null;
  revoked_at: string | null;
  /** Whether it opens anything now, and if not, why. */
  standing: 'open' | 'revoked' | 'expired' | 'holder_disabled' | 'role_withdrawn';
}

/** Keys, by holder and then newest first. @param name whose; absent: of every principal of the tenant. */
export async function listKeys(sql: Sql, filter: { tenant_id: string; name?: string }): Promise<ApiKeyRow[]> {
  return await answered(sql<ApiKeyRow[]>`
    select k.key_id, k.tenant_id, p.name, k.role, cs.iso(k.created_at) as created_at, cs.iso(k.expires_at) as expires_at,
      cs.iso(k.last_used_at) as last_used_at, cs.iso(k.revoked_at) as revoked_at,
      case when k.revoked_at is not null then 'revoked' when k.expires_at <= cs.clock() then 'expired'
        when p.disabled_at is not null then 'holder_disabled' when not k.role = any (p.roles) then 'role_withdrawn' else 'open' end as standing
    from cs.api_key k join cs.principal p using (principal_id)
    where k.tenant_id = ${filter.tenant_id} and (${filter.name ?? null}::text is null or lower(p.name) = lower(${filter.name ?? null}::text))
    order by lower(p.name), k.created_at desc`);
}

/** Makes a key, and its principal when the name is new. @param wanted.owner name of the person who answers for the principal. */
export async function issueKey(
  sql: Sql,
  ids: Ids,
  wanted: PrincipalName & { role: Role; groups: readonly string[]; owner?: string; expiresInMs?: number },
): Promise<OwnerChange<{ key: string; key_id: string; principal_id: string }>> {
  return await ownerChange(sql, async (tx) => {
    const { tenant_id, name, role, groups, owner, expiresInMs } = wanted;
    const holder = await principalNamed(tx, tenant_id, name);
    if (holder?.disabled === true) refuse('person_disabled', holder.name);
    if (holder?.kind === 'service_account' && decides([role])) refuse('service_account_never_decides', holder.name);
    const person = owner === undefined ? undefined : await principalNamed(tx, tenant_id, owner);
    if (owner !== undefined && person?.kind !== 'person') refuse('owner_unknown', owner);
    const made = await createApiKey(tx, ids, {
      tenant_id,
      name,
      role,
      groups,
      ...(person === undefined ? {} : { owner_id: person.principal_id }),
      ...(expiresInMs === undefined ? {} : { expiresInMs }),
    });
    const { key_id, principal_id } = made;
    await auditOwner(tx, tenant_id, 'create_key', 'created', {
      key_id,
      principal_id,
      role,
      groups,
      owner_id: person?.principal_id ?? null,
    });
    return made;
  });
}

/** Revokes a key for good. @returns `changed` false when it was revoked before. */
export async function revokeKey(
  sql: Sql,
  key_id: string,
): Promise<OwnerChange<{ key_id: string; name: string; changed: boolean }>> {
  return await ownerChange(sql, async (tx) => {
    const [key] = await tx<{ tenant_id: string; principal_id: string; name: string; revoked: boolean }[]>`
      select k.tenant_id, k.principal_id, p.name, k.revoked_at is not null as revoked
        from cs.api_key k join cs.principal p using (principal_id) where k.key_id = ${key_id} for update of k`;
    if (key === undefined) refuse('key_unknown', key_id);
    const { tenant_id, principal_id, name, revoked } = key;
    if (!revoked) {
      await tx`update cs.api_key set revoked_at = cs.clock() where key_id = ${key_id}`;
      await auditOwner(tx, tenant_id, 'revoke_key', 'revoked', { key_id, principal_id });
    }
    return { key_id, name, changed: !revoked };
  });
}

/** A passkey as the database's owner sees it. Times are UTC, RFC 3339 with microseconds. */
export interface PasskeyRow {
  /** base64url. */
  credential_id: string;
  tenant_id: string;
  /** Whose it is. */
  principal: string;
  /** What its holder calls it. */
  name: string;
  backed_up: boolean;
  created_at: string;
  last_used_at: string | null;
  revoked_at: string | null;
}

/** Passkeys, by person and then newest first. @param name whose; absent: of every person of the tenant. */
export async function listPasskeysOf(sql: Sql, filter: { tenant_id: string; name?: string }): Promise<PasskeyRow[]> {
  return await answered(sql<PasskeyRow[]>`
    select k.credential_id, k.tenant_id, p.name as principal, k.name, k.backed_up, cs.iso(k.created_at) as created_at,
      cs.iso(k.last_used_at) as last_used_at, cs.iso(k.revoked_at) as revoked_at
    from cs.passkey k join cs.principal p using (principal_id)
    where k.tenant_id = ${filter.tenant_id} and (${filter.name ?? null}::text is null or lower(p.name) = lower(${filter.name ?? null}::text))
    order by lower(p.name), k.created_at desc`);
}

/**
 * Revokes a passkey for good and ends its person's sessions, any of which it may have opened. Decisions that it signed do not count at a
 * dispatch any more.
 * @param options.last that the only one of its person may go: then only a new invitation lets them enrol again.
 * @returns `changed` false when it was revoked before.
 */
export async function revokePasskeyOf(
  sql: Sql,
  credential_id: string,
  options: { last: boolean },
): Promise<OwnerChange<{ credential_id: string; name: string; changed: boolean; passkeys_left: number }>> {
  return await ownerChange(sql, async (tx) => {
    const [passkey] = await tx<{ tenant_id: string; principal_id: string; name: string }[]>`
      select p.tenant_id, p.principal_id, p.name from cs.passkey k join cs.principal p using (principal_id) where k.credential_id = ${credential_id}`;
    if (passkey === undefined) refuse('passkey_not_found', credential_id);
    const { tenant_id, principal_id, name } = passkey;
    // In the order in which cs.revoke_passkey locks them: two revocations at once take turns, or together they could take the last two.
    const all = await tx<{ credential_id: string; standing: boolean }[]>`
      select credential_id, revoked_at is null as standing from cs.passkey where principal_id = ${principal_id} order by credential_id for update`;
    const standing = all.filter((one) => one.standing);
    const passkeys_left = standing.filter((one) => one.credential_id !== credential_id).length;
    if (passkeys_left === standing.length) return { credential_id, name, changed: false, passkeys_left };
    if (passkeys_left === 0 && !options.last) refuse('passkey_last', name);
    await tx`update cs.passkey set revoked_at = cs.clock() where credential_id = ${credential_id}`;
    const sessions_ended = await endSessions(tx, principal_id);
    await auditOwner(tx, tenant_id, 'revoke_passkey', 'revoked', { credential_id, principal_id, sessions_ended });
    return { credential_id, name, changed: true, passkeys_left };
  });
}
