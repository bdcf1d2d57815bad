-- Sign-in: invitations, passkeys, challenges and sessions. Only the api calls these; secrets come as hashes, signatures were checked before.

-- Whoever acts is a person of the tenant who may still act; asked inside every function, whatever the api checked before.
create function cs.require_person(p_tenant text, p_principal text) returns void
language plpgsql stable set search_path = cs, pg_temp
as $$
begin
  if not exists (select from cs.principal p where p.principal_id = p_principal and p.tenant_id = p_tenant and p.kind = 'person' and p.disabled_at is null) then
    raise exception 'no person of the tenant who may act' using errcode = 'CS005';
  end if;
end $$;
--> statement-breakpoint
create function cs.session_lives(p_session text, p_tenant text, p_principal text) returns boolean
language sql stable set search_path = cs, pg_temp
as $$
  select exists (select from cs.session s where s.session_id = p_session and s.tenant_id = p_tenant and s.principal_id = p_principal
    and s.revoked_at is null and s.expires_at > cs.clock())
$$;
--> statement-breakpoint
-- A challenge lives for p_life_ms; one that is the digest of a pre-image no longer than the pre-image says, so that what is recorded in time verifies as in time.
create function cs.begin_challenge(p_tenant text, p_principal text, p_purpose text, p_challenge text, p_subject jsonb, p_life_ms double precision) returns text
language plpgsql security definer set search_path = cs, pg_temp
as $$
declare
  v_now timestamptz := cs.clock();
  v_expires timestamptz := v_now + cs.ms(p_life_ms);
begin
  perform cs.require_service('api');
  if p_purpose = 'sign_in' then
    if p_principal is not null then raise exception 'a sign-in knows nobody yet' using errcode = 'CS005'; end if;
  else
    perform cs.require_person(p_tenant, p_principal);
  end if;
  if p_purpose = 'decide' then
    v_expires := least(v_expires, ((p_subject ->> 'pre_image')::jsonb ->> 'expires_at')::timestamptz);
  end if;
  -- Whoever asks for more clears away what is long over, so that the table stays as small as its traffic.
  delete from cs.challenge c where c.challenge in
    (select o.challenge from cs.challenge o where o.expires_at < v_now - interval '1 hour' order by o.expires_at limit 50 for update skip locked);
  insert into cs.challenge (challenge, purpose, principal_id, subject, created_at, expires_at)
  values (p_challenge, p_purpose, p_principal, p_subject, v_now, v_expires);
  return cs.iso(v_expires);
end $$;
--> statement-breakpoint
-- Uses a challenge up. False: unknown, used up, expired, or for something or somebody else.
create function cs.use_challenge(p_purpose text, p_principal text, p_challenge text, p_subject jsonb) returns boolean
language plpgsql set search_path = cs, pg_temp
as $$
declare v_now timestamptz := cs.clock();
begin
  update cs.challenge c set consumed_at = v_now where c.challenge = p_challenge and c.purpose = p_purpose
     and c.principal_id is not distinct from p_principal and c.subject = p_subject and c.consumed_at is null and c.expires_at > v_now;
  return found;
end $$;
--> statement-breakpoint
-- Whom an invitation is for; changes nothing. No row: unknown, used, expired, or for somebody who may not act.
create function cs.invitation_for(p_token_hash text) returns table (invitation_id text, tenant_id text, principal_id text, name text, as_of text)
language plpgsql stable security definer set search_path = cs, pg_temp
as $$
#variable_conflict use_column
declare v_now timestamptz := cs.clock();
begin
  perform cs.require_service('api');
  return query
  select i.invitation_id, i.tenant_id, i.principal_id, p.name, cs.iso(v_now) from cs.invitation i join cs.principal p using (principal_id)
   where i.token_hash = p_token_hash and i.consumed_at is null and i.expires_at > v_now and p.disabled_at is null and p.kind = 'person';
end $$;
--> statement-breakpoint
create function cs.insert_session(p_tenant text, p_principal text, p_method text, p_session text, p_secret_hash text, p_life_ms double precision) returns void
language plpgsql set search_path = cs, pg_temp
as $$
declare v_now timestamptz := cs.clock();
begin
  insert into cs.session (session_id, secret_hash, tenant_id, principal_id, method, created_at, authenticated_at, last_seen_at, expires_at)
  values (p_session, p_secret_hash, p_tenant, p_principal, p_method, v_now, v_now, v_now, v_now + cs.ms(p_life_ms));
  perform cs.write_audit(p_tenant, p_principal, null, 'sign_in', p_method, jsonb_build_object('session_id', p_session));
end $$;
--> statement-breakpoint
-- A person's passkey, by an invitation (p_token_hash) or by a session of theirs (p_session), whose challenge is used up with it. By an invitation it opens the session p_opened.
-- result: enrolled | invitation_invalid | challenge_invalid | passkey_known
create function cs.enrol_passkey(p_tenant text, p_principal text, p_token_hash text, p_session text, p_challenge text, p_passkey jsonb, p_opened jsonb) returns text
language plpgsql security definer set search_path = cs, pg_temp
as $$
declare
  v_now timestamptz;
  v_invitation cs.invitation;
  v_result text;
begin
  perform cs.require_service('api');
  perform cs.require_person(p_tenant, p_principal);
  if p_token_hash is not null then
    -- The row lock makes two uses of one link take turns.
    select * into v_invitation from cs.invitation i where i.token_hash = p_token_hash and i.tenant_id = p_tenant and i.principal_id = p_principal for update;
  end if;
  v_now := cs.clock();
  if p_token_hash is not null and (v_invitation.invitation_id is null or v_invitation.consumed_at is not null or v_invitation.expires_at <= v_now) then
    v_result := 'invitation_invalid';
  elsif p_token_hash is null and not cs.session_lives(p_session, p_tenant, p_principal) then
    raise exception 'the session is over' using errcode = 'CS005';
  elsif not cs.use_challenge('enrol', p_principal, p_challenge, case when p_token_hash is null then jsonb_build_object('session_id', p_session)
      else jsonb_build_object('invitation_id', v_invitation.invitation_id) end) then
    v_result := 'challenge_invalid';
  else
    insert into cs.passkey (credential_id, tenant_id, principal_id, public_key, transports, name, backed_up, certificate, created_at)
    values (p_passkey ->> 'credential_id', p_tenant, p_principal, p_passkey ->> 'public_key', array(select jsonb_array_elements_text(p_passkey -> 'transports')),
      p_passkey ->> 'name', (p_passkey ->> 'backed_up')::boolean, p_passkey -> 'certificate', v_now)
    on conflict (credential_id) do nothing;
    v_result := case when found then 'enrolled' else 'passkey_known' end;
  end if;
  perform cs.write_audit(p_tenant, p_principal, null, 'enrol_passkey', v_result,
    jsonb_build_object('credential_id', p_passkey ->> 'credential_id', 'invitation_id', v_invitation.invitation_id));
  if v_result = 'enrolled' and p_token_hash is not null then
    update cs.invitation i set consumed_at = v_now where i.invitation_id = v_invitation.invitation_id;
    perform cs.insert_session(p_tenant, p_principal, 'passkey', p_opened ->> 'session_id', p_opened ->> 'secret_hash', (p_opened ->> 'life_ms')::float8);
  end if;
  return v_result;
end $$;
--> statement-breakpoint
-- Whose passkey this is. No row: unknown, revoked, or of somebody who may not act.
create function cs.passkey_for(p_credential text) returns table (tenant_id text, principal_id text, public_key text, certificate jsonb, as_of text)
language plpgsql stable security definer set search_path = cs, pg_temp
as $$
#variable_conflict use_column
begin
  perform cs.require_service('api');
  return query
  select k.tenant_id, k.principal_id, k.public_key, k.certificate, cs.iso(cs.clock()) from cs.passkey k join cs.principal p using (principal_id)
   where k.credential_id = p_credential and k.revoked_at is null and p.disabled_at is null and p.kind = 'person';
end $$;
--> statement-breakpoint
-- Uses a person's living passkey with the challenge that it signed. False: the challenge is not to be used, or the passkey is not theirs any more.
create function cs.use_passkey(p_principal text, p_credential text, p_purpose text, p_challenge text, p_subject jsonb) returns boolean
language plpgsql set search_path = cs, pg_temp
as $$
begin
  if not cs.use_challenge(p_purpose, case when p_purpose = 'sign_in' then null else p_principal end, p_challenge, p_subject) then return false; end if;
  update cs.passkey k set last_used_at = cs.clock() where k.credential_id = p_credential and k.principal_id = p_principal and k.revoked_at is null;
  return found;
end $$;
--> statement-breakpoint
-- Signs a person in: by a passkey, whose challenge is used up with it, or by the identity provider that vouched for them (both null). False: challenge or passkey do not hold.
create function cs.open_session(p_tenant text, p_principal text, p_method text, p_session text, p_secret_hash text, p_life_ms double precision, p_credential text, p_challenge text) returns boolean
language plpgsql security definer set search_path = cs, pg_temp
as $$
begin
  perform cs.require_service('api');
  perform cs.require_person(p_tenant, p_principal);
  if p_method = 'passkey' and not cs.use_passkey(p_principal, p_credential, 'sign_in', p_challenge, '{}') then return false; end if;
  perform cs.insert_session(p_tenant, p_principal, p_method, p_session, p_secret_hash, p_life_ms);
  return true;
end $$;
--> statement-breakpoint
-- Whose session this is, with what they may do now. No row: unknown, over, ended, unused for p_idle_ms, or of somebody who may not act.
create function cs.session_of(p_secret_hash text, p_idle_ms double precision)
returns table (session_id text, tenant_id text, principal_id text, name text, roles text[], groups text[], method text, authenticated_at text, authenticated_age_ms double precision, expires_at text, as_of text)
language plpgsql volatile security definer set search_path = cs, pg_temp
as $$
#variable_conflict use_column
declare v_now timestamptz := cs.clock();
begin
  perform cs.require_service('api');
  return query
  select s.session_id, s.tenant_id, s.principal_id, p.name, p.roles, p.groups, s.method, cs.iso(s.authenticated_at),
      (extract(epoch from v_now - s.authenticated_at) * 1000)::float8, cs.iso(s.expires_at), cs.iso(v_now)
    from cs.session s join cs.principal p using (principal_id)
   where s.secret_hash = p_secret_hash and s.revoked_at is null and s.expires_at > v_now and s.last_seen_at + cs.ms(p_idle_ms) > v_now
     and p.disabled_at is null and p.kind = 'person';
  -- To the minute: not every request writes.
  if found then
    update cs.session s set last_seen_at = v_now where s.secret_hash = p_secret_hash and s.last_seen_at < v_now - interval '1 minute';
  end if;
end $$;
--> statement-breakpoint
-- The person of a session proved again who they are. False: challenge or passkey do not hold.
create function cs.step_up(p_tenant text, p_principal text, p_session text, p_credential text, p_challenge text) returns boolean
language plpgsql security definer set search_path = cs, pg_temp
as $$
begin
  perform cs.require_service('api');
  perform cs.require_person(p_tenant, p_principal);
  if not cs.session_lives(p_session, p_tenant, p_principal)
     or not cs.use_passkey(p_principal, p_credential, 'step_up', p_challenge, jsonb_build_object('session_id', p_session)) then
    return false;
  end if;
  update cs.session s set authenticated_at = cs.clock() where s.session_id = p_session;
  return true;
end $$;
--> statement-breakpoint
create function cs.close_session(p_tenant text, p_principal text, p_session text) returns void
language plpgsql security definer set search_path = cs, pg_temp
as $$
begin
  perform cs.require_service('api');
  update cs.session s set revoked_at = cs.clock() where s.session_id = p_session and s.tenant_id = p_tenant and s.principal_id = p_principal and s.revoked_at is null;
  if found then
    perform cs.write_audit(p_tenant, p_principal, null, 'sign_out', 'closed', jsonb_build_object('session_id', p_session));
  end if;
end $$;
--> statement-breakpoint
-- A person's own passkeys, oldest first, revoked ones too.
create function cs.list_passkeys(p_tenant text, p_principal text)
returns table (credential_id text, name text, transports text[], backed_up boolean, created_at text, last_used_at text, revoked_at text)
language plpgsql stable security definer set search_path = cs, pg_temp
as $$
#variable_conflict use_column
begin
  perform cs.require_service('api');
  perform cs.require_person(p_tenant, p_principal);
  return query
  select k.credential_id, k.name, k.transports, k.backed_up, cs.iso(k.created_at), cs.iso(k.last_used_at), cs.iso(k.revoked_at)
    from cs.passkey k where k.tenant_id = p_tenant and k.principal_id = p_principal order by k.created_at, k.credential_id;
end $$;
--> statement-breakpoint
-- A person gives up a passkey of theirs; every other session of theirs ends, since who holds that passkey may have opened it.
-- The last one stays: without any, only the owner's command could let the person in again, and that command can revoke it as well.
-- result: revoked | passkey_not_found | passkey_last
create function cs.revoke_passkey(p_tenant text, p_principal text, p_session text, p_credential text) returns text
language plpgsql security definer set search_path = cs, pg_temp
as $$
declare
  v_now timestamptz;
  v_result text;
begin
  perform cs.require_service('api');
  perform cs.require_person(p_tenant, p_principal);
  -- Two revocations at once take turns, or together they could take the last two.
  perform from cs.passkey k where k.tenant_id = p_tenant and k.principal_id = p_principal order by k.credential_id for update;
  v_now := cs.clock();
  if not exists (select from cs.passkey k where k.credential_id = p_credential and k.tenant_id = p_tenant and k.principal_id = p_principal and k.revoked_at is null) then
    v_result := 'passkey_not_found';
  elsif not exists (select from cs.passkey k where k.credential_id <> p_credential and k.tenant_id = p_tenant and k.principal_id = p_principal and k.revoked_at is null) then
    v_result := 'passkey_last';
  else
    update cs.passkey k set revoked_at = v_now where k.credential_id = p_credential;
    update cs.session s set revoked_at = v_now where s.principal_id = p_principal and s.session_id <> p_session and s.revoked_at is null;
    v_result := 'revoked';
  end if;
  perform cs.write_audit(p_tenant, p_principal, null, 'revoke_passkey', v_result, jsonb_build_object('credential_id', p_credential));
  return v_result;
end $$;
