import {
  type Digest,
  type JsonObject,
  RunId,
  type State,
  type StopReason,
  uuidOfRunId,
} from '@counterstamp/manifest-core';
import { answered, type Sql } from './connection.ts';

/** A run that this database knows no send of. After a restore, the world may know one. */
export interface UnsentRun {
  run_id: RunId;
  tenant_id: string;
  request_id: string;
  workflow: string;
  workflow_version: number;
  state: State;
  stop_reason: StopReason | null;
  /** Null until it is fixed what the run would do. */
  action: { fields: JsonObject; digest: Digest } | null;
}

export interface UnsentRuns {
  runs: UnsentRun[];
  /** Runs with a send on record that have not ended: the fleet looks each of them up by itself. */
  recovering: number;
}

/**
 * Open runs without an attempt, and those that were closed without one since a time. Needs a login that may read the tables, as every worker's may.
 * @param since an instant as text; null: open runs alone.
 */
export async function unsentRuns(sql: Sql, since: string | null): Promise<UnsentRuns> {
  const [row] = await answered(
    sql<{ recovering: number; runs: string }[]>`
    select (select count(*)::int from cs.run r where r.state in ('executing', 'verifying', 'needs_reconciliation')) as recovering,
      coalesce((select json_agg(json_build_object('run_id', 'run_' || r.run_id, 'tenant_id', r.tenant_id, 'request_id', r.request_id, 'workflow', r.workflow,
          'workflow_version', r.workflow_version, 'state', r.state, 'stop_reason', r.stop_reason,
          'action', (select json_build_object('fields', a.action_canonical::json, 'digest', a.action_digest)
            from cs.action a where a.run_id = r.run_id and a.action_revision = r.action_revision)) order by r.run_id)
        from cs.run r where not exists (select from cs.attempt t where t.run_id = r.run_id)
          and (r.state in ('queued', 'preflight', 'collecting', 'proposed', 'awaiting_approval')
            or r.state in ('rejected', 'expired', 'failed') and r.state_since >= ${since}::text::timestamptz)), '[]')::text as runs`,
  );
  if (row === undefined) throw new Error('a count returned nothing');
  return { recovering: row.recovering, runs: JSON.parse(row.runs) as UnsentRun[] };
}

/** Which of these runs the database has, with their states and whether a send of theirs is on record. What is no run id is no run. */
export async function knownRuns(
  sql: Sql,
  ids: readonly string[],
): Promise<Map<string, { state: State; has_attempt: boolean }>> {
  const uuids = ids.flatMap((id) => {
    const parsed = RunId.safeParse(id);
    return parsed.success ? [uuidOfRunId(parsed.data)] : [];
  });
  const rows = await answered(
    sql<{ run_id: string; state: State; has_attempt: boolean }[]>`
    select 'run_' || r.run_id as run_id, r.state, exists (select from cs.attempt t where t.run_id = r.run_id) as has_attempt
      from cs.run r where r.run_id = any (array(select u::uuid from jsonb_array_elements_text(${JSON.stringify(uuids)}::text::jsonb) u))`,
  );
  return new Map(rows.map(({ run_id, state, has_attempt }) => [run_id, { state, has_attempt }]));
}
