import { quoteSchemaName, runMigrations } from 'bullmq';
import { Client } from 'pg';
import { QUEUE_SCHEMA } from './postgres-backend.ts';

/** Key of the advisory lock held over migration and grants. The integer spells `CSQM`. */
const LOCK_KEY = 0x4353514d;

/** Longest wait for another process that migrates, milliseconds. */
const LOCK_WAIT_MS = 60_000;

const CONNECT_MAX_MS = 5_000;

/**
 * Brings BullMQ's schema up to date as its owner and grants service roles what adding and consuming need; safe to run by
 * several processes at once and again at any time. BullMQ serializes its migrations by itself but not the grants, and
 * GRANTs that meet fail with "tuple concurrently updated": hence a lock over both.
 * @param ownerUrl a role that may create schemas in this database, not through a transaction-pooling proxy.
 * @returns the schema's version.
 * @throws {Error} when the server cannot be reached, a role does not exist, the schema is newer than this BullMQ, or another
 *   migration holds the lock for more than 60 s.
 */
export async function migrateQueue(
  ownerUrl: string,
  options: { grantTo: readonly string[]; schema?: string },
): Promise<{ version: number }> {
  const schema = options.schema ?? QUEUE_SCHEMA;
  const client = new Client({
    connectionString: ownerUrl,
    connectionTimeoutMillis: CONNECT_MAX_MS,
    application_name: 'counterstamp-migrate-queue',
  });
  // A connection that breaks while idle emits an event; without a listener that ends the process. The next query rejects.
  client.on('error', () => {});
  await client.connect();
  try {
    await client.query(`set lock_timeout = ${LOCK_WAIT_MS}`);
    await client.query('select pg_advisory_lock($1, hashtext($2))', [LOCK_KEY, schema]);
    const queryable = {
      query: async <R>(text: string, params?: readonly unknown[]) => {
        const result = await client.query(text, params === undefined ? undefined : [...params]);
        return { rows: result.rows as R[], rowCount: result.rowCount };
      },
    };
    const version = await runMigrations(queryable, schema);
    for (const role of options.grantTo)
      await client.query(grants(quoteSchemaName(schema), client.escapeIdentifier(role)));
    return { version };
  } finally {
    // Ends the session, and the advisory lock with it.
    await client.end();
  }
}

/**
 * Rows may be read and changed, functions run, sequences advanced; nothing may be created, altered or truncated. One
 * simple query, hence one transaction: a role has all of it or none.
 */
function grants(schema: string, role: string): string {
  return `
    grant usage on schema ${schema} to ${role};
    grant select, insert, update, delete on all tables in schema ${schema} to ${role};
    grant usage, select on all sequences in schema ${schema} to ${role};
    grant execute on all functions in schema ${schema} to ${role};`;
}
