import type { State } from '@counterstamp/manifest-core';
import { answered, type Sql } from './connection.ts';

/** Runs that somebody still has to come back to, by state, with the age of the oldest in milliseconds. */
export interface CensusRow {
  state: State;
  count: number;
  oldest_age_ms: number;
  parked: number;
}

/** Counts open runs from the partial indexes alone, so that it stays cheap beside millions of closed ones. */
export async function census(sql: Sql): Promise<CensusRow[]> {
  return await answered(sql<CensusRow[]>`
    select state, count(*)::int as count, count(parked_reason)::int as parked,
           (extract(epoch from cs.clock() - min(state_since)) * 1000)::float8 as oldest_age_ms
      from cs.run where (wake_at is not null or parked_reason is not null) and state not in ('completed', 'rejected', 'expired', 'failed')
     group by state`);
}
