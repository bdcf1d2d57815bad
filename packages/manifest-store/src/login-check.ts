import type { Service } from '@counterstamp/manifest-core';
import { answered, type Sql } from './connection.ts';
import { ROLE_SETTINGS } from './roles.ts';
import { StoreUnavailable } from './store-unavailable.ts';

/** SQLSTATEs of a database that has not been migrated, or whose grants this login lacks. */
const NOT_MIGRATED = new Set(['3F000', '42P01', '42883', '42501']);

/**
 * Whether this login is the service that it is used for, in a migrated database.
 * @returns `undefined` when it is, or when the database does not answer yet (a service may start before it); else what to do, as a sentence.
 */
export async function loginFault(sql: Sql, service: Service): Promise<string | undefined> {
  try {
    const [row] = await answered(
      sql<{ service: string | null; login: string }[]>`select cs.caller_service() as service, session_user as login`,
    );
    if (row?.service === service) return undefined;
    return `the database login ${row?.login} is ${row?.service ?? 'no service'}, not ${service}; give this process the login of its own service`;
  } catch (error) {
    if (error instanceof StoreUnavailable) return undefined;
    const code = error instanceof Error && 'code' in error ? String(error.code) : '';
    if (NOT_MIGRATED.has(code))
      return 'the database has no schema of this version for this login; run `counterstamp migrate` as its owner first';
    throw error;
  }
}

/** A setting that a service's sessions should carry and do not. */
export interface SettingFault {
  name: string;
  expected: string;
  found: string;
}

/**
 * What a login looks like from within: what `loginFault` says, and which settings of its role its sessions lack. Changes nothing.
 * @throws {StoreUnavailable} when the database does not answer.
 * @throws what Postgres says when it refuses the login.
 */
export async function loginReport(
  sql: Sql,
  service: Service,
): Promise<{ fault: string | undefined; settings: SettingFault[] }> {
  // Not the time zone: the driver sets it for each of its sessions.
  const names = Object.keys(ROLE_SETTINGS).filter((name) => name !== 'timezone');
  const rows = await answered(
    sql<{ name: string; found: string }[]>`
      select n as name, current_setting(n) as found from jsonb_array_elements_text(${JSON.stringify(names)}::text::jsonb) n`,
  );
  const settings = rows
    .map(({ name, found }) => ({ name, expected: ROLE_SETTINGS[name] ?? '', found }))
    .filter(({ expected, found }) => expected !== found);
  return { fault: await loginFault(sql, service), settings };
}
