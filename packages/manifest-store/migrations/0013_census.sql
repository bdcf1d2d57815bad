DROP INDEX "cs"."run_parked";--> statement-breakpoint
CREATE INDEX "run_open" ON "cs"."run" USING btree ("state","state_since") WHERE state not in ('completed', 'rejected', 'expired', 'failed');--> statement-breakpoint
-- How long the decision of this moment was waited for, in milliseconds: since the approval was asked for last. Null: never.
create function cs.decision_wait_ms(p_tenant text, p_run uuid) returns double precision
language plpgsql security definer set search_path = cs, pg_temp
as $$
declare v_service text := cs.require_service('api');
begin
  return (select extract(epoch from cs.clock() - e.at) * 1000 from cs.run_event e join cs.run r using (run_id)
    where e.run_id = p_run and r.tenant_id = p_tenant and e.trigger = 'action_fixed' order by e.revision desc limit 1);
end $$;
