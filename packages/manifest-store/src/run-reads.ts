import {
  type Manifest,
  type RunId,
  runIdFromUuid,
  type State,
  type StoredEvent,
  uuidOfRunId,
} from '@counterstamp/manifest-core';
import type { Sql } from './connection.ts';
import type { PrincipalRef } from './principal.ts';
import { readAs } from './read-as.ts';

/** A run as a list shows it. */
export interface RunSummary {
  run_id: RunId;
  request_id: string;
  generation: number;
  workflow: string;
  state: State;
  state_since: string;
  revision: number;
  created_at: string;
  stop_reason: Manifest['stop_reason'];
  parked_reason: string | null;
}

/** A tenant's runs, newest first. `before`: the last run of the page before. */
export async function listRuns(
  sql: Sql,
  tenant: string,
  { state, before, limit }: { state?: State; before?: RunId; limit: number },
): Promise<RunSummary[]> {
  const rows = await readAs(
    sql,
    tenant,
    (tx) => tx<(Omit<RunSummary, 'run_id'> & { run_id: string })[]>`
      select r.run_id, r.request_id, r.generation, r.workflow, r.state, cs.iso(r.state_since) as state_since, r.revision,
        cs.iso(r.created_at) as created_at, r.stop_reason, r.parked_reason
      from cs.run r where r.tenant_id = ${tenant} ${state === undefined ? tx`` : tx`and r.state = ${state}`}
        ${before === undefined ? tx`` : tx`and r.run_id < ${uuidOfRunId(before)}::uuid`}
      order by r.run_id desc limit ${limit}`,
  );
  return rows.map((row) => ({ ...row, run_id: runIdFromUuid(row.run_id) }));
}

/** A run's events, oldest first; `undefined` when the tenant has no such run. */
export async function runEvents(sql: Sql, tenant: string, run_id: RunId): Promise<StoredEvent[] | undefined> {
  const rows = await readAs(
    sql,
    tenant,
    (tx) => tx<Omit<StoredEvent, 'run_id'>[]>`
      select e.revision, e.from_state as from, e.to_state as to, e.trigger, e.actor, cs.microseconds(e.at)::text as at_us, e.payload,
        e.payload_digest, e.previous_hash, e.hash
      from cs.run_event e join cs.run r using (run_id) where e.run_id = ${uuidOfRunId(run_id)}::uuid and r.tenant_id = ${tenant}
      order by e.revision`,
  );
  return rows.length === 0 ? undefined : rows.map((row) => ({ run_id, ...row }));
}

/** Why a principal's approval of a run would not count now (`cs.approver_obstacle`); null when nothing stands against it. */
export async function approverObstacle(
  sql: Sql,
  { tenant_id, principal_id }: PrincipalRef,
  run_id: RunId,
): Promise<string | null> {
  const [row] = await readAs(
    sql,
    tenant_id,
    (tx) => tx<{ obstacle: string | null }[]>`
      select cs.approver_obstacle(r, ${principal_id}, false) as obstacle from cs.run r
       where r.run_id = ${uuidOfRunId(run_id)}::uuid and r.tenant_id = ${tenant_id}`,
  );
  return row === undefined ? 'unknown' : row.obstacle;
}
