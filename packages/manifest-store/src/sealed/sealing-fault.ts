import { answered, type Sql } from '../connection.ts';
import { StoreUnavailable } from '../store-unavailable.ts';
import type { Sealing } from './sealing.ts';

/**
 * Whether this process can open everything that is sealed in the database.
 * @returns `undefined` when it can, or when the database does not answer yet (a load says it then); else what to do, as a sentence.
 */
export async function sealingFault(sql: Sql, sealing: Sealing | undefined): Promise<string | undefined> {
  try {
    const known = JSON.stringify(sealing?.key_ids ?? []);
    const [row] = await answered(
      sql<{ unknown: string | null }[]>`select cs.unknown_data_key(${known}::text::jsonb) as unknown`,
    );
    if (row?.unknown == null) return undefined;
    return `COUNTERSTAMP_DATA_KEY: personal data is sealed under the data key ${row.unknown}, which is not among those given; add it`;
  } catch (error) {
    if (error instanceof StoreUnavailable) return undefined;
    throw error;
  }
}
