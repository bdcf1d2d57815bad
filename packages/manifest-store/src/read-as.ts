import { answered, type Sql, type Statements, transaction } from './connection.ts';

/**
 * Reads for a tenant, behind row-level security: the setting that the policies ask for lives in the transaction of the reads and nowhere
 * else, so that a pooled connection carries it to nobody. Three round trips, however many reads `query` starts at once.
 * @throws {StoreUnavailable}
 */
export async function readAs<T>(sql: Sql, tenant: string, query: (tx: Statements) => Promise<T>): Promise<T> {
  const read = async (tx: Statements): Promise<T> => {
    // On its way before the first read is written. A read that overtook it would see nothing.
    const walled = tx`select set_config('cs.tenant', ${tenant}, true)`.execute();
    const [found] = await Promise.all([query(tx), walled]);
    return found;
  };
  return answered(transaction(sql, read, 'read only'));
}
