-- Signed checkpoints of all chain heads. A reconciler reads what moved, signs outside the database, and commits by the number that it expects.

-- What the next checkpoint must commit to: runs whose head no checkpoint has, oldest movement first. Null: it is not due yet.
-- A commit may become visible after a later one, so the look back overlaps by more than a transaction may live (statement timeout 10 s).
create function cs.checkpoint_due(p_interval_ms double precision, p_heartbeat_ms double precision, p_limit int) returns text
language plpgsql stable security definer set search_path = cs, pg_temp
as $$
declare
  v_service text := cs.require_service('reconciler');
  v_now timestamptz := cs.clock();
  v_before cs.checkpoint;
  v_leaves json;
  v_covered timestamptz;
  v_from timestamptz;
  v_until timestamptz;
  v_count int;
begin
  select * into v_before from cs.checkpoint order by seq desc limit 1;
  -- One that could not hold all that had moved is followed at once.
  if v_before.covered_until >= v_before.at and v_before.at + cs.ms(p_interval_ms) > v_now then return null; end if;
  -- At most a day at a time, so that a long history is covered piece by piece within the statement's time. Run ids sort by their creation.
  v_from := coalesce(v_before.covered_until, (select r.created_at from cs.run r order by r.run_id limit 1), v_now);
  v_until := least(v_now, v_from + interval '1 day');
  with moved as (
    select e.run_id, min(e.at) as since from cs.run_event e
     where e.at >= v_from - interval '60 seconds' and e.at <= v_until group by e.run_id),
  leaves as (
    select r.run_id, r.revision, r.chain_head, m.since from moved m join cs.run r using (run_id)
     where not exists (select from cs.checkpoint_leaf l where l.run_id = r.run_id and l.revision = r.revision)
     order by m.since, r.run_id limit p_limit)
  select count(*), coalesce(json_agg(json_build_object('run_id', 'run_' || run_id, 'revision', revision, 'chain_head', chain_head) order by since, run_id), '[]'), max(since)
    into v_count, v_leaves, v_covered from leaves;
  if v_count = 0 and v_until = v_now and v_before.at + cs.ms(p_heartbeat_ms) > v_now then return null; end if;
  return json_build_object('seq', coalesce(v_before.seq, 0) + 1, 'at', cs.iso(v_now), 'covered_until', cs.iso(case when v_count < p_limit then v_until else v_covered end),
    'previous', v_before.envelope, 'leaves', v_leaves)::text;
end $$;
--> statement-breakpoint
-- False: another reconciler committed this number first.
create function cs.commit_checkpoint(p_seq int, p_at timestamptz, p_covered_until timestamptz, p_envelope jsonb, p_leaves jsonb) returns boolean
language plpgsql security definer set search_path = cs, pg_temp
as $$
declare
  v_service text := cs.require_service('reconciler');
begin
  if p_seq <> (select coalesce(max(seq), 0) + 1 from cs.checkpoint) then return false; end if;
  insert into cs.checkpoint (seq, at, covered_until, envelope) values (p_seq, p_at, p_covered_until, p_envelope) on conflict (seq) do nothing;
  if not found then return false; end if;
  insert into cs.checkpoint_leaf (run_id, seq, leaf_index, revision, chain_head)
  select substr(l.leaf ->> 'run_id', 5)::uuid, p_seq, l.n - 1, (l.leaf ->> 'revision')::int, l.leaf ->> 'chain_head'
    from jsonb_array_elements(p_leaves) with ordinality l(leaf, n);
  return true;
end $$;
--> statement-breakpoint
-- The newest checkpoint that covers a run of the tenant, with every leaf: a proof needs the whole tree, and its hashes say nothing of other tenants' runs.
create function cs.checkpoint_covering(p_tenant text, p_run uuid) returns text
language sql stable security definer set search_path = cs, pg_temp
as $$
  select json_build_object('envelope', c.envelope, 'leaves', (select json_agg(json_build_object('run_id', 'run_' || o.run_id, 'revision', o.revision, 'chain_head', o.chain_head) order by o.leaf_index)
      from cs.checkpoint_leaf o where o.seq = c.seq))::text
    from cs.checkpoint_leaf l join cs.checkpoint c using (seq)
   where cs.require_service('api') is not null and l.run_id = p_run and exists (select from cs.run r where r.run_id = p_run and r.tenant_id = p_tenant)
   order by l.seq desc limit 1
$$;
