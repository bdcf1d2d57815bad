import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import postgres from 'postgres';
import { transaction } from './connection.ts';
import { applyGrants, DEFAULT_ROLE_PREFIX, derivedPassword, roleStatements } from './roles.ts';

/** Any number will do, as long as every version of the product takes the same one. */
const MIGRATION_LOCK = 7_263_911;
const MIGRATIONS = fileURLToPath(new URL('../migrations', import.meta.url));

export interface MigrateOptions {
  rolePrefix?: string;
  /** Derives the service roles' passwords. Absent: the roles exist already and are only granted to. */
  secret?: string;
}

/**
 * Brings the database to this version's schema, creates the service roles where a secret is given, and grants. Safe to run from several
 * processes at once: an advisory lock makes the others wait and then find nothing to do.
 * @returns tags of the migrations that were applied now.
 * @throws {Error} when the journal's timestamps do not grow, which would make a migration be skipped silently.
 */
export async function migrate(ownerUrl: string, options: MigrateOptions = {}): Promise<string[]> {
  const prefix = options.rolePrefix ?? DEFAULT_ROLE_PREFIX;
  const journal = readJournal();
  // Loaded when it is needed: a worker never migrates, and should not carry the migrator's memory.
  const [{ drizzle }, { migrate: runMigrations }] = await Promise.all([
    import('drizzle-orm/postgres-js'),
    import('drizzle-orm/postgres-js/migrator'),
  ]);
  const sql = postgres(ownerUrl, { max: 1, onnotice: () => undefined, connect_timeout: 10 });
  try {
    await sql`select pg_advisory_lock(${MIGRATION_LOCK})`;
    const before = await appliedCount(sql);
    await runMigrations(drizzle({ client: sql }), {
      migrationsFolder: MIGRATIONS,
      migrationsSchema: 'cs_migrations',
    }).catch((error: unknown) => {
      // The migrator wraps what Postgres said in the whole statement: what to do is in what Postgres said.
      throw error instanceof Error && error.cause instanceof Error ? error.cause : error;
    });
    const { secret } = options;
    if (secret !== undefined) {
      const [row] = await sql<{ name: string }[]>`select current_database() as name`;
      // Roles are cluster-wide: two databases that migrate at once must not alter the same role together.
      await transaction(sql, async (tx) => {
        await tx`select pg_advisory_xact_lock(${MIGRATION_LOCK})`;
        await tx.unsafe(roleStatements(prefix, row?.name ?? '', (role) => derivedPassword(secret, role)).join(';\n'));
      });
    }
    await applyGrants(sql, prefix);
    return journal.slice(before).map((entry) => entry.tag);
  } finally {
    await sql.end({ timeout: 5 });
  }
}

/**
 * How the database stands to this version's schema; changes nothing. `pending`: tags of the migrations that it lacks. `unknown`: how many it
 * has that this version does not know; above zero, a newer version migrated it.
 */
export async function migrationStanding(ownerUrl: string): Promise<{ pending: string[]; unknown: number }> {
  const sql = postgres(ownerUrl, { max: 1, onnotice: () => undefined, connect_timeout: 5 });
  try {
    const applied = await appliedCount(sql);
    const journal = readJournal();
    return {
      pending: journal.slice(applied).map((entry) => entry.tag),
      unknown: Math.max(0, applied - journal.length),
    };
  } finally {
    await sql.end({ timeout: 1 });
  }
}

async function appliedCount(sql: postgres.Sql): Promise<number> {
  const [table] = await sql<
    { name: string | null }[]
  >`select to_regclass('cs_migrations.__drizzle_migrations')::text as name`;
  if (table?.name == null) return 0;
  const [row] = await sql<{ count: number }[]>`select count(*)::int as count from cs_migrations.__drizzle_migrations`;
  return row?.count ?? 0;
}

function readJournal(): { tag: string; when: number }[] {
  const { entries } = JSON.parse(readFileSync(`${MIGRATIONS}/meta/_journal.json`, 'utf8')) as {
    entries: { tag: string; when: number }[];
  };
  for (const [index, entry] of entries.entries()) {
    const previous = entries[index - 1];
    if (previous !== undefined && entry.when <= previous.when)
      throw new Error(`migration ${entry.tag} is dated before ${previous.tag} and would be skipped`);
  }
  return entries;
}
