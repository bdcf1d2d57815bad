import type { Service } from '@counterstamp/manifest-core';
import { answered, type Sql } from './connection.ts';

/** The transaction's tenant, as `readAs` sets it. Without it nothing equals it: a session that had one once shows an empty text. */
const TENANT = `NULLIF(current_setting('cs.tenant'::text, true), ''::text)`;
const OF_TENANT = `(tenant_id = ${TENANT})`;
/** Row-level security applies inside a policy too: a parent that the reader does not see is not there. */
const within = (parent: string, key: string) => (table: string) =>
  `(EXISTS ( SELECT FROM cs.${parent} p WHERE (p.${key} = ${table}.${key})))`;
const OF_RUN = within('run', 'run_id');
const EVERYBODY = 'true';

/**
 * Which rows of a table the api's login sees, as a condition in Postgres's own spelling, so that the catalogue can be compared with it.
 * A table that is not listed is closed to the api. `true`: the installation's, no tenant's.
 */
const API_SEES: Readonly<Record<string, string | ((table: string) => string)>> = {
  run: OF_TENANT,
  run_input: OF_RUN,
  run_event: OF_RUN,
  evidence: OF_RUN,
  evidence_value: within('evidence', 'evidence_id'),
  proposal: OF_RUN,
  proposal_refusal: OF_RUN,
  action: OF_RUN,
  approval_request: OF_RUN,
  decision: OF_RUN,
  decision_assertion: within('decision', 'decision_id'),
  attempt: OF_RUN,
  observation: OF_RUN,
  verdict_support: OF_RUN,
  audit_event: OF_TENANT,
  principal: OF_TENANT,
  principal_identity: OF_TENANT,
  passkey: OF_TENANT,
  subject_key: OF_TENANT,
  executor_instance: EVERYBODY,
  hold: EVERYBODY,
  legal_move: EVERYBODY,
  checkpoint_leaf: OF_RUN,
  checkpoint: EVERYBODY,
};

/** A table of the schema as the catalogue describes it. */
export interface WalledTable {
  name: string;
  row_security: boolean;
  policies: { name: string; command: string; permissive: boolean; roles: string[]; condition: string | null }[];
}

interface WantedPolicy {
  name: string;
  roles: string[];
  condition: string;
}

/** Condition under which a service's login sees rows of a table; `undefined`: it sees none. The workers act for all tenants. */
function conditionFor(service: Service, table: string): string | undefined {
  if (service !== 'api') return EVERYBODY;
  const condition = Object.hasOwn(API_SEES, table) ? API_SEES[table] : undefined;
  return typeof condition === 'function' ? condition(table) : condition;
}

/**
 * The statements that bring the walls to what they should be: none when they stand, since each locks its table for a moment. Run them in one
 * transaction, so that no worker sees an empty table in between. The owner is not bound: its functions compare tenant and principal themselves.
 * @param logins of one installation; its policies are named by `prefix`, those of others are left alone.
 */
export function wallStatements(
  tables: readonly WalledTable[],
  prefix: string,
  logins: readonly { service: Service; role: string }[],
): string[] {
  const rolesOf = (isApi: boolean) => logins.filter((one) => (one.service === 'api') === isApi).map((one) => one.role);
  return tables.flatMap(({ name: table, row_security, policies }) => {
    const policy = (name: string, roles: string[], condition: string | undefined): string[] => {
      const found = policies.find((one) => one.name === name);
      if (condition === undefined) return found === undefined ? [] : [`drop policy ${name} on cs.${table}`];
      if (found !== undefined && isSame(found, { name, roles, condition })) return [];
      return [
        `drop policy if exists ${name} on cs.${table}`,
        `create policy ${name} on cs.${table} for select to ${roles.join(', ')} using (${condition})`,
      ];
    };
    return [
      ...(row_security ? [] : [`alter table cs.${table} enable row level security`]),
      ...policy(`${prefix}api_reads`, rolesOf(true), conditionFor('api', table)),
      ...policy(`${prefix}workers_read`, rolesOf(false), EVERYBODY),
    ];
  });
}

/**
 * What a login sees otherwise than it should. `missing`: row security that is off, a policy that is not there. `excess`: a policy that shows
 * it more, whoever made it, since policies add up.
 */
export function wallFaults(
  tables: readonly WalledTable[],
  service: Service,
  role: string,
): { missing: string[]; excess: string[] } {
  const missing: string[] = [];
  const excess: string[] = [];
  for (const { name: table, row_security, policies } of tables) {
    const condition = conditionFor(service, table);
    if (!row_security) missing.push(`row security of ${table}`);
    const applying = policies.filter(({ roles }) => roles.includes(role) || roles.includes('public'));
    const right = applying.filter((policy) => policy.permissive && isRead(policy) && policy.condition === condition);
    if (condition !== undefined && right.length === 0) missing.push(`policy of ${table}`);
    for (const policy of applying) {
      if (!right.includes(policy)) excess.push(`policy ${policy.name} of ${table}`);
    }
  }
  return { missing, excess };
}

function isSame(policy: WalledTable['policies'][number], wanted: WantedPolicy): boolean {
  const { name, permissive, condition, roles } = policy;
  const sameRoles = roles.length === wanted.roles.length && wanted.roles.every((role) => roles.includes(role));
  return name === wanted.name && permissive && isRead(policy) && condition === wanted.condition && sameRoles;
}

function isRead({ command }: WalledTable['policies'][number]): boolean {
  return command === 'SELECT';
}

/** Reads the walls as they stand; one statement over the catalogue, which any login may make. */
export async function readWalls(sql: Pick<Sql, 'unsafe'>): Promise<WalledTable[]> {
  // Postgres breaks a long condition into lines, and names the schema only where the search path does not.
  return await answered(
    sql.unsafe<WalledTable[]>(`
    select c.relname::text as name, c.relrowsecurity as row_security,
      coalesce((select json_agg(json_build_object('name', p.policyname, 'command', p.cmd, 'permissive', p.permissive = 'PERMISSIVE', 'roles', to_json(p.roles::text[]),
          'condition', regexp_replace(p.qual, '\\s+', ' ', 'g')) order by p.policyname)
        from pg_policies p where p.schemaname = 'cs' and p.tablename = c.relname), '[]') as policies
    from pg_class c where c.relnamespace = (select n.oid from pg_namespace n where n.nspname = 'cs') and c.relkind in ('r', 'p') order by c.relname`),
  );
}
