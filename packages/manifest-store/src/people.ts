import { randomBytes } from 'node:crypto';
import type { Ids } from '@counterstamp/manifest-core';
import { answered, type Sql, type Statements } from './connection.ts';
import { hashSecret } from './keys.ts';
import {
  auditOwner,
  endSessions,
  knownPerson,
  knownPrincipal,
  type NamedPrincipal,
  type OwnerChange,
  ownerChange,
  principalNamed,
  refuse,
} from './owner-change.ts';
import type { PrincipalRole } from './principal.ts';

/** Longest life of an invitation in milliseconds, 24 h: whoever finds an old link in a mailbox finds nothing. */
export const INVITATION_LIFE_MAX_MS = 86_400_000;

/** Which principal: a tenant and a name. Two spellings that differ in case are one principal. */
export interface PrincipalName {
  tenant_id: string;
  name: string;
}

/** A principal as the database's owner sees it. Times are UTC, RFC 3339 with microseconds. */
export interface PrincipalRow extends PrincipalName {
  principal_id: string;
  kind: 'person' | 'service_account';
  roles: PrincipalRole[];
  groups: string[];
  /** Name of the person who answers for it. */
  owner: string | null;
  disabled_at: string | null;
  identities: { issuer: string; subject: string }[];
  /** Passkeys that are not revoked. */
  passkeys: number;
  /** Until when an invitation stands open. */
  invited_until: string | null;
}

/** Every principal of a tenant, by name. */
export async function listPeople(sql: Sql, tenant_id: string): Promise<PrincipalRow[]> {
  return await answered(sql<PrincipalRow[]>`
    select p.principal_id, p.tenant_id, p.name, p.kind, to_jsonb(p.roles) as roles, to_jsonb(p.groups) as groups, o.name as owner, cs.iso(p.disabled_at) as disabled_at,
      coalesce((select jsonb_agg(jsonb_build_object('issuer', i.issuer, 'subject', i.subject) order by i.issuer, i.subject)
        from cs.principal_identity i where i.principal_id = p.principal_id), '[]') as identities,
      (select count(*)::int from cs.passkey k where k.principal_id = p.principal_id and k.revoked_at is null) as passkeys,
      (select cs.iso(max(i.expires_at)) from cs.invitation i
        where i.principal_id = p.principal_id and i.consumed_at is null and i.expires_at > cs.clock()) as invited_until
    from cs.principal p left join cs.principal o on o.principal_id = p.owner_id
    where p.tenant_id = ${tenant_id} order by lower(p.name)`);
}

/** Makes a person, who can do nothing until they enrol a passkey or sign in through a linked identity. */
export async function addPerson(
  sql: Sql,
  ids: Ids,
  wanted: PrincipalName & {
    roles: readonly PrincipalRole[];
    groups: readonly string[];
    /** Names of the service accounts that the person answers for: what these ask for, the person never approves. */
    owner_of: readonly string[];
  },
): Promise<OwnerChange<{ principal_id: string }>> {
  return await ownerChange(sql, async (tx) => {
    const { tenant_id, name } = wanted;
    const principal_id = ids.id('principal');
    const [made] = await tx`
      insert into cs.principal (principal_id, tenant_id, name, kind, roles, groups)
      values (${principal_id}, ${tenant_id}, ${name}, 'person', ${textArray(tx, wanted.roles)}, ${textArray(tx, wanted.groups)})
      on conflict (tenant_id, lower(name)) do nothing returning principal_id`;
    if (made === undefined) {
      refuse('name_taken', (await principalNamed(tx, tenant_id, name))?.name ?? name);
    }
    const owner_of = await own(tx, tenant_id, principal_id, wanted.owner_of);
    await auditOwner(tx, tenant_id, 'add_person', 'added', {
      principal_id,
      roles: wanted.roles,
      groups: wanted.groups,
      owner_of,
    });
    return { principal_id };
  });
}

/**
 * Replaces what is given of a principal's roles and groups, and adds to the service accounts that a person answers for. It holds at once: a role
 * that is gone closes the keys that carry it, and a decision of who is no approver any more does not count at dispatch.
 */
export async function setPerson(
  sql: Sql,
  wanted: PrincipalName & {
    roles?: readonly PrincipalRole[];
    groups?: readonly string[];
    owner_of?: readonly string[];
  },
): Promise<OwnerChange<{ principal_id: string; roles: readonly PrincipalRole[]; groups: readonly string[] }>> {
  return await ownerChange(sql, async (tx) => {
    const { tenant_id, name } = wanted;
    const known = await knownPrincipal(tx, tenant_id, name);
    const { principal_id } = known;
    const roles = wanted.roles ?? known.roles;
    const groups = wanted.groups ?? known.groups;
    if (known.kind === 'service_account') {
      if (decides(roles)) refuse('service_account_never_decides', known.name);
      if (wanted.owner_of !== undefined) refuse('not_a_person', known.name);
    }
    await tx`
      update cs.principal set roles = ${textArray(tx, roles)}, groups = ${textArray(tx, groups)} where principal_id = ${principal_id}`;
    const owner_of = await own(tx, tenant_id, principal_id, wanted.owner_of ?? []);
    await auditOwner(tx, tenant_id, 'set_person', 'changed', {
      principal_id,
      before: { roles: known.roles, groups: known.groups },
      after: { roles, groups },
      owner_of,
    });
    return { principal_id, roles, groups };
  });
}

/** Whether one of these roles may stand behind a decision or a verdict: what a service account never may. */
export function decides(roles: readonly PrincipalRole[]): boolean {
  return roles.some((role) => role === 'approver' || role === 'operator' || role === 'break_glass');
}

/**
 * Makes a single-use invitation to enrol a passkey; the person's earlier ones are void from now on, since only the newest link is known to be in
 * the right hands. The token is returned once and never stored.
 * @param wanted.expiresInMs its life in milliseconds, at most INVITATION_LIFE_MAX_MS.
 * @throws {RangeError} for a longer life.
 */
export async function invitePerson(
  sql: Sql,
  ids: Ids,
  wanted: PrincipalName & { expiresInMs: number },
): Promise<OwnerChange<{ principal_id: string; invitation_id: string; token: string; expires_at: string }>> {
  if (!(wanted.expiresInMs > 0 && wanted.expiresInMs <= INVITATION_LIFE_MAX_MS)) {
    throw new RangeError('an invitation lives 24 hours at most');
  }
  return await ownerChange(sql, async (tx) => {
    const { principal_id, tenant_id, name, disabled } = await knownPerson(tx, wanted.tenant_id, wanted.name);
    if (disabled) refuse('person_disabled', name);
    await voidInvitations(tx, principal_id);
    const token = randomBytes(32).toString('base64url');
    const invitation_id = ids.id('invitation');
    const [row] = await tx<{ expires_at: string }[]>`
      insert into cs.invitation (invitation_id, tenant_id, principal_id, token_hash, created_at, expires_at)
      select ${invitation_id}, ${tenant_id}, ${principal_id}, ${hashSecret(token)}, now, now + cs.ms(${wanted.expiresInMs}::float8) from cs.clock() as now
      returning cs.iso(expires_at) as expires_at`;
    if (row === undefined) throw new Error('the invitation was not stored');
    const { expires_at } = row;
    await auditOwner(tx, tenant_id, 'invite_person', 'invited', { principal_id, invitation_id, expires_at });
    return { principal_id, invitation_id, token, expires_at };
  });
}

/**
 * Shuts a principal out: open sessions end, invitations are void, keys open nothing, and decisions that they made do not count at a dispatch.
 * @returns `changed` false when that was so before.
 */
export async function disablePerson(
  sql: Sql,
  who: PrincipalName,
): Promise<OwnerChange<{ principal_id: string; changed: boolean; sessions_ended: number }>> {
  return await ownerChange(sql, async (tx) => {
    const { principal_id, tenant_id, disabled } = await knownPrincipal(tx, who.tenant_id, who.name);
    if (disabled) return { principal_id, changed: false, sessions_ended: 0 };
    await tx`update cs.principal set disabled_at = cs.clock() where principal_id = ${principal_id}`;
    await voidInvitations(tx, principal_id);
    const sessions_ended = await endSessions(tx, principal_id);
    await auditOwner(tx, tenant_id, 'disable_person', 'disabled', { principal_id, sessions_ended });
    return { principal_id, changed: true, sessions_ended };
  });
}

/** Lets a principal in again, with the roles, keys and passkeys that they had. @returns `changed` false when they were not shut out. */
export async function enablePerson(
  sql: Sql,
  who: PrincipalName,
): Promise<OwnerChange<{ principal_id: string; changed: boolean }>> {
  return await ownerChange(sql, async (tx) => {
    const { principal_id, tenant_id, disabled } = await knownPrincipal(tx, who.tenant_id, who.name);
    if (!disabled) return { principal_id, changed: false };
    await tx`update cs.principal set disabled_at = null where principal_id = ${principal_id}`;
    await auditOwner(tx, tenant_id, 'enable_person', 'enabled', { principal_id });
    return { principal_id, changed: true };
  });
}

/**
 * Says who a person is at an identity provider. The audit event leaves the subject out: it may be personal, and events stay.
 * @returns `changed` false when it was said before.
 */
export async function linkPerson(
  sql: Sql,
  wanted: PrincipalName & { issuer: string; subject: string },
): Promise<OwnerChange<{ principal_id: string; changed: boolean }>> {
  return await ownerChange(sql, async (tx) => {
    const { issuer, subject } = wanted;
    const { principal_id, tenant_id } = await knownPerson(tx, wanted.tenant_id, wanted.name);
    const [linked] = await tx`
      insert into cs.principal_identity (issuer, subject, tenant_id, principal_id) values (${issuer}, ${subject}, ${tenant_id}, ${principal_id})
      on conflict (issuer, subject) do nothing returning principal_id`;
    if (linked === undefined) {
      const [other] = await tx<{ name: string }[]>`
        select p.name from cs.principal_identity i join cs.principal p using (principal_id)
         where i.issuer = ${issuer} and i.subject = ${subject} and i.principal_id <> ${principal_id}`;
      // In another tenant or this one: one identity opens one door.
      if (other !== undefined) refuse('identity_taken', other.name);
      return { principal_id, changed: false };
    }
    await auditOwner(tx, tenant_id, 'link_person', 'linked', { principal_id, issuer });
    return { principal_id, changed: true };
  });
}

/** Expires what is open, rather than deleting it: who was invited, and when, stays on record. */
async function voidInvitations(tx: Statements, principal_id: string): Promise<void> {
  await tx`
    update cs.invitation set expires_at = cs.clock()
     where principal_id = ${principal_id} and consumed_at is null and expires_at > cs.clock()`;
}

/** Makes a person the owner of service accounts. @returns whose they were before, for the audit. */
async function own(
  tx: Statements,
  tenant_id: string,
  owner_id: string,
  names: readonly string[],
): Promise<{ principal_id: string; previous_owner_id: string | null }[]> {
  const owned: { principal_id: string; previous_owner_id: string | null }[] = [];
  for (const name of names) {
    const account: NamedPrincipal | undefined = await principalNamed(tx, tenant_id, name);
    if (account?.kind !== 'service_account') refuse('service_account_unknown', name);
    const { principal_id, owner_id: previous_owner_id } = account;
    await tx`update cs.principal set owner_id = ${owner_id} where principal_id = ${principal_id}`;
    owned.push({ principal_id, previous_owner_id });
  }
  return owned;
}

/** The driver knows no array types here (`fetch_types` is off), so a list travels as JSON. */
function textArray(tx: Statements, values: readonly string[]) {
  return tx`array(select jsonb_array_elements_text(${JSON.stringify(values)}::text::jsonb))`;
}
