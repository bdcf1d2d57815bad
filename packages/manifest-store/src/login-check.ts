import type { Service } from '@counterstamp/manifest-core';
import { answered, type Sql, StoreUnavailable } from './connection.ts';

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
