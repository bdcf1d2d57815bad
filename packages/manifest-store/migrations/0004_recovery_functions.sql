-- Dispatch and recovery in full (protocol.md): retries, verdicts, leases, closure audits. Functions that stand here replace those of 0001.

-- An advisory lock that lives exactly as long as the session of an instance: a killed process frees it at once (protocol rule 15).
create function cs.lease_key(p_instance text) returns bigint
language sql immutable
as $$ select hashtextextended('cs.instance ' || p_instance, 0) $$;
--> statement-breakpoint
create function cs.leases_held() returns setof bigint
language sql stable set search_path = cs, pg_temp
as $$
  select (l.classid::bigint << 32) | l.objid::bigint from pg_locks l
   where l.locktype = 'advisory' and l.objsubid = 1 and l.granted and l.database = (select d.oid from pg_database d where d.datname = current_database())
$$;
--> statement-breakpoint
-- Called on a connection that does nothing else. False: the instance has ended, or another session holds its lease.
create function cs.take_lease(p_instance text, p_host text, p_pid int) returns boolean
language plpgsql security definer set search_path = cs, pg_temp
as $$
declare
  v_service text := cs.require_service('executor');
  v_now timestamptz := cs.clock();
begin
  insert into cs.executor_instance (instance_id, service, host, pid, started_at, beat_at) values (p_instance, v_service, p_host, p_pid, v_now, v_now)
  on conflict (instance_id) do nothing;
  if not exists (select from cs.executor_instance where instance_id = p_instance and service = v_service and ended_at is null) then return false; end if;
  if not pg_try_advisory_lock(cs.lease_key(p_instance)) then return false; end if;
  update cs.executor_instance set lease_at = coalesce(lease_at, v_now), lease_lost_at = null, host = p_host, pid = p_pid, beat_at = v_now where instance_id = p_instance;
  return true;
end $$;
--> statement-breakpoint
drop function cs.instance_beat(text);
--> statement-breakpoint
create function cs.instance_beat(p_instance text, p_host text, p_pid int) returns void
language plpgsql security definer set search_path = cs, pg_temp
as $$
declare v_service text := cs.require_service('preflight', 'executor', 'verifier', 'reconciler', 'api');
begin
  insert into cs.executor_instance as i (instance_id, service, host, pid, started_at, beat_at) values (p_instance, v_service, p_host, p_pid, cs.clock(), cs.clock())
  on conflict (instance_id) do update set beat_at = excluded.beat_at where i.service = v_service and i.ended_at is null;
end $$;
--> statement-breakpoint
create function cs.is_operator(p_tenant text, p_principal text) returns boolean
language sql stable set search_path = cs, pg_temp
as $$
  select exists (select from cs.principal p join cs.api_key k using (principal_id)
    where p.principal_id = p_principal and p.tenant_id = p_tenant and p.disabled_at is null and p.kind = 'person'
      and k.role = 'operator' and k.revoked_at is null and (k.expires_at is null or k.expires_at > cs.clock()))
$$;
--> statement-breakpoint
-- An instance's end (protocol rule 20): told by itself, by the supervisor that saw its process end (the owner's login), or by an operator with evidence.
-- An operator is believed only about an instance without lease and heartbeat, unless the credential that it could send with was rotated.
-- result: ended | already_ended | instance_unknown | instance_alive | role_missing
create function cs.end_instance(p_tenant text, p_principal text, p_instance text, p_evidence text, p_credential_rotated boolean, p_pause_ms double precision, out result text)
language plpgsql security definer set search_path = cs, pg_temp
as $$
declare
  v_service text := cs.caller_service();
  v_instance cs.executor_instance;
  v_by text := case when v_service is null then 'supervisor' when v_service = 'api' and p_principal is not null then 'operator' else 'self' end;
begin
  if v_service is null and session_user <> (select pg_get_userbyid(nspowner) from pg_namespace where nspname = 'cs') then
    raise exception 'login % may not do this', session_user using errcode = 'CS005';
  end if;
  if v_by = 'operator' and not cs.is_operator(p_tenant, p_principal) then result := 'role_missing'; return; end if;
  select * into v_instance from cs.executor_instance i where i.instance_id = p_instance for update;
  if not found then
    result := 'instance_unknown';
  elsif v_by = 'self' and v_instance.service <> v_service then
    raise exception 'an instance of another service' using errcode = 'CS005';
  elsif v_instance.ended_at is not null and (v_instance.credential_rotated or not coalesce(p_credential_rotated, false)) then
    result := 'already_ended';
  elsif v_by = 'operator' and not coalesce(p_credential_rotated, false)
    and (v_instance.beat_at + cs.ms(p_pause_ms) > cs.clock() or cs.lease_key(p_instance) in (select cs.leases_held())) then
    result := 'instance_alive';
  else
    -- Until its credential was rotated it could send, whatever it said about its end.
    update cs.executor_instance set ended_at = case when p_credential_rotated then cs.clock() else coalesce(ended_at, cs.clock()) end, ended_by = coalesce(ended_by, v_by), end_evidence = p_evidence,
      credential_rotated = credential_rotated or coalesce(p_credential_rotated, false) where instance_id = p_instance;
    result := 'ended';
  end if;
  if v_by = 'operator' then
    perform cs.write_audit(p_tenant, p_principal, null, 'fence_instance', result, jsonb_build_object('instance_id', p_instance, 'evidence', p_evidence, 'credential_rotated', p_credential_rotated));
  end if;
end $$;
--> statement-breakpoint
-- Positive evidence is a veto on every conclusion that there is no effect (protocol rule 14).
create function cs.evidence_of_effect(p_run uuid) returns boolean
language sql stable set search_path = cs, pg_temp
as $$
  select exists (select from cs.evidence e where e.run_id = p_run and e.kind = 'late_effect')
      or exists (select from cs.attempt a where a.run_id = p_run and a.status = 'succeeded')
$$;
--> statement-breakpoint
-- The last call deadline of an attempt that may have left: absence is anchored on it (protocol rule 17). Null: no byte ever left.
create function cs.last_deadline(p_run uuid) returns timestamptz
language sql stable set search_path = cs, pg_temp
as $$ select max(a.call_deadline) from cs.attempt a where a.run_id = p_run and a.status <> 'not_sent' $$;
--> statement-breakpoint
-- Why the same request may not be sent again; null when it may. The order is that of manifest-core's mayRetry. p_recorded: the retry is
-- recorded already, so that what the look-up showed has been judged.
create function cs.retry_refusal(p_run cs.run, p_now timestamptz, p_grounds jsonb, p_recorded boolean) returns text
language plpgsql stable set search_path = cs, pg_temp
as $$
declare
  v_sends int;
  v_first timestamptz;
  v_safe boolean;
begin
  if cs.evidence_of_effect(p_run.run_id) then return 'evidence_stands'; end if;
  if p_run.retries_refused > 0 then return 'refused_before'; end if;
  if p_run.approval_expires_at <= p_now + cs.ms((p_grounds ->> 'expiry_margin_ms')::float8) then return 'approval_expired'; end if;
  select count(*), min(a.started_at),
    coalesce(bool_and(a.status = 'uncertain' and a.response ->> 'class' = 'retry_safe' and a.closed_at + cs.ms(coalesce((a.response ->> 'afterMs')::float8, 0)) <= p_now), false)
    into v_sends, v_first, v_safe from cs.attempt a where a.run_id = p_run.run_id and a.status <> 'not_sent';
  if v_sends = 0 then
    return case when not p_recorded and p_run.not_sent_retries >= (p_grounds ->> 'not_sent_retries_max')::int then 'retries_used_up' end;
  end if;
  if v_sends >= 2 then return 'retries_used_up'; end if;
  if p_grounds ->> 'retention_ms' is null then return 'no_key'; end if;
  if v_first + cs.ms((p_grounds ->> 'retention_ms')::float8) <= p_now + cs.ms((p_grounds ->> 'reserve_ms')::float8) then return 'key_too_old'; end if;
  if p_recorded then return null; end if;
  if p_grounds ->> 'observed_at' is null or (p_grounds ->> 'observed_at')::timestamptz > p_now then return 'not_settled'; end if;
  if (p_grounds ->> 'observed_at')::timestamptz >= cs.last_deadline(p_run.run_id) + cs.ms((p_grounds ->> 'settle_ms')::float8) or v_safe then return null; end if;
  return 'not_settled';
end $$;
--> statement-breakpoint
-- The one place that changes a run (protocol rule 1). The caller holds the row lock and read p_now after it.
create or replace function cs.apply_transition(p_run cs.run, p_service text, p_on text, p_to text, p_actor text, p_set jsonb, p_refs jsonb, p_now timestamptz, p_wake timestamptz) returns cs.run
language plpgsql set search_path = cs, pg_temp
as $$
declare
  v_move cs.legal_move;
  v_set jsonb := p_set || jsonb_build_object('state', p_to);
  v_new cs.run;
  v_payload text;
  v_payload_digest text;
  v_hash text;
begin
  select * into v_move from cs.legal_move where from_state = p_run.state and trigger = p_on;
  if not found or v_move.to_state <> p_to or not p_service = any (v_move.services) then
    raise exception 'illegal move: % on % to % by %', p_run.state, p_on, p_to, p_service using errcode = 'CS001';
  end if;
  if v_move.counts is not null then
    v_set := v_set || jsonb_build_object(v_move.counts, (to_jsonb(p_run) ->> v_move.counts)::int + 1);
  end if;
  if p_to in ('rejected', 'expired', 'failed', 'needs_reconciliation') then
    if not v_set ? 'stop_reason' and (p_run.stop_reason is null or p_run.state <> p_to) then
      raise exception 'a stop needs its reason' using errcode = 'CS003';
    end if;
  elsif p_run.stop_reason is not null then
    v_set := v_set || '{"stop_reason": null}';
  end if;
  if p_to <> 'needs_reconciliation' then
    if p_run.parked_reason is not null then v_set := v_set || '{"parked_reason": null}'; end if;
    if p_run.retry_allowed then v_set := v_set || '{"retry_allowed": false}'; end if;
  end if;
  if p_run.in_flight_key is not null and p_to not in ('executing', 'needs_reconciliation') then
    v_set := v_set || '{"in_flight_key": null}';
  end if;
  if p_run.state = 'awaiting_approval' and p_to = 'collecting' then
    v_set := v_set || '{"action_revision": null, "approval_id": null, "approval_expires_at": null, "decisions_sufficient": false, "resource_key": null}';
  end if;

  v_new := jsonb_populate_record(p_run, v_set);
  v_new.revision := p_run.revision + 1;
  v_new.committed_at := p_now;
  v_new.state_since := case when p_run.state = p_to then p_run.state_since else p_now end;
  -- The run's own deadline is a wake-up too, as long as it lies ahead.
  v_new.wake_at := case when p_wake is not null and p_run.run_deadline > p_now then least(p_wake, p_run.run_deadline) else p_wake end;

  v_payload := jsonb_build_object('set', v_set, 'refs', p_refs)::text;
  v_payload_digest := cs.sha256_text(v_payload);
  v_hash := cs.sha256_text(cs.event_pre_image(p_run.run_id, v_new.revision, p_run.state, p_to, p_on, p_actor, p_now, v_payload_digest, p_run.chain_head));
  insert into cs.run_event (run_id, revision, from_state, to_state, trigger, actor, at, payload, payload_digest, previous_hash, hash)
  values (p_run.run_id, v_new.revision, p_run.state, p_to, p_on, p_actor, p_now, v_payload, v_payload_digest, p_run.chain_head, v_hash);
  v_new.chain_head := v_hash;

  update cs.run set
    state = v_new.state, state_since = v_new.state_since, committed_at = v_new.committed_at, revision = v_new.revision,
    action_revision = v_new.action_revision, read_failures = v_new.read_failures, proposal_cycles = v_new.proposal_cycles,
    verification_waits = v_new.verification_waits, look_ups = v_new.look_ups, attempts = v_new.attempts, not_sent_retries = v_new.not_sent_retries, retries_refused = v_new.retries_refused,
    evidence_round = v_new.evidence_round, evidence_complete = v_new.evidence_complete,
    decisions_sufficient = v_new.decisions_sufficient, retry_allowed = v_new.retry_allowed, approval_id = v_new.approval_id,
    approval_expires_at = v_new.approval_expires_at, wake_at = v_new.wake_at, parked_reason = v_new.parked_reason, stop_reason = v_new.stop_reason,
    resource_key = v_new.resource_key, in_flight_key = v_new.in_flight_key, chain_head = v_new.chain_head
  where run_id = p_run.run_id and revision = p_run.revision and state = p_run.state;
  if not found then raise exception 'the row lock was not held' using errcode = 'CS003'; end if;
  return v_new;
end $$;
--> statement-breakpoint
-- Request accepted. Same tenant, request id and body: the same run; another body: conflict.
-- result: created | existing | idempotency_conflict | supersedes_invalid | principal_unknown
create or replace function cs.create_run(p_tenant text, p_principal text, p_new jsonb, out result text, out run_id uuid, out hot cs.hot_row)
language plpgsql security definer set search_path = cs, pg_temp
as $$
#variable_conflict use_column
declare
  v_service text := cs.require_service('api');
  v_supersedes uuid := (p_new ->> 'supersedes')::uuid;
  v_before cs.run;
  v_existing cs.run;
  v_new cs.run;
  v_digest text := p_new ->> 'body_digest';
  v_now timestamptz;
  v_payload text;
  v_payload_digest text;
  v_refs jsonb;
begin
  if not exists (select from cs.principal where principal_id = p_principal and tenant_id = p_tenant and disabled_at is null) then
    result := 'principal_unknown'; return;
  end if;
  select r.* into v_existing from cs.run r
   where r.tenant_id = p_tenant and r.request_id = p_new ->> 'request_id' and r.supersedes is not distinct from v_supersedes;
  if not found then
    if v_supersedes is not null then
      select r.* into v_before from cs.run r where r.run_id = v_supersedes and r.tenant_id = p_tenant for update;
      if not found or v_before.request_id <> p_new ->> 'request_id' or v_before.state not in ('rejected', 'expired', 'failed')
         -- An attempt that may have left: only after the closure look at + settle found nothing (protocol rule 25).
         or exists (select from cs.attempt a where a.run_id = v_supersedes and (a.status = 'started' or a.status <> 'not_sent'
                     and not exists (select from cs.audit_event e where e.run_id = v_supersedes and e.service = 'reconciler' and e.what = 'closure_audit' and e.code = 'looked'
                       and (e.detail ->> 'observed_at')::timestamptz between a.call_deadline + cs.ms(greatest(0, (p_new ->> 'settle_ms')::float8)) and e.at))) then
        result := 'supersedes_invalid'; return;
      end if;
    end if;
    v_now := cs.clock();
    v_refs := jsonb_build_object('body_digest', v_digest, 'input_digest', cs.sha256_text(p_new ->> 'input_canonical'));
    if jsonb_typeof(p_new -> 'proposal') = 'object' then
      v_refs := v_refs || jsonb_build_object('proposal_id', p_new -> 'proposal' ->> 'proposal_id', 'proposal_digest', p_new -> 'proposal' ->> 'body_digest');
    end if;
    v_new := jsonb_populate_record(null::cs.run, p_new - 'supersedes');
    v_new.tenant_id := p_tenant;
    v_new.supersedes := v_supersedes;
    v_new.generation := coalesce(v_before.generation, 0) + 1;
    v_new.requested_by := p_principal;
    v_new.run_deadline := v_now + cs.ms((p_new ->> 'run_life_ms')::float8);
    v_payload := jsonb_build_object('set', jsonb_build_object('state', 'queued', 'tenant_id', p_tenant, 'request_id', v_new.request_id, 'generation', v_new.generation,
        'supersedes', v_supersedes, 'workflow', v_new.workflow, 'workflow_version', v_new.workflow_version, 'connector', v_new.connector, 'connector_version', v_new.connector_version,
        'proposer', v_new.proposer, 'requested_by', p_principal, 'run_deadline', v_new.run_deadline), 'refs', v_refs)::text;
    v_payload_digest := cs.sha256_text(v_payload);
    v_new.chain_head := cs.sha256_text(cs.event_pre_image(v_new.run_id, 1, null, 'queued', 'request_accepted', 'principal/' || p_principal, v_now, v_payload_digest, null));
    insert into cs.run (run_id, tenant_id, request_id, generation, supersedes, workflow, workflow_version, connector, connector_version, proposer,
        requested_by, created_at, state, state_since, committed_at, revision, run_deadline, wake_at, chain_head, trace_context)
    values (v_new.run_id, p_tenant, v_new.request_id, v_new.generation, v_supersedes, v_new.workflow, v_new.workflow_version, v_new.connector,
        v_new.connector_version, v_new.proposer, p_principal, v_now, 'queued', v_now, v_now, 1, v_new.run_deadline,
        v_now + cs.ms((p_new ->> 'wake_in_ms')::float8), v_new.chain_head, v_new.trace_context)
    on conflict on constraint run_request_generation do nothing
    returning * into v_new;
    if found then
      insert into cs.run_input (run_id, input_canonical, input, body_digest, approval_life_ms, allowed_operations, context)
      values (v_new.run_id, p_new ->> 'input_canonical', (p_new ->> 'input_canonical')::jsonb, v_digest, (p_new ->> 'approval_life_ms')::int,
        array(select jsonb_array_elements_text(p_new -> 'allowed_operations')), p_new -> 'context');
      if jsonb_typeof(p_new -> 'proposal') = 'object' then perform cs.insert_proposal(v_new.run_id, 1, p_new -> 'proposal'); end if;
      insert into cs.run_event (run_id, revision, from_state, to_state, trigger, actor, at, payload, payload_digest, previous_hash, hash)
      values (v_new.run_id, 1, null, 'queued', 'request_accepted', 'principal/' || p_principal, v_now, v_payload, v_payload_digest, null, v_new.chain_head);
      result := 'created'; run_id := v_new.run_id; hot := cs.hot(v_new);
      return;
    end if;
    -- Somebody else created this generation meanwhile.
    select r.* into v_existing from cs.run r
     where r.tenant_id = p_tenant and r.request_id = p_new ->> 'request_id' and r.supersedes is not distinct from v_supersedes;
    if not found then result := 'idempotency_conflict'; return; end if;
  end if;
  run_id := v_existing.run_id;
  hot := cs.hot(v_existing);
  result := case when exists (select from cs.run_input i where i.run_id = v_existing.run_id and i.body_digest = v_digest) then 'existing' else 'idempotency_conflict' end;
  if result = 'idempotency_conflict' then
    perform cs.write_audit(p_tenant, p_principal, v_existing.run_id, 'create_run', 'idempotency_conflict', jsonb_build_object('body_digest', v_digest));
  end if;
end $$;
--> statement-breakpoint
-- One move of a run by a worker, or by the api for its principal. No row in the result: the swap was lost.
create or replace function cs.commit_stage(p_tenant text, p_principal text, p_instance text, p_run uuid, p_expected int, p_from text, p_on text, p_to text, p_facts jsonb, p_wake_in_ms double precision)
returns setof cs.hot_row
language plpgsql security definer set search_path = cs, pg_temp
as $$
declare
  v_service text := cs.require_service('api', 'preflight', 'executor', 'verifier', 'reconciler');
  v_run cs.run;
  v_now timestamptz;
  v_wake timestamptz;
  v_set jsonb := '{}';
  v_refs jsonb := '{}';
  v_item jsonb;
  v_bound jsonb;
  v_facts text[];
  v_move cs.legal_move;
  v_name text;
begin
  select * into v_run from cs.run r where r.run_id = p_run and r.revision = p_expected and r.state = p_from
     and (p_tenant is null or r.tenant_id = p_tenant) for update;
  if not found then return; end if;
  v_now := cs.clock(); -- after the lock, in a statement of its own (protocol rule 6)

  if v_service = 'api' and not exists (select from cs.principal where principal_id = p_principal and tenant_id = v_run.tenant_id and tenant_id = p_tenant and disabled_at is null) then
    raise exception 'the api acts for a principal of the tenant' using errcode = 'CS005';
  end if;
  if p_on in ('request_accepted', 'dispatched', 'retry_dispatched', 'decision_recorded', 'approval_rejected', 'person_unsure', 'person_landed', 'person_absent', 'person_settled_with_difference') then
    raise exception '% has a function of its own', p_on using errcode = 'CS001';
  end if;
  select * into v_move from cs.legal_move where from_state = p_from and trigger = p_on;
  v_facts := v_move.facts;
  for v_name in select jsonb_object_keys(p_facts) loop
    if v_facts is null or not v_name = any (v_facts) then raise exception '% may not write %', p_on, v_name using errcode = 'CS002'; end if;
  end loop;
  foreach v_name in array coalesce(v_move.requires, '{}') loop
    if not p_facts ? v_name then raise exception '% must write %', p_on, v_name using errcode = 'CS002'; end if;
  end loop;
  if v_move.attempt_status is distinct from p_facts -> 'attempt_outcome' ->> 'status' and p_from = 'executing'
     or v_move.observation_kind is not null and v_move.observation_kind is distinct from p_facts -> 'observation' ->> 'kind' then
    raise exception '% carries another outcome than its own', p_on using errcode = 'CS002';
  end if;
  -- Rule 12: a clear rejection speaks for the run only when every other attempt sent nothing.
  if p_on = 'effect_rejected' and exists (select from cs.attempt a where a.run_id = p_run and a.status not in ('started', 'not_sent')) then
    raise exception 'an earlier attempt may have had the effect' using errcode = 'CS003';
  end if;
  -- Rule 14: a veto is checked inside the transaction that would close the run without an effect.
  if p_on = 'never_sent' and (exists (select from cs.attempt a where a.run_id = p_run and a.status <> 'not_sent') or cs.evidence_of_effect(p_run)) then
    raise exception 'an attempt may have been sent' using errcode = 'CS003';
  end if;
  -- Rules 8, 17 to 19: what time or an answer may have changed since the worker decided is a lost swap; the rest it must not ask for.
  if p_on in ('retry_recorded', 'resend_recorded') then
    v_name := cs.retry_refusal(v_run, v_now, p_facts -> 'retry_grounds', false);
    if v_name in ('evidence_stands', 'approval_expired', 'key_too_old') then return; end if;
    if v_name is not null or (p_on = 'resend_recorded') <> (cs.last_deadline(p_run) is null) then
      raise exception 'the retry is refused: %', coalesce(v_name, 'of another kind') using errcode = 'CS004';
    end if;
    v_set := v_set || '{"retry_allowed": true}';
  end if;
  -- What a clock or a lease taken again overtook is a lost swap as well.
  if p_on = 'attempt_overdue' and exists (select from cs.attempt a where a.attempt_id = p_facts -> 'attempt_outcome' ->> 'attempt_id' and a.run_id = p_run
       and a.status = 'started' and v_now < a.call_deadline
       -- Early only for an instance whose lease is gone: presence may be concluded early, absence never (rule 15).
       and not exists (select from cs.executor_instance i where i.instance_id = a.instance_id and (i.ended_at is not null or i.lease_lost_at is not null))) then
    return;
  end if;
  if p_on = 'action_fixed' and ((p_facts -> 'approval_request' ->> 'canonical')::jsonb ->> 'expires_at')::timestamptz <= v_now then return; end if;
  if p_on = 'retry_refused' then
    if not v_run.retry_allowed then raise exception 'no retry is recorded' using errcode = 'CS003'; end if;
    v_set := v_set || '{"retry_allowed": false}';
  end if;
  if (p_on = 'approval_expired' and v_now < v_run.approval_expires_at) or (p_on = 'deadline_passed' and v_now < v_run.run_deadline) then
    raise exception '% before its time', p_on using errcode = 'CS004';
  end if;

  if p_facts ? 'evidence' then
    v_set := v_set || jsonb_build_object('evidence_round', v_run.evidence_round + 1);
    insert into cs.evidence (evidence_id, run_id, revision, round, kind, source_ref, observed_at, version_marker, trusted, facts_digest)
    select e ->> 'evidence_id', p_run, p_expected + 1, v_run.evidence_round + 1, e ->> 'kind', e ->> 'source_ref', (e ->> 'observed_at')::timestamptz,
           e ->> 'version_marker', (e ->> 'trusted')::boolean, e ->> 'facts_digest'
      from jsonb_array_elements(p_facts -> 'evidence') e;
    insert into cs.evidence_value (evidence_id, salt, facts_canonical)
    select e ->> 'evidence_id', e ->> 'salt', e ->> 'facts_canonical' from jsonb_array_elements(p_facts -> 'evidence') e;
    select v_refs || jsonb_build_object('evidence', coalesce(jsonb_agg(jsonb_build_object(
        'evidence_id', e ->> 'evidence_id', 'source_ref', e ->> 'source_ref', 'version_marker', e ->> 'version_marker', 'facts_digest', e ->> 'facts_digest')), '[]'))
      into v_refs from jsonb_array_elements(p_facts -> 'evidence') e;
  end if;
  if p_facts ? 'evidence_complete' then v_set := v_set || jsonb_build_object('evidence_complete', p_facts -> 'evidence_complete'); end if;
  if p_on = 'evidence_changed' then v_set := v_set || '{"evidence_complete": false}'; end if;
  if p_on = 'checks_passed' then v_set := v_set || '{"read_failures": 0}'; end if; -- each station has its own read attempts
  if p_on = 'decision_voided' then v_set := v_set || '{"decisions_sufficient": false}'; end if;

  if p_facts ? 'proposal' then
    perform cs.insert_proposal(p_run, p_expected + 1, p_facts -> 'proposal');
    v_refs := v_refs || jsonb_build_object('proposal_id', p_facts -> 'proposal' ->> 'proposal_id', 'proposal_digest', p_facts -> 'proposal' ->> 'body_digest');
  end if;
  if p_facts ? 'proposal_id' then v_refs := v_refs || jsonb_build_object('proposal_id', p_facts ->> 'proposal_id'); end if;
  if p_facts ? 'proposal_refusal' then
    v_item := p_facts -> 'proposal_refusal';
    insert into cs.proposal_refusal (proposal_id, run_id, revision, code, message)
    select p.proposal_id, p_run, p_expected + 1, v_item ->> 'code', v_item ->> 'message' from cs.proposal p where p.proposal_id = v_item ->> 'proposal_id' and p.run_id = p_run;
    if not found then raise exception 'the refused proposal is not of this run' using errcode = 'CS003'; end if;
    v_refs := v_refs || jsonb_build_object('proposal_refusal', v_item);
  end if;
  if p_facts ? 'read_failure' then v_refs := v_refs || jsonb_build_object('read_failure', p_facts -> 'read_failure'); end if;

  if p_on = 'action_fixed' then
    v_item := p_facts -> 'approval_request';
    v_bound := (v_item ->> 'canonical')::jsonb;
    if p_facts -> 'action' is null or v_bound is null
       or v_bound ->> 'run_id' is distinct from 'run_' || p_run or (v_bound ->> 'action_revision')::int is distinct from p_expected + 1
       or v_bound ->> 'action_digest' is distinct from p_facts -> 'action' ->> 'digest' or v_bound ->> 'approval_id' is distinct from v_item ->> 'approval_id'
       or v_bound ->> 'connector' is distinct from v_run.connector or v_bound ->> 'connector_version' is distinct from v_run.connector_version
       or v_bound ->> 'tenant_id' is distinct from v_run.tenant_id
       or (v_bound ->> 'expires_at')::timestamptz > v_now + (select cs.ms(i.approval_life_ms) from cs.run_input i where i.run_id = p_run)
       or v_bound ->> 'display_digest' is distinct from cs.tagged_digest('cs.display.v1', v_item ->> 'display_canonical') then
      raise exception 'the approval request does not bind this action' using errcode = 'CS003';
    end if;
    insert into cs.action (run_id, action_revision, action_canonical, action, action_digest)
    values (p_run, p_expected + 1, p_facts -> 'action' ->> 'canonical', (p_facts -> 'action' ->> 'canonical')::jsonb, p_facts -> 'action' ->> 'digest');
    insert into cs.approval_request (approval_id, run_id, action_revision, action_digest, canonical, approval_digest, display, policy, policy_version, policy_rule, approvals_required, expires_at, nonce)
    values (v_item ->> 'approval_id', p_run, p_expected + 1, v_bound ->> 'action_digest', v_item ->> 'canonical', v_item ->> 'approval_digest', (v_item ->> 'display_canonical')::jsonb,
      v_bound ->> 'policy', (v_bound ->> 'policy_version')::int, v_bound ->> 'policy_rule', (v_bound ->> 'approvals_required')::int, (v_bound ->> 'expires_at')::timestamptz, v_bound ->> 'nonce');
    v_set := v_set || jsonb_build_object('action_revision', p_expected + 1, 'approval_id', v_item ->> 'approval_id', 'approval_expires_at', v_bound ->> 'expires_at',
      'resource_key', v_item ->> 'resource_key', 'decisions_sufficient', false);
    v_refs := v_refs || jsonb_build_object('action_digest', v_bound ->> 'action_digest', 'approval_digest', v_item ->> 'approval_digest');
    v_wake := (v_bound ->> 'expires_at')::timestamptz;
  elsif p_to = 'awaiting_approval' then
    v_wake := v_run.approval_expires_at;
  else
    v_wake := v_now + cs.ms(p_wake_in_ms);
  end if;

  if p_facts ? 'attempt_outcome' then
    v_item := p_facts -> 'attempt_outcome';
    update cs.attempt a set status = v_item ->> 'status', provider_ref = v_item ->> 'provider_ref', response = v_item -> 'response', closed_at = v_now
     where a.attempt_id = v_item ->> 'attempt_id' and a.run_id = p_run and a.status = 'started';
    if not found then raise exception 'no open attempt % that this may close', v_item ->> 'attempt_id' using errcode = 'CS003'; end if;
    v_refs := v_refs || jsonb_build_object('attempt', v_item);
  end if;
  if p_facts ? 'observation' then
    v_item := p_facts -> 'observation';
    insert into cs.observation (run_id, revision, at, kind, provider_ref, body) values (p_run, p_expected + 1, v_now, v_item ->> 'kind', v_item ->> 'provider_ref', v_item -> 'body');
    v_refs := v_refs || jsonb_build_object('observation', v_item);
  end if;
  if p_facts ? 'retry_grounds' then v_refs := v_refs || jsonb_build_object('retry_grounds', p_facts -> 'retry_grounds'); end if;
  if p_facts ? 'parked_reason' then v_set := v_set || jsonb_build_object('parked_reason', p_facts -> 'parked_reason', 'retry_allowed', false); end if;
  if p_facts ? 'stop_reason' then v_set := v_set || jsonb_build_object('stop_reason', p_facts -> 'stop_reason'); end if;

  v_run := cs.apply_transition(v_run, v_service, p_on, p_to,
    case when v_service = 'api' then 'principal/' || p_principal else v_service || '/' || p_instance end, v_set, v_refs, v_now, v_wake);
  return next cs.hot(v_run);
end $$;
--> statement-breakpoint
-- Dispatch (protocol rule 5c, 5d): every check under the row lock against the clock read after it; attempt and state in one commit.
-- With p_attempt -> 'retry' it is the retry that was recorded (rule 19): the same checks, the same key, the same bytes.
-- result: committed | stale | a refusal code
create or replace function cs.commit_dispatch(p_instance text, p_run uuid, p_expected int, p_attempt jsonb, p_request_bytes bytea,
  p_call_deadline_ms double precision, p_expiry_margin_ms double precision, p_sweep_grace_ms double precision, p_count_dev_keys boolean,
  out result text, out detail text, out attempt_n int, out started_at text, out budget_ms double precision, out hot cs.hot_row)
language plpgsql security definer set search_path = cs, pg_temp
as $$
declare
  v_service text := cs.require_service('executor');
  v_run cs.run;
  v_now timestamptz;
  v_request cs.approval_request;
  v_action cs.action;
  v_resource text;
  v_deadline timestamptz;
  v_approvals int;
  v_retry boolean := jsonb_typeof(p_attempt -> 'retry') = 'object';
  v_refusal text;
begin
  -- A hold that returned holds: set_hold takes this lock alone and so waits for every dispatch that passed its check.
  perform pg_advisory_xact_lock_shared(hashtextextended('cs.hold', 0));
  -- One dispatch per external resource at a time. Taken before the row lock, so that the clock below is read after every wait.
  select resource_key into v_resource from cs.run where run_id = p_run;
  if v_resource is not null then perform pg_advisory_xact_lock(hashtextextended('cs.resource ' || v_resource, 0)); end if;
  select * into v_run from cs.run where run_id = p_run and revision = p_expected and state = case when v_retry then 'needs_reconciliation' else 'awaiting_approval' end for update;
  if not found then result := 'stale'; return; end if;
  v_now := cs.clock();

  select * into v_request from cs.approval_request a where a.approval_id = v_run.approval_id and a.run_id = p_run;
  select * into v_action from cs.action a where a.run_id = p_run and a.action_revision = v_run.action_revision;
  select count(distinct d.principal_id) into v_approvals
    from cs.decision d join cs.principal p using (principal_id)
   where d.approval_id = v_request.approval_id and d.decision = 'approve' and d.action_digest = v_request.action_digest
     and d.action_revision = v_request.action_revision and d.approval_digest = v_request.approval_digest
     and p.tenant_id = v_run.tenant_id and p.disabled_at is null and p.kind = 'person' and p.principal_id <> v_run.requested_by
     and not exists (select from cs.proposal o where o.run_id = p_run and o.author = p.principal_id)
     and (d.method <> 'dev_key' or p_count_dev_keys and exists (select from cs.api_key k where k.principal_id = d.principal_id and k.role = 'approver'
            and k.revoked_at is null and (k.expires_at is null or k.expires_at > v_now)));

  if v_retry then
    v_refusal := case when not v_run.retry_allowed then 'no retry is recorded'
      else cs.retry_refusal(v_run, v_now, (p_attempt -> 'retry') || jsonb_build_object('expiry_margin_ms', 0), true) end;
    if v_refusal is null and exists (select from cs.attempt a where a.run_id = p_run and a.request_digest is distinct from p_attempt ->> 'request_digest') then
      v_refusal := 'the bytes are not those of the first attempt';
    end if;
    if v_refusal is not null and v_refusal <> 'approval_expired' then result := 'retry_invalid'; detail := v_refusal; return; end if;
  end if;
  if v_request.action_revision is distinct from v_run.action_revision
     or cs.tagged_digest('cs.approval.v1', v_request.canonical) is distinct from v_request.approval_digest
     or v_request.canonical::jsonb ->> 'action_digest' is distinct from v_request.action_digest
     or v_request.canonical::jsonb ->> 'run_id' is distinct from 'run_' || p_run
     or (v_request.canonical::jsonb ->> 'expires_at')::timestamptz is distinct from v_request.expires_at
     or (v_request.canonical::jsonb ->> 'approvals_required')::int is distinct from v_request.approvals_required then
    result := 'approval_invalid'; detail := 'the approval request is not what its digest says';
  elsif cs.tagged_digest('cs.action.v1', v_action.action_canonical) is distinct from v_request.action_digest
     or p_attempt ->> 'action_digest' is distinct from v_request.action_digest then
    result := 'digest_mismatch'; detail := 'the stored action is not the approved one';
  elsif exists (select from cs.decision d where d.approval_id = v_request.approval_id and d.decision = 'reject') then
    result := 'approval_invalid'; detail := 'an approver rejected';
  elsif v_approvals < v_request.approvals_required then
    result := 'decisions_insufficient'; detail := format('%s of %s approvals are eligible now', v_approvals, v_request.approvals_required);
  elsif not exists (select from cs.run_input i where i.run_id = p_run and v_action.action ->> 'operation' = any (i.allowed_operations))
     or v_action.action ->> 'operation' is distinct from p_attempt ->> 'operation' then
    result := 'operation_unavailable'; detail := 'the operation is not among those allowed for the run';
  elsif v_now >= v_request.expires_at then
    result := 'approval_expired';
  elsif v_now >= v_run.run_deadline then
    result := 'deadline_exceeded';
  elsif v_now + cs.ms(p_expiry_margin_ms) >= v_request.expires_at then
    result := 'expires_too_soon';
  elsif exists (select from cs.run r where r.tenant_id = v_run.tenant_id and r.request_id = v_run.request_id and r.run_id <> p_run and r.state not in ('rejected', 'expired', 'failed')) then
    result := 'other_generation_open'; detail := 'another generation of this request may have had its effect';
  elsif exists (select from cs.hold h where h.scope in ('*', v_run.connector)) then
    result := 'on_hold';
  elsif exists (select from cs.run r where r.resource_key = v_run.resource_key and r.run_id <> p_run and r.state in ('executing', 'needs_reconciliation')) then
    result := 'resource_busy'; detail := 'another run has an effect in doubt on the same resource';
  end if;
  if result is not null then return; end if;

  -- Rule 11: the key is a function of what is sent; nobody may bring another.
  if p_attempt ->> 'idempotency_key' is distinct from 'cs-' || substr(cs.tagged_digest('cs.idempotency.v1', 'run_' || p_run || e'\n' || v_run.action_revision || e'\n' || v_request.action_digest), 8) then
    raise exception 'the idempotency key is not the one of this action' using errcode = 'CS003';
  end if;
  if p_attempt ->> 'request_digest' is distinct from 'sha256:' || encode(sha256(convert_to('cs.request-bytes.v1', 'UTF8') || '\x00'::bytea || p_request_bytes), 'hex') then
    raise exception 'the request digest is not that of the bytes' using errcode = 'CS003';
  end if;
  v_deadline := least(v_now + cs.ms(p_call_deadline_ms), v_request.expires_at);
  attempt_n := v_run.attempts + 1;
  insert into cs.attempt (attempt_id, run_id, n, revision, action_digest, request_bytes, request_digest, idempotency_key, instance_id, started_at, call_deadline)
  values (p_attempt ->> 'attempt_id', p_run, attempt_n, p_expected + 1, v_request.action_digest, p_request_bytes, p_attempt ->> 'request_digest',
    p_attempt ->> 'idempotency_key', p_instance, v_now, v_deadline);
  v_run := cs.apply_transition(v_run, v_service, case when v_retry then 'retry_dispatched' else 'dispatched' end, 'executing', v_service || '/' || p_instance, jsonb_build_object('in_flight_key', v_run.resource_key),
    jsonb_build_object('attempt_id', p_attempt ->> 'attempt_id', 'action_digest', v_request.action_digest, 'request_digest', p_attempt ->> 'request_digest', 'idempotency_key', p_attempt ->> 'idempotency_key', 'call_deadline', cs.iso(v_deadline)),
    v_now, v_deadline + cs.ms(p_sweep_grace_ms));
  result := 'committed';
  started_at := cs.iso(v_now);
  budget_ms := floor(extract(epoch from v_deadline - v_now) * 1000);
  hot := cs.hot(v_run);
end $$;
--> statement-breakpoint
-- Keeps an outcome whose swap was lost (protocol rule 14). A run that was closed without it is reopened and parked.
-- result: appended | reopened | known
create or replace function cs.append_evidence(p_instance text, p_run uuid, p_evidence jsonb, p_applied boolean, p_reopen_reason jsonb, out result text, out hot cs.hot_row)
language plpgsql security definer set search_path = cs, pg_temp
as $$
declare
  v_service text := cs.require_service('executor', 'reconciler');
  v_run cs.run;
  v_now timestamptz;
  -- Positive evidence is a kind of its own: nothing that was kept before may swallow it.
  v_kind text := case when p_applied then 'late_effect' else 'late_outcome' end;
begin
  select * into v_run from cs.run where run_id = p_run for update;
  if not found or not exists (select from cs.attempt a where a.run_id = p_run and a.attempt_id = p_evidence ->> 'attempt_id') then
    raise exception 'evidence needs the attempt it speaks about' using errcode = 'CS003';
  end if;
  v_now := cs.clock();
  -- The outcome may be recorded already: by our own commit whose answer was lost.
  if exists (select from cs.attempt a where a.attempt_id = p_evidence ->> 'attempt_id'
              and case when p_applied then a.status = 'succeeded' else a.status in ('succeeded', 'rejected', 'not_sent') end) then
    result := 'known'; hot := cs.hot(v_run); return;
  end if;
  -- Round 0: it belongs to an attempt, never to the facts that an action is checked against.
  insert into cs.evidence (evidence_id, run_id, revision, round, kind, source_ref, observed_at, trusted, facts_digest, attempt_id)
  values (p_evidence ->> 'evidence_id', p_run, v_run.revision, 0, v_kind, p_evidence ->> 'source_ref', v_now, true, p_evidence ->> 'facts_digest', p_evidence ->> 'attempt_id')
  on conflict (attempt_id, kind) where attempt_id is not null do nothing;
  if not found then result := 'known'; hot := cs.hot(v_run); return; end if;
  insert into cs.evidence_value (evidence_id, salt, facts_canonical) values (p_evidence ->> 'evidence_id', p_evidence ->> 'salt', p_evidence ->> 'facts_canonical');
  result := 'appended';
  if p_applied and (v_run.state = 'failed'
       -- Not when the outcome records this very effect (rule 25).
       and not (v_run.stop_reason ->> 'code' in ('settled_with_difference', 'settlement_failed')
         and exists (select from cs.observation o where o.run_id = p_run and o.provider_ref = p_evidence ->> 'provider_ref'))
       -- Parked for want of an effect: now there is one. Whoever parked it for the effect that is there said more.
       or v_run.parked_reason in ('effect_not_found', 'verification_not_found', 'external_result_uncertain', 'deadline_exceeded')) then
    v_run := cs.apply_transition(v_run, v_service, 'late_effect_found', 'needs_reconciliation', v_service || '/' || p_instance,
      jsonb_build_object('stop_reason', p_reopen_reason, 'parked_reason', p_reopen_reason ->> 'code'), jsonb_build_object('evidence_id', p_evidence ->> 'evidence_id'), v_now, null);
    result := 'reopened';
  end if;
  hot := cs.hot(v_run);
end $$;
--> statement-breakpoint
drop function cs.claim_due(int, double precision, double precision, double precision);
--> statement-breakpoint
-- The sweeper's claim: due runs, skipping those that somebody works on, with wake_at moved on so that the next sweep leaves them alone.
-- The pause doubles with the time since the last commit, between the two bounds. Attempts of an instance without its lease are due early (rule 15).
-- due: JSON array of the claimed runs. skipped: due, and locked by somebody at this moment.
create function cs.claim_due(p_limit int, p_rehint_min_ms double precision, p_rehint_max_ms double precision, p_sweep_grace_ms double precision,
  p_lease_loss_ms double precision, out skipped int, out due text)
language plpgsql security definer set search_path = cs, pg_temp
as $$
declare
  v_service text := cs.require_service('reconciler');
  v_now timestamptz := cs.clock();
  v_due uuid[];
begin
  v_due := array(select r.run_id from cs.run r where r.wake_at <= v_now order by r.wake_at limit p_limit);
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
      from claimed where r.run_id = claimed.run_id returning r.*)
  select (select count(distinct d) from unnest(v_due) d) - count(*),
    coalesce(json_agg(json_build_object('run_id', m.run_id, 'row', cs.hot(m.*::cs.run),
      'overdue', case when m.state = 'executing' then case when a.call_deadline + cs.ms(p_sweep_grace_ms) <= v_now or i.ended_at is not null
             or i.lease_lost_at + cs.ms(p_lease_loss_ms) <= v_now then 'attempt' end
         when m.run_deadline <= v_now and m.state in ('queued', 'preflight', 'collecting', 'proposed', 'awaiting_approval', 'verifying', 'needs_reconciliation') then 'run'
         when m.state = 'awaiting_approval' and m.approval_expires_at <= v_now then 'approval' end,
      'attempt_id', a.attempt_id)), '[]')::text
    into skipped, due
  from moved m left join cs.attempt a on m.state = 'executing' and a.run_id = m.run_id and a.status = 'started'
    left join cs.executor_instance i on i.instance_id = a.instance_id;
end $$;
--> statement-breakpoint
-- Moves wake_at of an unchanged revision; no event. Null: nothing is left to look at, for a closed run.
create or replace function cs.defer(p_run uuid, p_expected int, p_wake_in_ms double precision) returns boolean
language plpgsql security definer set search_path = cs, pg_temp
as $$
declare
  v_service text := cs.require_service('preflight', 'executor', 'verifier', 'reconciler');
  -- Each service waits only with what it works on, and never longer than an hour: nobody may put a run to sleep for good.
  v_states text[] := case v_service when 'preflight' then '{queued,preflight,collecting,proposed}' when 'executor' then '{awaiting_approval,needs_reconciliation}'
    when 'verifier' then '{verifying}' else '{needs_reconciliation,failed,completed}' end;
  v_now timestamptz := cs.clock();
begin
  update cs.run set wake_at = case
      when state in ('failed', 'completed') then v_now + cs.ms(p_wake_in_ms)
      else least(v_now + cs.ms(least(p_wake_in_ms, 3600000)), case when state = 'awaiting_approval' then approval_expires_at end,
        case when run_deadline > v_now then run_deadline end) end
   where run_id = p_run and revision = p_expected and state = any (v_states) and wake_at is not null;
  return found;
end $$;
--> statement-breakpoint
-- A person's verdict on a run in doubt (protocol rule 20), on the revision that the person saw.
-- result: recorded | run_not_found | role_missing | not_in_doubt | stale_revision | observed_in_future | not_settled | evidence_stands |
--   instance_not_fenced | second_person_needed
create function cs.commit_verdict(p_tenant text, p_principal text, p_run uuid, p_expected int, p_verdict jsonb, p_wake_in_ms double precision,
  out result text, out detail text, out hot cs.hot_row)
language plpgsql security definer set search_path = cs, pg_temp
as $$
declare
  v_service text := cs.require_service('api');
  v_run cs.run;
  v_now timestamptz;
  v_kind text := p_verdict ->> 'verdict';
  v_observed timestamptz := (p_verdict ->> 'observed_at')::timestamptz;
  v_settled timestamptz;
  v_on text;
  v_set jsonb := '{}';
begin
  select * into v_run from cs.run r where r.run_id = p_run and r.tenant_id = p_tenant for update;
  if not found then result := 'run_not_found'; return; end if;
  v_now := cs.clock();
  if not cs.is_operator(p_tenant, p_principal) then
    result := 'role_missing';
  elsif v_run.state <> 'needs_reconciliation' then
    result := 'not_in_doubt'; detail := v_run.state;
  elsif v_run.revision <> p_expected then
    result := 'stale_revision'; detail := v_run.revision::text;
  elsif v_observed > v_now then
    result := 'observed_in_future'; detail := cs.iso(v_now);
  elsif v_kind = 'did_not_land' then
    v_settled := cs.last_deadline(p_run) + cs.ms((p_verdict ->> 'settle_ms')::float8);
    if cs.evidence_of_effect(p_run) then
      result := 'evidence_stands';
    elsif v_observed is null or v_observed < v_settled then
      result := 'not_settled'; detail := cs.iso(v_settled);
    elsif not exists (select from cs.verdict_support s join cs.principal p using (principal_id) where s.run_id = p_run and s.kind = 'waive_fencing'
        and s.attempts = v_run.attempts and s.principal_id <> p_principal and p.disabled_at is null) then
      select string_agg(distinct a.instance_id, ', ') filter (where not coalesce(i.credential_rotated or i.ended_at is not null
            and i.beat_at + cs.ms((p_verdict ->> 'pause_ms')::float8) <= v_now and cs.lease_key(i.instance_id) not in (select cs.leases_held()), false)),
          max(i.ended_at) + cs.ms((p_verdict ->> 'settle_ms')::float8)
        into detail, v_settled
        from cs.attempt a left join cs.executor_instance i using (instance_id) where a.run_id = p_run and a.status <> 'not_sent';
      if detail is not null then
        result := 'instance_not_fenced';
      -- A process that stopped for longer than Z may have written right before its end: only a look from then on + settle would show it.
      elsif v_observed < v_settled then
        result := 'not_settled'; detail := cs.iso(v_settled);
      end if;
    end if;
  elsif v_kind = 'landed_differently'
    and (select a.approvals_required from cs.approval_request a where a.approval_id = v_run.approval_id) >= 2
    and not exists (select from cs.verdict_support s join cs.principal p using (principal_id) where s.run_id = p_run and s.kind = 'confirm_difference'
      and s.attempts = v_run.attempts and s.subject_digest = p_verdict ->> 'effect_digest' and s.principal_id <> p_principal and p.disabled_at is null) then
    result := 'second_person_needed'; detail := p_verdict ->> 'effect_digest';
  end if;
  if result is not null then
    perform cs.write_audit(p_tenant, p_principal, p_run, 'verdict', result, jsonb_build_object('verdict', v_kind, 'revision', p_expected, 'detail', detail));
    hot := cs.hot(v_run);
    return;
  end if;

  v_on := case v_kind when 'landed' then 'person_landed' when 'did_not_land' then 'person_absent' when 'landed_differently' then 'person_settled_with_difference'
    when 'still_unknown' then 'person_unsure' when 'look_again' then 'person_unsure' end;
  insert into cs.observation (run_id, revision, at, kind, provider_ref, body) values (p_run, p_expected + 1, v_now, 'person', p_verdict ->> 'provider_ref',
    jsonb_build_object('verdict', v_kind, 'evidence', p_verdict -> 'evidence', 'observed_at', cs.iso(v_observed), 'effect', p_verdict -> 'effect'));
  -- A person opens the verifier's waits again: each such circle is a person's doing, so it needs no counter.
  v_set := case v_kind when 'landed' then '{"verification_waits": 0}'::jsonb
    when 'still_unknown' then jsonb_build_object('parked_reason', coalesce(v_run.parked_reason, 'external_result_uncertain'), 'retry_allowed', false)
    when 'look_again' then '{"parked_reason": null}'::jsonb
    else jsonb_build_object('stop_reason', p_verdict -> 'stop_reason') end;
  v_run := cs.apply_transition(v_run, v_service, v_on, case v_on when 'person_landed' then 'verifying' when 'person_unsure' then 'needs_reconciliation' else 'failed' end,
    'principal/' || p_principal, v_set, jsonb_build_object('verdict', p_verdict - 'stop_reason'), v_now,
    case when v_kind <> 'still_unknown' then v_now + cs.ms(p_wake_in_ms) end);
  result := 'recorded';
  hot := cs.hot(v_run);
end $$;
--> statement-breakpoint
-- A second person stands in for a missing fence, or confirms an observed difference. Another attempt of the run voids it.
-- result: recorded | run_not_found | role_missing | not_in_doubt | stale_revision
create function cs.support_verdict(p_tenant text, p_principal text, p_run uuid, p_expected int, p_kind text, p_subject_digest text, p_reason text, out result text)
language plpgsql security definer set search_path = cs, pg_temp
as $$
declare
  v_service text := cs.require_service('api');
  v_run cs.run;
begin
  select * into v_run from cs.run r where r.run_id = p_run and r.tenant_id = p_tenant for update;
  if not found then result := 'run_not_found'; return; end if;
  if not cs.is_operator(p_tenant, p_principal) then
    result := 'role_missing';
  elsif v_run.state <> 'needs_reconciliation' then
    result := 'not_in_doubt';
  elsif v_run.revision <> p_expected then
    result := 'stale_revision';
  else
    insert into cs.verdict_support (run_id, principal_id, kind, attempts, subject_digest, reason, at)
    values (p_run, p_principal, p_kind, v_run.attempts, coalesce(p_subject_digest, ''), p_reason, cs.clock()) on conflict do nothing;
    result := 'recorded';
  end if;
  perform cs.write_audit(p_tenant, p_principal, p_run, p_kind, result, jsonb_build_object('revision', p_expected, 'subject_digest', p_subject_digest, 'reason', p_reason));
end $$;
--> statement-breakpoint
do $$
begin
  create trigger verdict_support_append_only before update or delete on cs.verdict_support for each row execute function cs.refuse_change();
  create trigger verdict_support_no_truncate before truncate on cs.verdict_support for each statement execute function cs.refuse_change();
end $$;
