import type { Service } from '@counterstamp/manifest-core';
import { answered, type Sql } from './connection.ts';
import { GRANTS, HELPERS, UNREADABLE } from './roles.ts';
import { readWalls, wallFaults } from './walls.ts';

/** What one service's role is and may, beside what it should. Empty lists: exactly that. */
export interface RoleReport {
  service: Service;
  role: string;
  exists: boolean;
  /** Attributes that it must not have (or, `nologin`, must have lost), and roles that it could become. */
  powers: string[];
  /** Functions of its own that it may not call, tables that it may not read, row security that is off, and what else it needs. */
  missing: string[];
  /** Functions that are not its own, tables that it may change, key material or other tenants' rows that it may read. */
  excess: string[];
}

interface Row {
  role: string;
  exists: boolean;
  powers: string[];
  missing: string[];
  excess: string[];
}

/**
 * Compares every service's role with what `applyGrants` gives it: attributes, memberships, functions, tables, rows, sequences. Effective
 * rights, so what PUBLIC or another role would give counts too. Reads of the catalogue only, which any login may make.
 * @param roles each service's login.
 */
export async function roleReports(sql: Sql, roles: Readonly<Partial<Record<Service, string>>>): Promise<RoleReport[]> {
  const asked = (Object.entries(roles) as [Service, string][]).map(([service, role]) => ({
    service,
    role,
    functions: [...GRANTS[service], ...HELPERS],
  }));
  const rows = await answered(sql<Row[]>`
    with asked as (
      select a ->> 'role' as role, array(select jsonb_array_elements_text(a -> 'functions')) as functions
        from jsonb_array_elements(${JSON.stringify(asked)}::text::jsonb) a),
    -- A parameter that is an array would need the driver to fetch types first.
    hidden as (select jsonb_array_elements_text(${JSON.stringify(UNREADABLE)}::text::jsonb) as name),
    known as (select a.role, a.functions, r.* from asked a join pg_roles r on r.rolname = a.role),
    power as (
      select k.role, p.what from known k, lateral (values
        (k.rolsuper, 'superuser'), (k.rolcreatedb, 'createdb'), (k.rolcreaterole, 'createrole'), (k.rolinherit, 'inherit'),
        (k.rolbypassrls, 'bypassrls'), (k.rolreplication, 'replication'), (not k.rolcanlogin, 'nologin')) p(holds, what)
       where p.holds
      union all
      select k.role, 'member of ' || o.rolname from known k join pg_auth_members m on m.member = k.oid join pg_roles o on o.oid = m.roleid),
    space as (select oid from pg_namespace where nspname = 'cs'),
    callable as (
      select k.role, p.proname::text as name, p.proname::text = any (k.functions) as own, has_function_privilege(k.oid, p.oid, 'execute') as allowed
        from known k, pg_proc p where p.pronamespace = (select oid from space) and p.prorettype <> 'trigger'::regtype),
    relation as (
      select k.oid as role_oid, k.role, c.oid, c.relname::text as name, c.relkind from known k, pg_class c
       where c.relnamespace = (select oid from space) and c.relkind in ('r', 'p', 'v', 'm', 'S')),
    lack as (
      select k.role, 'connect to this database' as what from known k where not has_database_privilege(k.oid, current_database(), 'connect')
      union all
      select k.role, 'usage of schema cs' from known k, space where not has_schema_privilege(k.oid, space.oid, 'usage')
      union all
      select k.role, 'execute ' || f from known k, unnest(k.functions) f
       where not exists (select from callable c where c.role = k.role and c.name = f and c.allowed)
      union all
      select role, 'read ' || name from relation
       where relkind <> 'S' and name not in (select name from hidden) and not has_table_privilege(role_oid, oid, 'select')),
    -- CASE where a question fits one kind of relation only: Postgres may ask conditions in any order.
    surplus as (
      select k.role, 'create in schema cs' as what from known k, space where has_schema_privilege(k.oid, space.oid, 'create')
      union all
      select role, 'execute ' || name from callable where allowed and not own
      union all
      select role, 'write ' || name from relation
       where relkind <> 'S' and (has_table_privilege(role_oid, oid, 'insert, update, delete, truncate, references, trigger')
         or has_any_column_privilege(role_oid, oid, 'insert, update, references'))
      union all
      select role, 'read ' || name from relation
       where relkind <> 'S' and name in (select name from hidden)
         and (has_table_privilege(role_oid, oid, 'select') or has_any_column_privilege(role_oid, oid, 'select'))
      union all
      select role, 'use sequence ' || name from relation
       where case when relkind = 'S' then has_sequence_privilege(role_oid, oid, 'usage, update') else false end)
    select a.role, exists (select from known k where k.role = a.role) as exists,
      coalesce((select json_agg(what order by what) from power where power.role = a.role), '[]') as powers,
      coalesce((select json_agg(distinct what order by what) from lack where lack.role = a.role), '[]') as missing,
      coalesce((select json_agg(distinct what order by what) from surplus where surplus.role = a.role), '[]') as excess
    from asked a`);
  const tables = await readWalls(sql);
  return asked.map(({ service, role }) => {
    const row = rows.find((one) => one.role === role);
    if (row === undefined) throw new Error(`the catalogue says nothing about ${role}`);
    if (!row.exists) return { service, ...row };
    const walls = wallFaults(tables, service, role);
    return {
      service,
      ...row,
      missing: [...row.missing, ...walls.missing],
      excess: [...row.excess, ...walls.excess],
    };
  });
}
