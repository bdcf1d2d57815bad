import { type RunId, runIdFromUuid, type State, type StopReasonCode } from '@counterstamp/manifest-core';
import { answered, type Sql } from './connection.ts';

/** An open run, as somebody on call meets it. */
export interface OldestRun {
  run_id: RunId;
  tenant_id: string;
  state: State;
  revision: number;
  /** How long it has been in its state, in milliseconds. */
  age_ms: number;
  /** When the fleet looks again; null: a person has to. */
  wake_at: string | null;
  parked_reason: StopReasonCode | null;
}

/**
 * The open runs that have been longest in their state, of all tenants, oldest first; for the owner's login and read only.
 * @param filter `parked`: a reason, or `true` for any.
 */
export async function oldestRuns(
  sql: Sql,
  filter: { state?: State; parked?: string | true; limit: number },
): Promise<OldestRun[]> {
  const { state = null, parked, limit } = filter;
  const rows = await answered(sql<(Omit<OldestRun, 'run_id'> & { run_id: string })[]>`
    select r.run_id, r.tenant_id, r.state, r.revision, (extract(epoch from cs.clock() - r.state_since) * 1000)::float8 as age_ms,
        cs.iso(r.wake_at) as wake_at, r.parked_reason
      from cs.run r where r.state not in ('completed', 'rejected', 'expired', 'failed') and (${state}::text is null or r.state = ${state})
        and (${parked === undefined} or r.parked_reason is not null) and (${typeof parked === 'string' ? parked : null}::text is null or r.parked_reason = ${typeof parked === 'string' ? parked : null})
      order by r.state_since, r.run_id limit ${limit}`);
  return rows.map((row) => ({ ...row, run_id: runIdFromUuid(row.run_id) }));
}
