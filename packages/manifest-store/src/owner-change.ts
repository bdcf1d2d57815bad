import { answered, type Sql, type Statements, transaction } from './connection.ts';
import type { PrincipalRole } from './principal.ts';

/** Why a change of people, keys or passkeys is refused. */
export type OwnerRefusalCode =
  | 'person_unknown'
  | 'person_disabled'
  | 'not_a_person'
  | 'name_taken'
  | 'owner_unknown'
  | 'service_account_unknown'
  | 'service_account_never_decides'
  | 'identity_taken'
  | 'key_unknown'
  | 'passkey_not_found'
  | 'passkey_last';

export interface OwnerRefused {
  kind: 'refused';
  code: OwnerRefusalCode;
  /** Which one: a name as it is stored where it is, a key's or credential's id. */
  subject: string;
}
export type OwnerChange<T> = ({ kind: 'done' } & T) | OwnerRefused;

class Refusal extends Error {
  override readonly name = 'Refusal';
  readonly code: OwnerRefusalCode;
  readonly subject: string;

  constructor(code: OwnerRefusalCode, subject: string) {
    super(`${code}: ${subject}`);
    this.code = code;
    this.subject = subject;
  }
}

/** Ends the change under way; whatever it wrote is rolled back. */
export function refuse(code: OwnerRefusalCode, subject: string): never {
  throw new Refusal(code, subject);
}

/** Runs one change as the database's owner: a transaction in which either everything happens, its audit event included, or nothing. */
export async function ownerChange<T extends object>(
  sql: Sql,
  work: (tx: Statements) => Promise<T>,
): Promise<OwnerChange<T>> {
  try {
    return await answered(transaction(sql, async (tx) => ({ kind: 'done' as const, ...(await work(tx)) })));
  } catch (error) {
    if (error instanceof Refusal) return { kind: 'refused', code: error.code, subject: error.subject };
    throw error;
  }
}

/** The owner acts for no principal: the event names whom it is about, and `service` is the login. */
export async function auditOwner(
  tx: Statements,
  tenant_id: string,
  what: string,
  code: string,
  detail: Readonly<Record<string, unknown>>,
): Promise<void> {
  await tx`select cs.write_audit(${tenant_id}, null, null, ${what}, ${code}, ${JSON.stringify(detail)}::text::jsonb)`;
}

/** A principal by its name, which is one in all its spellings. */
export interface NamedPrincipal {
  principal_id: string;
  tenant_id: string;
  name: string;
  kind: 'person' | 'service_account';
  roles: PrincipalRole[];
  groups: string[];
  owner_id: string | null;
  disabled: boolean;
}

/** Locks the principal of this name until the change is over; `undefined` when the tenant has none. */
export async function principalNamed(
  tx: Statements,
  tenant_id: string,
  name: string,
): Promise<NamedPrincipal | undefined> {
  const [row] = await tx<NamedPrincipal[]>`
    select principal_id, tenant_id, name, kind, to_jsonb(roles) as roles, to_jsonb(groups) as groups, owner_id, disabled_at is not null as disabled
      from cs.principal where tenant_id = ${tenant_id} and lower(name) = lower(${name}) for update`;
  return row;
}

/** The same, refused when there is none. */
export async function knownPrincipal(tx: Statements, tenant_id: string, name: string): Promise<NamedPrincipal> {
  return (await principalNamed(tx, tenant_id, name)) ?? refuse('person_unknown', name);
}

/** The same, refused for a service account. */
export async function knownPerson(tx: Statements, tenant_id: string, name: string): Promise<NamedPrincipal> {
  const known = await knownPrincipal(tx, tenant_id, name);
  return known.kind === 'person' ? known : refuse('not_a_person', known.name);
}

/** Ends every open session of a principal. @returns how many. */
export async function endSessions(tx: Statements, principal_id: string): Promise<number> {
  const ended = await tx`
    update cs.session set revoked_at = cs.clock()
     where principal_id = ${principal_id} and revoked_at is null and expires_at > cs.clock() returning session_id`;
  return ended.length;
}
