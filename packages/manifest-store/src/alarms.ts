import { type JsonObject, type RunId, runIdFromUuid } from '@counterstamp/manifest-core';
import type { Sql } from './connection.ts';
import { readAs } from './read-as.ts';

/** An audit event that somebody must look at: `what` is `alarm`. */
export interface RaisedAlarm {
  alarm_id: number;
  at: string;
  service: string;
  code: string;
  run_id: RunId | null;
  principal_id: string | null;
  detail: JsonObject;
}

/** A tenant's alarms, newest first. `after`: the last one of the page before. */
export async function listAlarms(
  sql: Sql,
  tenant: string,
  { after, limit }: { after?: number; limit: number },
): Promise<RaisedAlarm[]> {
  const rows = await readAs(
    sql,
    tenant,
    (tx) => tx<(Omit<RaisedAlarm, 'run_id'> & { run_id: string | null })[]>`
      select a.audit_id::float8 as alarm_id, cs.iso(a.at) as at, a.service, a.code, a.run_id, a.principal_id, a.detail
        from cs.audit_event a where a.tenant_id = ${tenant} and a.what = 'alarm' ${after === undefined ? tx`` : tx`and a.audit_id < ${after}`}
       order by a.audit_id desc limit ${limit}`,
  );
  return rows.map((row) => ({ ...row, run_id: row.run_id === null ? null : runIdFromUuid(row.run_id) }));
}
