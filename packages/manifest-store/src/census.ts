import type { Service, State } from '@counterstamp/manifest-core';
import { answered, type Sql } from './connection.ts';

/** How a census groups what it counts. */
export interface CensusTerms {
  /** Upper bounds of the ages that are told apart, in seconds, ascending. */
  age_bounds_s: readonly number[];
  /** An approval that expires within this many seconds expires soon. */
  expiring_soon_s: number;
  /** Tenants that are shown one by one, those with the most open runs. */
  tenants_max: number;
}

/** What is open in the whole database at one moment; ages in milliseconds. What is not named is zero. */
export interface Census {
  states: {
    state: State;
    count: number;
    oldest_age_ms: number;
    total_age_ms: number;
    /** One per bound: runs not older than it, and older than the one before. Older than all: the rest of `count`. */
    buckets: number[];
  }[];
  parked: { reason: string; count: number; oldest_age_ms: number }[];
  /** In doubt and looked after by the fleet: not parked. */
  doubt: { oldest_age_ms: number };
  /** Whose wake-up time has passed, and that no sweep has claimed yet. */
  due: { count: number; oldest_age_ms: number };
  approvals: { waiting: number; expiring_soon: number };
  /** With the most open runs first. */
  tenants: TenantLoad[];
  rest: { tenants: number; open_runs: number; oldest_machine_wait_ms: number };
  holds: { scope: 'all' | 'connector'; count: number; oldest_age_ms: number }[];
  /** Process lives whose heartbeat is recent. */
  instances: { service: Service; count: number }[];
}

/** What one tenant has open. `oldest_machine_wait_ms`: of the runs that wait for a worker and for nobody else. */
export interface TenantLoad {
  tenant_id: string;
  open_runs: number;
  oldest_machine_wait_ms: number;
}

/** A heartbeat is due every 5 s; three of them missed is no hiccup. */
const ALIVE_MS = 20_000;

/** The one statement of a census; a fragment, so that its plan can be asked for too. `date_part` rather than `extract`, whose numeric costs a third of it. */
export function censusStatement(sql: Sql, { age_bounds_s, expiring_soon_s, tenants_max }: CensusTerms) {
  return sql`
    with now as materialized (select cs.clock() as at),
    open as materialized (
      select r.state, r.tenant_id, r.parked_reason, greatest(0, date_part('epoch', now.at - r.state_since) * 1000) as age_ms,
        case when r.wake_at <= now.at then date_part('epoch', now.at - r.wake_at) * 1000 end as due_ms,
        r.state = 'awaiting_approval' and not r.decisions_sufficient as waiting,
        r.approval_expires_at <= now.at + interval '1 second' * ${expiring_soon_s} as soon
        from cs.run r, now where r.state not in ('completed', 'rejected', 'expired', 'failed')),
    aged as (
      select state, width_bucket(age_ms, ${`{${age_bounds_s.map((bound) => bound * 1_000).join(',')}}`}::text::float8[]) as bucket, count(*)::int as count, max(age_ms) as oldest_age_ms,
        sum(age_ms) as total_age_ms from open group by 1, 2),
    tenant as (
      select tenant_id, count(*)::int as open_runs, coalesce(max(age_ms) filter (where state in ('queued', 'preflight', 'collecting', 'proposed', 'verifying')), 0) as oldest_machine_wait_ms,
        row_number() over (order by count(*) desc, tenant_id) as place from open group by 1)
    select json_build_object(
      'states', coalesce((select json_agg(aged) from aged), '[]'),
      'parked', coalesce((select json_agg(p) from (select parked_reason as reason, count(*)::int as count, max(age_ms) as oldest_age_ms from open
        where parked_reason is not null group by 1) p), '[]'),
      'doubt', (select json_build_object('oldest_age_ms', coalesce(max(age_ms), 0)) from open where state = 'needs_reconciliation' and parked_reason is null),
      'due', (select json_build_object('count', count(due_ms), 'oldest_age_ms', coalesce(max(due_ms), 0)) from open),
      'approvals', (select json_build_object('waiting', count(*), 'expiring_soon', count(*) filter (where soon)) from open where waiting),
      'tenants', coalesce((select json_agg(t order by t.place) from tenant t where t.place <= ${tenants_max}), '[]'),
      'rest', (select json_build_object('tenants', count(*), 'open_runs', coalesce(sum(open_runs), 0), 'oldest_machine_wait_ms', coalesce(max(oldest_machine_wait_ms), 0))
        from tenant where place > ${tenants_max}),
      'holds', coalesce((select json_agg(h) from (select case when h.scope = '*' then 'all' else 'connector' end as scope, count(*)::int as count,
          (extract(epoch from max(now.at - h.set_at)) * 1000)::float8 as oldest_age_ms from cs.hold h, now group by 1) h), '[]'),
      'instances', coalesce((select json_agg(i) from (select i.service, count(*)::int as count from cs.executor_instance i, now
        where i.ended_at is null and i.beat_at > now.at - interval '1 millisecond' * ${ALIVE_MS} group by 1) i), '[]'))::text as census`;
}

/**
 * Counts what is open, in one statement on one snapshot and from the partial index of open runs alone: its cost grows with them, not with
 * the millions that are over.
 * @throws {StoreUnavailable}
 */
export async function census(sql: Sql, terms: CensusTerms): Promise<Census> {
  const [row] = await answered(sql<{ census: string }[]>`${censusStatement(sql, terms)}`);
  if (row === undefined) throw new Error('the census returned nothing');
  const counted = JSON.parse(row.census) as Omit<Census, 'states'> & {
    states: { state: State; bucket: number; count: number; oldest_age_ms: number; total_age_ms: number }[];
  };
  const states = new Map<State, Census['states'][number]>();
  for (const { state, bucket, count, oldest_age_ms, total_age_ms } of counted.states) {
    const known = states.get(state) ?? {
      state,
      count: 0,
      oldest_age_ms: 0,
      total_age_ms: 0,
      buckets: terms.age_bounds_s.map(() => 0),
    };
    known.count += count;
    known.oldest_age_ms = Math.max(known.oldest_age_ms, oldest_age_ms);
    known.total_age_ms += total_age_ms;
    if (bucket < terms.age_bounds_s.length) known.buckets[bucket] = count;
    states.set(state, known);
  }
  return { ...counted, states: [...states.values()] };
}

/** The database’s clock, in milliseconds since the epoch. */
export async function databaseClock(sql: Sql): Promise<number> {
  const [row] = await answered(sql<{ ms: number }[]>`select (extract(epoch from cs.clock()) * 1000)::float8 as ms`);
  if (row === undefined) throw new Error('the database told no time');
  return row.ms;
}
