import { answered, type Sql } from './connection.ts';
import type { PrincipalRef } from './principal.ts';
import { readAs } from './read-as.ts';

/** Scope of a hold on everything; any other scope is a connector's name. */
export const HOLD_ALL = '*';

/** Dispatches that are switched off: those of one connector, or (scope `*`) all. Runs wait; nothing else of them changes. */
export interface Hold {
  scope: string;
  reason: string;
  /** Null to another tenant than that of who set it. */
  set_by: string | null;
  set_at: string;
}

/**
 * Every hold of the installation, by scope. A hold is not a tenant's: it stops everybody's dispatches.
 * @param tenant who asks; the principals of other tenants are left out.
 */
export async function listHolds(sql: Sql, tenant: string): Promise<Hold[]> {
  return await readAs(
    sql,
    tenant,
    (tx) => tx<Hold[]>`
      select h.scope, h.reason, p.principal_id as set_by, cs.iso(h.set_at) as set_at
        from cs.hold h left join cs.principal p on p.principal_id = h.set_by and p.tenant_id = ${tenant} order by h.scope`,
  );
}

/** Sets a hold or replaces its reason; with `null` releases it. The same transaction writes the audit event. */
export async function setHold(sql: Sql, who: PrincipalRef, scope: string, reason: string | null): Promise<void> {
  await answered(sql`select cs.set_hold(${who.tenant_id}, ${who.principal_id}, ${scope}, ${reason})`);
}
