-- A tenant with ten thousand runs in line must not keep another's ten waiting: every commit says how many its tenant has in line, which decides
-- the lane of the next hint; and the sweeper claims from every tenant in turn.

CREATE INDEX "run_in_line" ON "cs"."run" USING btree ("tenant_id","wake_at") WHERE wake_at is not null and state not in ('failed', 'completed') and (state <> 'awaiting_approval' or decisions_sufficient);
--> statement-breakpoint
-- Runs of a tenant that the fleet has to carry on now: not those that wait for a person, a proposal from outside or a far look. Counted to 1,025:
-- beyond that the lane is the same, and a commit of the noisiest tenant stays cheap. The query's conditions are
-- those of the index; in plpgsql its plan is kept.
create function cs.tenant_in_line(p_tenant text) returns int
language plpgsql stable
as $$
begin
  return (select count(*) from (select from cs.run r where r.tenant_id = p_tenant and r.wake_at <= (select cs.clock()) + interval '2 minutes'
    and r.wake_at is not null and r.state not in ('failed', 'completed') and (r.state <> 'awaiting_approval' or r.decisions_sufficient) limit 1025) in_line);
end $$;
--> statement-breakpoint
alter type cs.hot_row add attribute tenant_in_line int;
--> statement-breakpoint
create function cs.hot(p_run cs.run, p_in_line int) returns cs.hot_row
language sql stable
as $$
  select row(p_run.revision, p_run.state, p_run.evidence_complete, p_run.decisions_sufficient,
    p_run.retry_allowed, p_run.parked_reason, cs.iso(p_run.wake_at), p_in_line)::cs.hot_row
$$;
--> statement-breakpoint
create or replace function cs.hot(p_run cs.run) returns cs.hot_row
language sql stable
as $$
  select cs.hot(p_run, cs.tenant_in_line(p_run.tenant_id))
$$;
--> statement-breakpoint
-- The sweeper's claim: due runs, skipping those that somebody works on, with wake_at moved on so that the next sweep leaves them alone.
-- Tenants take turns, each with its longest due first, among the 20,000 that are due longest: a bound on what a sweep after a long outage sorts.
-- The pause doubles with the time since the last commit, between the two bounds. Attempts of an instance without its lease are due early (rule 15).
-- due: JSON array of the claimed runs. skipped: due, and locked by somebody at this moment.
create or replace function cs.claim_due(p_limit int, p_rehint_min_ms double precision, p_rehint_max_ms double precision, p_sweep_grace_ms double precision,
  p_lease_loss_ms double precision, out skipped int, out due text)
language plpgsql security definer set search_path = cs, pg_temp
as $$
declare
  v_service text := cs.require_service('reconciler');
  v_now timestamptz := cs.clock();
  v_due uuid[];
begin
  v_due := array(select d.run_id from (select o.run_id, o.wake_at, row_number() over (partition by o.tenant_id order by o.wake_at) as turn
      from (select r.run_id, r.tenant_id, r.wake_at from cs.run r where r.wake_at <= v_now order by r.wake_at limit 20000) o) d
    order by d.turn, d.wake_at limit p_limit);
  if exists (select from cs.attempt a where a.status = 'started') then
    update cs.executor_instance i set lease_lost_at = case when l.held then null else v_now end
      from (select o.instance_id, cs.lease_key(o.instance_id) in (select cs.leases_held()) as held from (select distinct a.instance_id from cs.attempt a where a.status = 'started') o) l
     where i.instance_id = l.instance_id and i.lease_at is not null and l.held = (i.lease_lost_at is not null);
    v_due := v_due || array(select a.run_id from cs.attempt a join cs.executor_instance i using (instance_id)
      where a.status = 'started' and (i.ended_at is not null or i.lease_lost_at + cs.ms(p_lease_loss_ms) <= v_now) limit p_limit);
  end if;
  with claimed as (
    select r.run_id from cs.run r where r.run_id = any (v_due) and (r.wake_at <= v_now or r.state = 'executing') for update skip locked),
  moved as (
    update cs.run r set wake_at = least(v_now + greatest(cs.ms(p_rehint_min_ms), least(cs.ms(p_rehint_max_ms), v_now - r.committed_at)),
        case when r.state = 'awaiting_approval' and r.approval_expires_at > v_now then r.approval_expires_at end)
      from claimed where r.run_id = claimed.run_id returning r.*),
  -- Counted once for each tenant, not for each of its runs.
  line as materialized (
    select t.tenant_id, cs.tenant_in_line(t.tenant_id) as n from (select distinct o.tenant_id from moved o) t)
  select (select count(distinct d) from unnest(v_due) d) - count(*),
    coalesce(json_agg(json_build_object('run_id', m.run_id, 'row', cs.hot(m.*::cs.run, line.n),
      'overdue', case when m.state = 'executing' then case when a.call_deadline + cs.ms(p_sweep_grace_ms) <= v_now or i.ended_at is not null
             or i.lease_lost_at + cs.ms(p_lease_loss_ms) <= v_now then 'attempt' end
         when m.run_deadline <= v_now and m.state in ('queued', 'preflight', 'collecting', 'proposed', 'awaiting_approval', 'verifying', 'needs_reconciliation') then 'run'
         when m.state = 'awaiting_approval' and m.approval_expires_at <= v_now then 'approval' end,
      'attempt_id', a.attempt_id)), '[]')::text
    into skipped, due
  from moved m join line using (tenant_id) left join cs.attempt a on m.state = 'executing' and a.run_id = m.run_id and a.status = 'started'
    left join cs.executor_instance i on i.instance_id = a.instance_id;
end $$;
