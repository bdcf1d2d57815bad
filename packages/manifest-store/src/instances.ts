import { answered, type Sql } from './connection.ts';

/** Where a process life runs, for its supervisor: it sees processes end, not instances. */
export interface InstanceProcess {
  host: string;
  pid: number;
}

export type InstanceEnd = 'ended' | 'already_ended' | 'instance_unknown' | 'instance_alive' | 'role_missing';

/**
 * Takes an executor's session lease on the connection that `sql` is (a pool of one, for nothing else): an advisory lock that Postgres frees
 * the moment the session is gone (protocol rule 15).
 * @returns false when the instance's end is recorded, or another session holds its lease.
 */
export async function takeLease(sql: Sql, instance_id: string, process: InstanceProcess): Promise<boolean> {
  const [row] = await answered(
    sql<{ held: boolean }[]>`select cs.take_lease(${instance_id}, ${process.host}, ${process.pid}) as held`,
  );
  return row?.held === true;
}

/**
 * Records an instance's end (protocol rule 20), as the login that `sql` has: the instance itself, the owner as its supervisor, or the api for
 * an operator (`who`), who is believed only about an instance without lease and without a heartbeat for `pause_ms`, or whose credential was
 * rotated.
 */
export async function endInstance(
  sql: Sql,
  end: {
    instance_id: string;
    evidence: string;
    credential_rotated?: boolean;
    who?: { tenant_id: string; principal_id: string };
    pause_ms?: number;
  },
): Promise<InstanceEnd> {
  const [row] = await answered(sql<{ result: InstanceEnd }[]>`
    select cs.end_instance(${end.who?.tenant_id ?? null}, ${end.who?.principal_id ?? null}, ${end.instance_id}, ${end.evidence},
      ${end.credential_rotated ?? false}, ${end.pause_ms ?? 0}) as result`);
  if (row === undefined) throw new Error('end_instance returned nothing');
  return row.result;
}

/** A process life that a person may have to judge. */
export interface Instance {
  instance_id: string;
  service: string;
  host: string | null;
  pid: number | null;
  started_at: string;
  beat_at: string;
  lease: 'held' | 'free' | 'none';
  ended_at: string | null;
  ended_by: string | null;
  credential_rotated: boolean;
  /** Attempts of it that are still open, of whatever tenant. */
  open_attempts: number;
}

/** Instances, newest first; of all services or one. */
export async function listInstances(sql: Sql, filter: { service?: string; limit: number }): Promise<Instance[]> {
  return await answered(sql<Instance[]>`
    select i.instance_id, i.service, i.host, i.pid, cs.iso(i.started_at) as started_at, cs.iso(i.beat_at) as beat_at,
      case when i.lease_at is null then 'none' when cs.lease_key(i.instance_id) in (select cs.leases_held()) then 'held' else 'free' end as lease,
      cs.iso(i.ended_at) as ended_at, i.ended_by, i.credential_rotated,
      cs.open_attempts(i.instance_id) as open_attempts
    from cs.executor_instance i where ${filter.service ?? null}::text is null or i.service = ${filter.service ?? null}::text
    order by i.started_at desc limit ${filter.limit}`);
}

/** Ends every instance that ran as this process, as its supervisor: called with the owner's login once the process has exited. */
export async function endProcess(sql: Sql, process: InstanceProcess, evidence: string): Promise<void> {
  const rows = await answered(sql<{ instance_id: string }[]>`
    select instance_id from cs.executor_instance where host = ${process.host} and pid = ${process.pid} and ended_at is null`);
  for (const { instance_id } of rows) await endInstance(sql, { instance_id, evidence });
}
