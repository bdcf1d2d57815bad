import { answered, type Sql, transaction } from './connection.ts';
import type { PrincipalRef } from './principal.ts';
import { readAs } from './read-as.ts';

/** Scope of a hold on everything; any other scope is a connector's name. */
export const HOLD_ALL = '*';

/** Who set a hold that no principal set: ids of principals begin otherwise. */
const OWNER = 'owner';

/** Dispatches that are switched off: those of one connector, or (scope `*`) all. Runs wait; nothing else of them changes. */
export interface Hold {
  scope: string;
  reason: string;
  /** Null to another tenant than that of who set it; `owner`: the database's owner, who is nobody's principal. */
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
      select h.scope, h.reason, case h.set_by when ${OWNER} then ${OWNER} else p.principal_id end as set_by, cs.iso(h.set_at) as set_at
        from cs.hold h left join cs.principal p on p.principal_id = h.set_by and p.tenant_id = ${tenant} order by h.scope`,
  );
}

/** Sets a hold or replaces its reason; with `null` releases it. The same transaction writes the audit event. */
export async function setHold(sql: Sql, who: PrincipalRef, scope: string, reason: string | null): Promise<void> {
  await answered(sql`select cs.set_hold(${who.tenant_id}, ${who.principal_id}, ${scope}, ${reason})`);
}

/**
 * Sets the hold on everything as the database's owner, while no api runs: after a restore it must stand before the first worker starts. Every tenant
 * with an operator, who may release it, finds it in its audit.
 */
export async function setHoldAsOwner(sql: Sql, reason: string): Promise<Hold> {
  return await answered(
    transaction(sql, async (tx) => {
      await tx`select pg_advisory_xact_lock(hashtextextended('cs.hold', 0))`; // Waits for every dispatch that passed its check before.
      const [hold] = await tx<Hold[]>`
        insert into cs.hold (scope, reason, set_by, set_at) values (${HOLD_ALL}, ${reason}, ${OWNER}, cs.clock())
        on conflict (scope) do update set reason = excluded.reason, set_by = excluded.set_by, set_at = excluded.set_at
        returning scope, reason, set_by, cs.iso(set_at) as set_at`;
      if (hold === undefined) throw new Error('an insert returned nothing');
      await tx`
        select cs.write_audit(t.tenant_id, null, null, 'set_hold', 'held', jsonb_build_object('scope', ${HOLD_ALL}::text, 'reason', ${reason}::text))
          from (select distinct p.tenant_id from cs.principal p where 'operator' = any (p.roles)) t`;
      return hold;
    }),
  );
}
