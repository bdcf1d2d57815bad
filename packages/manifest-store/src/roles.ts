import { createHmac } from 'node:crypto';
import { SERVICES, type Service } from '@counterstamp/manifest-core';
import { type Sql, transaction } from './connection.ts';
import { readWalls, wallStatements } from './walls.ts';

/** Roles are cluster-wide, hence the prefix: two installations in one cluster must not share logins. */
export const DEFAULT_ROLE_PREFIX = 'cs_';
const PREFIX = /^[a-z][a-z0-9_]{0,30}$/;

export function roleName(prefix: string, service: Service): string {
  if (!PREFIX.test(prefix))
    throw new RangeError(`role prefix ${JSON.stringify(prefix)} must be lower-case letters, digits and _`);
  return `${prefix}${service}`;
}

/** Password of a service's role, derived from one secret. For development; production gives each service its own URL. */
export function derivedPassword(secret: string, role: string): string {
  return createHmac('sha256', secret).update(`cs.role-password.v1\0${role}`).digest('base64url');
}

/** URL under which a service logs in: the owner's server and database, its own role and derived password. */
export function serviceUrl(
  ownerUrl: string,
  service: Service,
  secret: string,
  prefix: string = DEFAULT_ROLE_PREFIX,
): string {
  const url = new URL(ownerUrl);
  const role = roleName(prefix, service);
  url.username = role;
  url.password = derivedPassword(secret, role);
  return url.href;
}

/** Functions that each service may call; everything else is refused by Postgres. */
export const GRANTS: Readonly<Record<Service, readonly string[]>> = {
  api: [
    'subject_key_for',
    'key_of_run',
    'unknown_data_key',
    'create_run',
    'commit_stage',
    'commit_decision',
    'decision_wait_ms',
    'commit_verdict',
    'support_verdict',
    'record_audit',
    'instance_beat',
    'end_instance',
    'approver_obstacle',
    'request_chain',
    'checkpoint_covering',
    'set_hold',
    'authenticate',
    'begin_challenge',
    'invitation_for',
    'enrol_passkey',
    'passkey_for',
    'vouched_person',
    'open_session',
    'session_of',
    'step_up',
    'close_session',
    'list_passkeys',
    'revoke_passkey',
  ],
  preflight: [
    'commit_stage',
    'key_of_run',
    'unknown_data_key',
    'defer',
    'record_audit',
    'instance_beat',
    'end_instance',
  ],
  executor: [
    'commit_stage',
    'key_of_run',
    'unknown_data_key',
    'commit_dispatch',
    'append_evidence',
    'defer',
    'record_audit',
    'instance_beat',
    'take_lease',
    'end_instance',
  ],
  verifier: ['commit_stage', 'unknown_data_key', 'defer', 'record_audit', 'instance_beat', 'end_instance'],
  reconciler: [
    'commit_stage',
    'key_of_run',
    'unknown_data_key',
    'append_evidence',
    'checkpoint_due',
    'commit_checkpoint',
    'claim_due',
    'defer',
    'record_audit',
    'instance_beat',
    'end_instance',
  ],
};

/** Pure helpers that reads use; every service may call them. */
export const HELPERS = [
  'clock',
  'iso',
  'microseconds',
  'base64url',
  'caller_service',
  'lease_key',
  'leases_held',
  'decision_obstacle',
  'open_attempts',
];

/** What a service's role may never do. */
const PLAIN = 'nosuperuser nocreatedb nocreaterole noinherit';

/** Key material is the owner's and `authenticate`'s alone. */
export const UNREADABLE: readonly string[] = ['api_key', 'invitation', 'session', 'challenge', 'service_login'];

/** What hangs on each role, so that it survives a pooler: isolation, durability and the timeouts. Written as `current_setting` shows it. */
export const ROLE_SETTINGS: Readonly<Record<string, string>> = {
  default_transaction_isolation: 'read committed',
  synchronous_commit: 'on',
  statement_timeout: '10s',
  lock_timeout: '5s',
  idle_in_transaction_session_timeout: '5s',
  timezone: 'UTC',
  // Every statement finds its rows by key: planning it anew for each set of values only costs.
  plan_cache_mode: 'force_generic_plan',
};

/**
 * The statements that create the service roles, for `migrate` to run or, where the owner may not create roles, for an administrator to read
 * (`migrate --print-roles`).
 */
export function roleStatements(prefix: string, database: string, passwordOf: (role: string) => string): string[] {
  return SERVICES.flatMap((service) => {
    const role = roleName(prefix, service);
    const password = passwordOf(role).replaceAll("'", "''");
    return [
      `do $$ begin create role ${role} login ${PLAIN}; exception when duplicate_object then null; end $$`,
      // Only a superuser may even name these attributes of a role that exists, and an owner with CREATEROLE is enough for the rest.
      `do $$ begin if exists (select from pg_roles where rolname = '${role}' and (rolsuper or rolcreatedb or rolcreaterole or rolinherit)) then alter role ${role} ${PLAIN}; end if; end $$`,
      `alter role ${role} login password '${password}'`,
      ...Object.entries(ROLE_SETTINGS).map(([name, value]) => `alter role ${role} set ${name} = '${value}'`),
      `grant connect on database "${database.replaceAll('"', '""')}" to ${role}`,
    ];
  });
}

/**
 * Grants inside the database: reads of tables, behind row-level security, EXECUTE one by one, nothing else. Idempotent; run by the owner
 * after every migration.
 */
export async function applyGrants(sql: Sql, prefix: string): Promise<void> {
  const roles = SERVICES.map((service) => ({ service, role: roleName(prefix, service) }));
  const statements = [
    'revoke all on schema cs from public',
    'revoke all on all tables in schema cs from public',
    'revoke execute on all functions in schema cs from public',
    ...roles.flatMap(({ service, role }) => [
      `revoke all on all tables in schema cs from ${role}`,
      `revoke execute on all functions in schema cs from ${role}`,
      `grant usage on schema cs to ${role}`,
      `grant select on all tables in schema cs to ${role}`,
      ...UNREADABLE.map((table) => `revoke select on cs.${table} from ${role}`),
      ...[...GRANTS[service], ...HELPERS].map((name) => `grant execute on function cs.${name} to ${role}`),
    ]),
  ];
  await transaction(sql, async (tx) => {
    await tx.unsafe([...statements, ...wallStatements(await readWalls(tx), prefix, roles)].join(';\n'));
    for (const { service, role } of roles) {
      await tx`insert into cs.service_login (login, service) values (${role}, ${service}) on conflict (login) do update set service = excluded.service`;
    }
  });
}
