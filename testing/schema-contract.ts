import type { Sql } from '@counterstamp/manifest-store';

/** What the services of a release rely on in the database: the functions that they may call, the columns that they may read, the legal moves. */
export interface SchemaContract {
  /** `role name(arguments) → result`. */
  functions: string[];
  /** `table.column type`. */
  columns: string[];
  /** `from trigger to`, by whom. */
  moves: string[];
}

/** Reads it as it stands. @param rolePrefix of the installation's roles. */
export async function readSchemaContract(sql: Sql, rolePrefix: string): Promise<SchemaContract> {
  const texts = async (rows: Promise<readonly { text: string }[]>) => (await rows).map(({ text }) => text);
  return {
    functions: await texts(
      sql<{ text: string }[]>`
        select format('%s cs.%s(%s) → %s', r.rolname, p.proname, pg_get_function_identity_arguments(p.oid), pg_get_function_result(p.oid)) as text
          from pg_proc p join pg_roles r on starts_with(r.rolname, ${rolePrefix}) and has_function_privilege(r.oid, p.oid, 'execute')
         where p.pronamespace = 'cs'::regnamespace order by 1`,
    ),
    columns: await texts(
      sql<{ text: string }[]>`
        select format('cs.%s.%s %s', c.relname, a.attname, format_type(a.atttypid, a.atttypmod)) as text
          from pg_attribute a join pg_class c on c.oid = a.attrelid
         where c.relnamespace = 'cs'::regnamespace and c.relkind = 'r' and a.attnum > 0 and not a.attisdropped order by 1`,
    ),
    moves: await texts(sql<{ text: string }[]>`select to_jsonb(m)::text as text from cs.legal_move m order by 1`),
  };
}

/**
 * What the services of the release before would miss after a migration, as sentences; empty: they can go on beside the new ones, and be rolled back to. A
 * migration within a minor version only adds.
 */
export function missedByOlder(before: SchemaContract, after: SchemaContract): string[] {
  const gone = (what: keyof SchemaContract) => before[what].filter((one) => !after[what].includes(one));
  return [
    ...gone('functions').map(
      (one) =>
        `Processes of the release before call this function, and it is gone or has another form: ${one}. Add another one, and keep it.`,
    ),
    ...gone('columns').map(
      (one) =>
        `Processes of the release before read this column, and it is gone or has another type: ${one}. Add another one, and keep it.`,
    ),
    ...gone('moves').map((one) => `Processes of the release before make this move, and it is no longer legal: ${one}.`),
  ];
}
