-- Sign-in through an identity provider: the api checked its answer, the database says whom it is about.

-- The flow (a digest of its state) is used up by the first answer to it, whomever that names; no later one opens anything, here or in another process.
-- Nobody is created: who is not linked is unknown, and so is who may not act.
-- result: known | identity_unknown | flow_used
create function cs.vouched_person(p_issuer text, p_subject text, p_flow text, p_flow_life_ms double precision, out result text, out tenant_id text, out principal_id text)
language plpgsql security definer set search_path = cs, pg_temp
as $$
#variable_conflict use_column
declare
  v_now timestamptz := cs.clock();
  v_person cs.principal;
begin
  perform cs.require_service('api');
  insert into cs.challenge (challenge, purpose, subject, created_at, expires_at, consumed_at)
  values ('oidc:' || p_flow, 'sign_in', '{"by": "oidc"}', v_now, v_now + cs.ms(p_flow_life_ms), v_now) on conflict (challenge) do nothing;
  if not found then
    result := 'flow_used';
    return;
  end if;
  select p.* into v_person from cs.principal_identity i join cs.principal p using (principal_id) where i.issuer = p_issuer and i.subject = p_subject;
  if v_person.kind = 'person' and v_person.disabled_at is null then
    result := 'known';
    tenant_id := v_person.tenant_id;
    principal_id := v_person.principal_id;
  else
    result := 'identity_unknown';
    -- Without the subject: it may be personal, and events stay.
    perform cs.write_audit(v_person.tenant_id, v_person.principal_id, null, 'sign_in', result, jsonb_build_object('issuer', p_issuer));
  end if;
end $$;
