-- What row-level security cannot say by itself. The policies are made by `migrate` with the grants, since they name the installation's roles.

-- An audit event that names somebody stands in their own tenant. For whoever else is named, whatever was refused leaves no trace at all.
create or replace function cs.write_audit(p_tenant text, p_principal text, p_run uuid, p_what text, p_code text, p_detail jsonb) returns void
language plpgsql set search_path = cs, pg_temp
as $$
begin
  if p_principal is not null and not exists (select from cs.principal p where p.principal_id = p_principal and p.tenant_id = p_tenant) then
    raise exception 'the principal is not of the tenant' using errcode = 'CS005';
  end if;
  insert into cs.audit_event (at, service, tenant_id, principal_id, run_id, what, code, detail)
  values (cs.clock(), coalesce(cs.caller_service(), session_user), p_tenant, p_principal, p_run, p_what, p_code, p_detail);
end $$;
--> statement-breakpoint
-- How many attempts of an instance are open, of all tenants: whoever judges the instance has to know, and learns no more than the number.
create function cs.open_attempts(p_instance text) returns int
language sql stable security definer set search_path = cs, pg_temp
as $$ select count(*)::int from cs.attempt a where a.instance_id = p_instance and a.status = 'started' $$;
