-- Who may stamp what: eligibility at one place, signed decisions, the request chain. Functions that stand here replace those of 0001 and 0004.

-- Roles of principals from the keys that live: a role that was withdrawn with its key stays withdrawn.
update cs.principal p set roles = k.roles
  from (select o.principal_id, array_agg(distinct k.role order by k.role) as roles from cs.api_key k join cs.principal o using (principal_id)
         where k.revoked_at is null and (k.expires_at is null or k.expires_at > now()) and (o.kind = 'person' or k.role not in ('approver', 'operator')) group by o.principal_id) k
 where k.principal_id = p.principal_id;
--> statement-breakpoint
do $$
declare v_table text;
begin
  foreach v_table in array array['decision_assertion', 'checkpoint', 'checkpoint_leaf'] loop
    execute format('create trigger %I before update or delete on cs.%I for each row execute function cs.refuse_change()', v_table || '_append_only', v_table);
    execute format('create trigger %I before truncate on cs.%I for each statement execute function cs.refuse_change()', v_table || '_no_truncate', v_table);
  end loop;
end $$;
--> statement-breakpoint
create or replace function cs.is_operator(p_tenant text, p_principal text) returns boolean
language sql stable set search_path = cs, pg_temp
as $$
  select exists (select from cs.principal p where p.principal_id = p_principal and p.tenant_id = p_tenant and p.disabled_at is null and p.kind = 'person' and 'operator' = any (p.roles))
$$;
--> statement-breakpoint
create function cs.base64url(p_bytes bytea) returns text
language sql immutable
as $$ select translate(encode(p_bytes, 'base64'), e'+/=\n', '-_') $$;
--> statement-breakpoint
-- Everybody who wanted the action, in this generation or one before: requester, its owner, the person it acts for, every proposal's author and that author's owner.
create function cs.request_chain(p_run cs.run) returns setof text
language sql stable set search_path = cs, pg_temp
as $$
  with recursive generation(run_id, requested_by, supersedes) as (
    select p_run.run_id, p_run.requested_by, p_run.supersedes
    union select r.run_id, r.requested_by, r.supersedes from generation g join cs.run r on r.run_id = g.supersedes),
  wanted(principal_id) as (
    select g.requested_by from generation g
    union select i.on_behalf_of from generation g join cs.run_input i using (run_id) where i.on_behalf_of is not null
    union select o.author from generation g join cs.proposal o using (run_id))
  select w.principal_id from wanted w
  union select p.owner_id from wanted w join cs.principal p using (principal_id) where p.owner_id is not null
$$;
--> statement-breakpoint
-- The one place that says who may approve this run; null: nothing stands against it.
create function cs.approver_obstacle(p_run cs.run, p_principal text, p_break_glass boolean) returns text
language sql stable set search_path = cs, pg_temp
as $$
  select case when p.principal_id is null or p.tenant_id <> p_run.tenant_id then 'unknown'
    when p.disabled_at is not null then 'disabled'
    when p.kind <> 'person' then 'not_a_person'
    when not (case when p_break_glass then 'break_glass' else 'approver' end = any (p.roles)) then 'not_an_approver'
    when p_principal in (select cs.request_chain(p_run)) then 'self_approval' end
  from (select 1) one left join cs.principal p on p.principal_id = p_principal
$$;
--> statement-breakpoint
-- Why a recorded decision does not count now; null: it counts. Asked at every decision, at every load and again at dispatch.
-- p_recording: the decision that this very transaction records, whose event comes last.
create function cs.decision_obstacle(p_run cs.run, p_request cs.approval_request, p_decision cs.decision, p_count_dev_keys boolean, p_recording text default null) returns text
language sql stable security definer set search_path = cs, pg_temp
as $$
  select case when p_decision.decision <> 'approve' then 'not_an_approval'
    when p_decision.decision_id is distinct from p_recording and not exists (select from cs.run_event e where e.run_id = p_run.run_id and e.revision = p_decision.revision and e.payload::jsonb -> 'refs' ->> 'decision_id' = p_decision.decision_id) then 'not_in_history'
    when (p_decision.action_digest, p_decision.action_revision, p_decision.approval_digest) is distinct from (p_request.action_digest, p_request.action_revision, p_request.approval_digest) then 'other_action'
    else coalesce(cs.approver_obstacle(p_run, p_decision.principal_id, p_decision.break_glass), case p_decision.method
      when 'passkey' then (select case when k.credential_id is null or k.principal_id <> p_decision.principal_id then 'unsigned' when k.revoked_at is not null then 'credential_revoked' end
          from (select 1) one left join cs.decision_assertion a on a.decision_id = p_decision.decision_id left join cs.passkey k using (credential_id))
      when 'session' then case when p_request.method <> 'session' then 'signature_required' end
      else case when not p_count_dev_keys or not exists (select from cs.api_key k where k.principal_id = p_decision.principal_id and k.role = 'approver'
          and k.revoked_at is null and (k.expires_at is null or k.expires_at > cs.clock())) then 'dev_key' end end) end
$$;
--> statement-breakpoint
-- Whether the decisions recorded for a request satisfy its rule now. p_counted: JSON array of decision ids, those that the executor verified; null: all.
create function cs.approvals_suffice(p_run cs.run, p_request cs.approval_request, p_count_dev_keys boolean, p_counted jsonb, p_recording text, out suffices boolean, out detail text)
language sql stable set search_path = cs, pg_temp
as $$
  with counting as (
    select d.principal_id, d.break_glass, p.groups from cs.decision d join cs.principal p using (principal_id)
     where d.approval_id = p_request.approval_id and (p_counted is null or p_counted ? d.decision_id)
       and cs.decision_obstacle(p_run, p_request, d, p_count_dev_keys, p_recording) is null),
  ordinary as (select count(distinct principal_id) as n from counting where not break_glass),
  missing as (
    select string_agg(format('%s of %s from %s', m.n, g.value, g.key), ', ' order by g.key) as what from jsonb_each_text(p_request.groups_required) g,
      lateral (select count(distinct c.principal_id) as n from counting c where not c.break_glass and g.key = any (c.groups)) m where m.n < g.value::int)
  select o.n >= p_request.approvals_required and m.what is null
      or p_request.break_glass and (select count(distinct c.principal_id) from counting c where c.break_glass) >= 2,
    format('%s of %s approvals are eligible now', o.n, p_request.approvals_required) || coalesce('; ' || m.what, '')
  from ordinary o, missing m
$$;
--> statement-breakpoint
create or replace function cs.insert_proposal(p_run uuid, p_revision int, p jsonb) returns void
language sql set search_path = cs, pg_temp
as $$
  insert into cs.proposal (proposal_id, run_id, revision, author, author_kind, body_canonical, sealed, body_digest)
  values (p ->> 'proposal_id', p_run, p_revision, p ->> 'author', p ->> 'author_kind', case when p ->> 'sealed' is null then p ->> 'body_canonical' end,
    decode(p ->> 'sealed', 'base64'), p ->> 'body_digest')
$$;
--> statement-breakpoint
-- The api speaks for a principal of the tenant, and about nobody else's runs: what a caller only names leaves no trace at its owner.
create or replace function cs.record_audit(p_tenant text, p_principal text, p_run uuid, p_what text, p_code text, p_detail jsonb) returns void
language plpgsql security definer set search_path = cs, pg_temp
as $$
declare v_service text;
begin
  v_service := cs.require_service('api', 'preflight', 'executor', 'verifier', 'reconciler');
  if p_what = 'alarm' and v_service <> 'executor' then raise exception 'only the executor raises an alarm' using errcode = 'CS005'; end if;
  if v_service = 'api' then
    if p_principal is not null and not exists (select from cs.principal p where p.principal_id = p_principal and p.tenant_id = p_tenant) then
      raise exception 'the api acts for a principal of the tenant' using errcode = 'CS005';
    end if;
    if not exists (select from cs.run r where r.run_id = p_run and r.tenant_id = p_tenant) then p_run := null; end if;
  elsif p_principal is not null then
    raise exception 'a worker speaks for no principal' using errcode = 'CS005';
  end if;
  perform cs.write_audit(p_tenant, p_principal, p_run, p_what, p_code, p_detail);
end $$;
--> statement-breakpoint
-- Request accepted. Same tenant, request id and body: the same run; another body: conflict.
-- result: created | existing | idempotency_conflict | supersedes_invalid | principal_unknown | on_behalf_unknown | open_runs_limit | subject_erased
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
  v_sealed bytea;
begin
  if not exists (select from cs.principal where principal_id = p_principal and tenant_id = p_tenant and disabled_at is null) then
    result := 'principal_unknown'; return;
  end if;
  if p_new ->> 'on_behalf_of' is not null and not exists (select from cs.principal p where p.principal_id = p_new ->> 'on_behalf_of' and p.tenant_id = p_tenant
       and p.kind = 'person' and p.disabled_at is null) then
    result := 'on_behalf_unknown'; return;
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
    if p_new ->> 'open_runs_max' is not null and (select count(*) from (select from cs.run r where r.tenant_id = p_tenant
         and r.state in ('queued', 'preflight', 'collecting', 'proposed', 'awaiting_approval', 'executing', 'verifying', 'needs_reconciliation')
         limit (p_new ->> 'open_runs_max')::int) open) >= (p_new ->> 'open_runs_max')::int then
      result := 'open_runs_limit'; return;
    end if;
    -- Waits for an erasure under way, and makes the next one wait for this run.
    if p_new ->> 'sealed' is not null then
      perform from cs.subject_key k where k.tenant_id = p_tenant and k.subject = p_new ->> 'subject' and k.wrapped_key is not null for share;
      if not found then result := 'subject_erased'; return; end if;
    end if;
    v_now := cs.clock();
    -- Of sealed input the chain names a salted digest only, so that erased words cannot be guessed from it.
    v_refs := jsonb_build_object('body_digest', v_digest, 'input_digest', coalesce(p_new ->> 'input_digest', cs.sha256_text(p_new ->> 'input_canonical')),
      'on_behalf_of', p_new -> 'on_behalf_of');
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
      v_sealed := decode(p_new ->> 'sealed', 'base64');
      insert into cs.run_input (run_id, input_canonical, input, body_digest, approval_life_ms, allowed_operations, context, on_behalf_of, subject, sealed)
      values (v_new.run_id, case when v_sealed is null then p_new ->> 'input_canonical' end, case when v_sealed is null then (p_new ->> 'input_canonical')::jsonb end, v_digest,
        (p_new ->> 'approval_life_ms')::int, array(select jsonb_array_elements_text(p_new -> 'allowed_operations')), case when v_sealed is null then p_new -> 'context' end,
        p_new ->> 'on_behalf_of', p_new ->> 'subject', v_sealed);
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
  result := case when exists (select from cs.run_input i where i.run_id = v_existing.run_id
    -- The same text under another data key, or under none.
    and (i.body_digest = v_digest or coalesce(p_new -> 'other_digests', '[]') ? i.body_digest)) then 'existing' else 'idempotency_conflict' end;
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
     and (r.tenant_id = p_tenant or p_tenant is null and v_service <> 'api') for update;
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
    insert into cs.evidence_value (evidence_id, salt, facts_canonical, sealed)
    select e ->> 'evidence_id', e ->> 'salt', e ->> 'facts_canonical', decode(e ->> 'sealed', 'base64') from jsonb_array_elements(p_facts -> 'evidence') e;
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
    insert into cs.approval_request (approval_id, run_id, action_revision, action_digest, canonical, approval_digest, display, policy, policy_version, policy_rule, approvals_required, groups_required, method, break_glass, expires_at, nonce)
    values (v_item ->> 'approval_id', p_run, p_expected + 1, v_bound ->> 'action_digest', v_item ->> 'canonical', v_item ->> 'approval_digest', (v_item ->> 'display_canonical')::jsonb,
      v_bound ->> 'policy', (v_bound ->> 'policy_version')::int, v_bound ->> 'policy_rule', (v_bound ->> 'approvals_required')::int,
      coalesce(v_bound -> 'groups_required', '{}'), coalesce(v_bound ->> 'method', 'session'), coalesce((v_bound ->> 'break_glass')::boolean, false), (v_bound ->> 'expires_at')::timestamptz, v_bound ->> 'nonce');
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
  insert into cs.evidence_value (evidence_id, salt, facts_canonical, sealed)
  values (p_evidence ->> 'evidence_id', p_evidence ->> 'salt', p_evidence ->> 'facts_canonical', decode(p_evidence ->> 'sealed', 'base64'));
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
-- A person's decision on exactly what was shown. The row lock serialises votes, so none is lost while the action stands.
-- result: recorded | repeated | already_decided | approval_expired | digest_mismatch | not_awaiting_approval | run_not_found | approval_not_found | not_an_approver |
--   self_approval | signature_required | challenge_invalid | credential_revoked | break_glass_not_allowed
create or replace function cs.commit_decision(p_tenant text, p_principal text, p_run uuid, p_decision jsonb, p_lease_ms double precision,
  out result text, out decided jsonb, out hot cs.hot_row)
language plpgsql security definer set search_path = cs, pg_temp
as $$
declare
  v_service text := cs.require_service('api');
  v_run cs.run;
  v_now timestamptz;
  v_request cs.approval_request;
  v_mine cs.decision;
  v_choice text := p_decision ->> 'decision';
  v_method text := p_decision ->> 'method';
  v_break_glass boolean := coalesce((p_decision ->> 'break_glass')::boolean, false);
  v_signed jsonb := p_decision -> 'assertion';
  v_obstacle text;
  v_actor text := 'principal/' || p_principal;
  v_sufficient boolean;
begin
  select * into v_run from cs.run r where r.run_id = p_run and r.tenant_id = p_tenant for update;
  if not found then result := 'run_not_found'; return; end if;
  v_now := cs.clock();
  select * into v_request from cs.approval_request a where a.approval_id = p_decision ->> 'approval_id' and a.run_id = p_run;
  v_obstacle := cs.approver_obstacle(v_run, p_principal, v_break_glass);
  if v_request.approval_id is null then
    result := 'approval_not_found';
  elsif v_obstacle is not null and v_obstacle <> 'self_approval' then
    result := 'not_an_approver';
  elsif v_request.approval_digest is distinct from p_decision ->> 'approval_digest' or v_request.action_digest is distinct from p_decision ->> 'action_digest'
     or v_request.action_revision is distinct from (p_decision ->> 'action_revision')::int then
    result := 'digest_mismatch';
  else
    select * into v_mine from cs.decision d where d.approval_id = v_request.approval_id and d.principal_id = p_principal order by d.revision desc limit 1;
    if found and v_mine.decision <> v_choice then
      result := 'already_decided';
    -- The same again changes nothing, unless it could: the vote before does not count any more, was of the other kind, or suffices by now.
    elsif found and (v_choice = 'reject' or v_run.state <> 'awaiting_approval' or v_run.approval_id <> v_request.approval_id or v_mine.break_glass = v_break_glass
        and cs.decision_obstacle(v_run, v_request, v_mine, true) is null
        and (v_run.decisions_sufficient or not (select s.suffices from cs.approvals_suffice(v_run, v_request, true, null, null) s))) then
      result := 'repeated';
    elsif v_run.state <> 'awaiting_approval' then
      result := case when v_run.state = 'expired' then 'approval_expired'
                     when exists (select from cs.decision d where d.approval_id = v_request.approval_id) then 'already_decided'
                     else 'not_awaiting_approval' end;
    elsif v_run.approval_id <> v_request.approval_id then
      result := 'digest_mismatch';
    elsif v_now >= v_request.expires_at then
      result := 'approval_expired';
      v_run := cs.apply_transition(v_run, v_service, 'approval_expired', 'expired', v_actor,
        jsonb_build_object('stop_reason', p_decision -> 'expired_reason'), '{}', v_now, null);
    -- A rejection may come from whoever wanted the action, and needs no signature: it only stops.
    elsif v_choice = 'approve' and v_obstacle = 'self_approval' then
      result := 'self_approval';
    elsif v_choice = 'approve' and v_run.decisions_sufficient then
      result := 'already_decided';
    elsif v_break_glass and (not v_request.break_glass or v_choice <> 'approve') then
      result := 'break_glass_not_allowed';
    elsif v_choice = 'approve' and (v_method = 'session' and v_request.method <> 'session' or v_break_glass and v_method <> 'passkey') then
      result := 'signature_required';
    elsif v_method = 'passkey' then
      if not exists (select from cs.passkey k where k.credential_id = v_signed ->> 'credential_id' and k.principal_id = p_principal and k.tenant_id = p_tenant and k.revoked_at is null) then
        result := 'credential_revoked';
      else
        -- The row is the guard against replay: it is used up in the transaction that records the decision.
        update cs.challenge c set consumed_at = v_now where c.challenge = v_signed ->> 'challenge' and c.purpose = 'decide' and c.principal_id = p_principal
          and c.consumed_at is null and c.expires_at > v_now and c.subject ->> 'approval_id' = v_request.approval_id and c.subject ->> 'pre_image' = v_signed ->> 'pre_image';
        if not found then result := 'challenge_invalid'; end if;
      end if;
    end if;
  end if;

  if result is null then
    insert into cs.decision (decision_id, approval_id, run_id, revision, decision, principal_id, method, action_digest, action_revision, approval_digest, decided_at, reason, break_glass)
    values (p_decision ->> 'decision_id', v_request.approval_id, p_run, v_run.revision + 1, v_choice, p_principal, v_method, v_request.action_digest,
      v_request.action_revision, v_request.approval_digest, v_now, p_decision ->> 'reason', v_break_glass)
    returning * into v_mine;
    if v_method = 'passkey' then
      insert into cs.decision_assertion (decision_id, credential_id, pre_image, client_data_json, authenticator_data, signature)
      values (v_mine.decision_id, v_signed ->> 'credential_id', v_signed ->> 'pre_image', decode(v_signed ->> 'client_data_json', 'base64'),
        decode(v_signed ->> 'authenticator_data', 'base64'), decode(v_signed ->> 'signature', 'base64'));
      update cs.passkey k set last_used_at = v_now where k.credential_id = v_signed ->> 'credential_id';
    end if;
    if v_choice = 'reject' then
      v_run := cs.apply_transition(v_run, v_service, 'approval_rejected', 'rejected', v_actor,
        jsonb_build_object('stop_reason', p_decision -> 'rejected_reason'), jsonb_build_object('decision_id', v_mine.decision_id, 'approval_digest', v_request.approval_digest), v_now, null);
    else
      select s.suffices into v_sufficient from cs.approvals_suffice(v_run, v_request, true, null, v_mine.decision_id) s;
      v_run := cs.apply_transition(v_run, v_service, 'decision_recorded', 'awaiting_approval', v_actor,
        jsonb_build_object('decisions_sufficient', v_sufficient),
        jsonb_build_object('decision_id', v_mine.decision_id, 'approval_digest', v_request.approval_digest) || case when v_break_glass then '{"break_glass": true}'::jsonb else '{}'::jsonb end, v_now,
        case when v_sufficient then least(v_now + cs.ms(p_lease_ms), v_request.expires_at) else v_request.expires_at end);
    end if;
    result := 'recorded';
    if v_break_glass then
      perform cs.write_audit(p_tenant, p_principal, p_run, 'alarm', 'break_glass', jsonb_build_object('approval_id', v_request.approval_id, 'decision_id', v_mine.decision_id, 'reason', v_mine.reason));
    end if;
  elsif result <> 'repeated' then
    perform cs.write_audit(p_tenant, p_principal, p_run, 'decide', result, jsonb_build_object('decision', v_choice, 'approval_id', p_decision ->> 'approval_id', 'action_digest', p_decision ->> 'action_digest'));
  end if;

  select coalesce(jsonb_agg(jsonb_build_object('decision_id', d.decision_id, 'decision', d.decision, 'principal_id', d.principal_id, 'method', d.method,
           'decided_at', cs.iso(d.decided_at), 'reason', d.reason, 'break_glass', d.break_glass) order by d.revision), '[]')
    into decided from cs.decision d where d.approval_id = v_request.approval_id;
  hot := cs.hot(v_run);
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
  v_suffices record;
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
  -- An executor of an older release verifies nothing: it leaves the run to another, while versions roll.
  if not p_attempt ? 'approval_digest' then result := 'stale'; return; end if;

  select * into v_request from cs.approval_request a where a.approval_id = v_run.approval_id and a.run_id = p_run;
  select * into v_action from cs.action a where a.run_id = p_run and a.action_revision = v_run.action_revision;
  -- Only decisions that the executor verified itself (their signatures, from the stored bytes) may count; who made them is asked anew.
  select * into v_suffices from cs.approvals_suffice(v_run, v_request, p_count_dev_keys, coalesce(p_attempt -> 'decision_ids', '[]'), null);

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
     or (v_request.canonical::jsonb ->> 'approvals_required')::int is distinct from v_request.approvals_required
     or coalesce(v_request.canonical::jsonb -> 'groups_required', '{}') is distinct from v_request.groups_required
     or coalesce(v_request.canonical::jsonb ->> 'method', 'session') is distinct from v_request.method
     or coalesce((v_request.canonical::jsonb ->> 'break_glass')::boolean, false) is distinct from v_request.break_glass then
    result := 'approval_invalid'; detail := 'the approval request is not what its digest says';
  elsif cs.tagged_digest('cs.action.v1', v_action.action_canonical) is distinct from v_request.action_digest
     or p_attempt ->> 'action_digest' is distinct from v_request.action_digest then
    result := 'digest_mismatch'; detail := 'the stored action is not the approved one';
  -- What the executor verified is what stands: between its load and this lock nobody exchanged the question.
  elsif v_request.approval_digest is distinct from p_attempt ->> 'approval_digest' then
    result := 'digest_mismatch'; detail := 'the approval request is not the one that was verified';
  elsif exists (select from cs.decision d where d.approval_id = v_request.approval_id and d.decision = 'reject') then
    result := 'approval_invalid'; detail := 'an approver rejected';
  elsif not v_suffices.suffices then
    result := 'decisions_insufficient'; detail := v_suffices.detail;
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
create or replace function cs.set_hold(p_tenant text, p_principal text, p_scope text, p_reason text) returns void
language plpgsql security definer set search_path = cs, pg_temp
as $$
begin
  perform cs.require_service('api');
  if not cs.is_operator(p_tenant, p_principal) then
    raise exception 'only an operator may set or release a hold' using errcode = 'CS005';
  end if;
  perform pg_advisory_xact_lock(hashtextextended('cs.hold', 0)); -- waits for every dispatch that passed its check before
  if p_reason is null then
    delete from cs.hold where scope = p_scope;
  else
    insert into cs.hold (scope, reason, set_by, set_at) values (p_scope, p_reason, p_principal, cs.clock())
    on conflict (scope) do update set reason = excluded.reason, set_by = excluded.set_by, set_at = excluded.set_at;
  end if;
  perform cs.write_audit(p_tenant, p_principal, null, 'set_hold', case when p_reason is null then 'released' else 'held' end, jsonb_build_object('scope', p_scope, 'reason', p_reason));
end $$;
--> statement-breakpoint
-- Who holds this key. Nothing when it is unknown, revoked, expired, its principal disabled or without the key's role.
create or replace function cs.authenticate(p_key_id text, p_secret_hash text) returns table (tenant_id text, principal_id text, role text)
language plpgsql volatile security definer set search_path = cs, pg_temp
as $$
#variable_conflict use_column
declare v_now timestamptz := cs.clock();
begin
  perform cs.require_service('api');
  return query
  select k.tenant_id, k.principal_id, k.role from cs.api_key k join cs.principal p using (principal_id)
   where k.key_id = p_key_id and k.secret_hash = p_secret_hash and k.revoked_at is null and (k.expires_at is null or k.expires_at > v_now)
     and p.disabled_at is null and k.role = any (p.roles);
  if found then
    update cs.api_key k set last_used_at = v_now where k.key_id = p_key_id and (k.last_used_at is null or k.last_used_at < v_now - interval '1 minute');
  end if;
end $$;
