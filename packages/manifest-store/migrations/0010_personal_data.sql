-- Personal data under one key per subject: who gets the key, what must be sealed, and how it is destroyed.

-- The row stays when the key is gone: it says that the subject was erased, and that no key is made for it again.
create function cs.subject_key_is_erased_for_good() returns trigger
language plpgsql set search_path = cs, pg_temp
as $$
begin
  if tg_op = 'DELETE' then raise exception 'a subject is erased, its row never deleted' using errcode = 'CS006'; end if;
  if old.erased_at is not null then raise exception 'the subject was erased' using errcode = 'CS006'; end if;
  if (new.tenant_id, new.subject, new.created_at) is distinct from (old.tenant_id, old.subject, old.created_at) then
    raise exception 'a key belongs to its subject' using errcode = 'CS006';
  end if;
  return new;
end $$;
--> statement-breakpoint
create trigger subject_key_is_erased_for_good before update or delete on cs.subject_key for each row execute function cs.subject_key_is_erased_for_good();
--> statement-breakpoint
create trigger subject_key_no_truncate before truncate on cs.subject_key for each statement execute function cs.refuse_change();
--> statement-breakpoint
-- What belongs to a run whose input is sealed is sealed as well: a process without a data key cannot put it beside in plain text.
create function cs.sealed_with_its_run() returns trigger
language plpgsql set search_path = cs, pg_temp
as $$
declare
  v_run uuid;
begin
  if new.sealed is not null then return new; end if;
  if tg_table_name = 'proposal' then
    v_run := new.run_id;
  else
    select e.run_id into v_run from cs.evidence e where e.evidence_id = new.evidence_id;
  end if;
  if exists (select from cs.run_input i where i.run_id = v_run and i.sealed is not null) then
    raise exception 'the personal data of this run is sealed' using errcode = 'CS003';
  end if;
  return new;
end $$;
--> statement-breakpoint
create trigger evidence_value_sealed_with_its_run before insert on cs.evidence_value for each row execute function cs.sealed_with_its_run();
--> statement-breakpoint
create trigger proposal_sealed_with_its_run before insert on cs.proposal for each row execute function cs.sealed_with_its_run();
--> statement-breakpoint
-- The wrapped key of a subject; the proposed one where it has none yet. Null: it was erased, or the principal may not ask.
create function cs.subject_key_for(p_tenant text, p_principal text, p_subject text, p_proposed bytea) returns bytea
language plpgsql security definer set search_path = cs, pg_temp
as $$
declare
  v_key cs.subject_key;
begin
  perform cs.require_service('api');
  if not exists (select from cs.principal p where p.principal_id = p_principal and p.tenant_id = p_tenant and p.disabled_at is null) then return null; end if;
  select * into v_key from cs.subject_key k where k.tenant_id = p_tenant and k.subject = p_subject;
  if found then return v_key.wrapped_key; end if;
  insert into cs.subject_key (tenant_id, subject, wrapped_key, created_at) values (p_tenant, p_subject, p_proposed, cs.clock())
  on conflict (tenant_id, subject) do nothing returning * into v_key;
  -- Somebody else's key came first: that one counts.
  if not found then select * into v_key from cs.subject_key k where k.tenant_id = p_tenant and k.subject = p_subject; end if;
  return v_key.wrapped_key;
end $$;
--> statement-breakpoint
-- Under which key new values of a run are sealed. No row: no such run of the tenant. wrapped_key is null once the subject was erased.
create function cs.key_of_run(p_tenant text, p_run uuid) returns table (tenant_id text, subject text, sealed boolean, wrapped_key bytea)
language plpgsql stable security definer set search_path = cs, pg_temp
as $$
#variable_conflict use_column
begin
  if cs.require_service('api', 'preflight', 'executor', 'reconciler') = 'api' and p_tenant is null then
    raise exception 'the api names its tenant' using errcode = 'CS005';
  end if;
  return query
  select r.tenant_id, i.subject, i.sealed is not null, k.wrapped_key
    from cs.run r join cs.run_input i using (run_id) left join cs.subject_key k on k.tenant_id = r.tenant_id and k.subject = i.subject
   where r.run_id = p_run and (p_tenant is null or r.tenant_id = p_tenant);
end $$;
--> statement-breakpoint
-- Id (hex) of a data key under which subjects' keys are wrapped and which is not among the known ones (JSON array); null: all are known.
create function cs.unknown_data_key(p_known jsonb) returns text
language plpgsql stable security definer set search_path = cs, pg_temp
as $$
begin
  perform cs.require_service('api', 'preflight', 'executor', 'verifier', 'reconciler');
  return (select encode(substr(k.wrapped_key, 2, 8), 'hex') from cs.subject_key k
    where k.wrapped_key is not null and not p_known ? encode(substr(k.wrapped_key, 2, 8), 'hex') limit 1);
end $$;
--> statement-breakpoint
-- The owner's: destroys the key of a subject. Without p_apply it only says what it would do.
-- result: erased | would_erase | already_erased | open_runs | unknown. unsealed: runs that were recorded in plain text, which no key erases.
create function cs.erase_subject(p_tenant text, p_subject text, p_even_open boolean, p_apply boolean,
  out result text, out runs int, out open_runs int, out sealed_values int, out unsealed int, out erased_at text)
language plpgsql set search_path = cs, pg_temp
as $$
#variable_conflict use_column
declare
  v_key cs.subject_key;
begin
  -- create_run takes this lock too: no run of the subject can slip in between the count and the end of its key.
  select * into v_key from cs.subject_key k where k.tenant_id = p_tenant and k.subject = p_subject for update;
  with mine as (
      select i.run_id, r.state, i.sealed from cs.run_input i join cs.run r using (run_id) where i.subject = p_subject and r.tenant_id = p_tenant
      -- Runs older than the column: their subject is their request.
      union all select i.run_id, r.state, i.sealed from cs.run r join cs.run_input i using (run_id)
       where r.tenant_id = p_tenant and r.request_id = p_subject and i.subject is null),
    counted as (
      select count(*) filter (where m.sealed is not null) as runs, count(*) filter (where m.sealed is null) as unsealed,
        count(*) filter (where m.state not in ('completed', 'rejected', 'expired', 'failed')) as open_runs from mine m)
  select c.runs, c.unsealed, c.open_runs,
      c.runs + (select count(*) from mine m join cs.proposal p using (run_id) where p.sealed is not null)
        + (select count(*) from mine m join cs.evidence e using (run_id) join cs.evidence_value v using (evidence_id) where v.sealed is not null)
    into runs, unsealed, open_runs, sealed_values from counted c;
  erased_at := cs.iso(v_key.erased_at);
  result := case when v_key.subject is null then 'unknown' when v_key.erased_at is not null then 'already_erased'
    when open_runs > 0 and not p_even_open then 'open_runs' when not p_apply then 'would_erase' else 'erased' end;
  if result = 'erased' then
    update cs.subject_key k set wrapped_key = null, erased_at = cs.clock() where k.tenant_id = p_tenant and k.subject = p_subject returning cs.iso(k.erased_at) into erased_at;
    perform cs.write_audit(p_tenant, null, null, 'erase', 'erased', jsonb_build_object('subject', p_subject, 'runs', runs, 'open_runs', open_runs, 'sealed_values', sealed_values));
  end if;
end $$;
