-- An effect that a look showed is positive evidence like one that the provider told of (protocol rules 14 and 20).

-- A person's verdict on a run in doubt (protocol rule 20), on the revision that the person saw.
-- result: recorded | run_not_found | role_missing | not_in_doubt | stale_revision | observed_in_future | not_settled | evidence_stands |
--   instance_not_fenced | second_person_needed
create or replace function cs.commit_verdict(p_tenant text, p_principal text, p_run uuid, p_expected int, p_verdict jsonb, p_wake_in_ms double precision,
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
    -- Parked because a look showed our effect: before anybody may say that there is none, a look has to find none.
    elsif v_run.parked_reason in ('late_effect_found', 'effect_differs') then
      result := 'evidence_stands'; detail := v_run.parked_reason;
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
