import type { ISql } from 'postgres';
import { answered, type Sql } from './connection.ts';

/** Statements inside one transaction, or on their own. */
export type Statements = ISql;

/**
 * Reads for a tenant, behind row-level security: the setting that the policies ask for lives in the transaction of the reads and nowhere
 * else, so that a pooled connection carries it to nobody. Three round trips, however many reads `query` starts at once.
 * @throws {StoreUnavailable}
 */
export async function readAs<T>(sql: Sql, tenant: string, query: (tx: Statements) => Promise<T>): Promise<T> {
  const read = sql.begin('read only', async (tx) => {
    // On its way before the first read is written. A read that overtook it would see nothing.
    const walled = tx`select set_config('cs.tenant', ${tenant}, true)`.execute();
    const [found] = await Promise.all([query(tx), walled]);
    return { found };
  });
  return (await answered(read)).found;
}
