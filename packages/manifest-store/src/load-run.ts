import { type LoadedRun, Manifest, type RunId, uuidOfRunId } from '@counterstamp/manifest-core';
import { answered, type Statements } from './connection.ts';
import type { Sealing } from './sealed/sealing.ts';
import { type StoredRecord, unsealRecord } from './sealed/unseal-run.ts';

/**
 * Loads a run's whole record in one round trip, with the database's clock. Every worker decides on this and nothing else.
 * @param tenant when given, a run of another tenant is as unknown as one that never existed.
 * @param sealing what opens the personal values of a run that is sealed.
 * @throws {DataKeyMissing} @throws {SealBroken} see `unsealRecord`.
 */
export async function loadRun(
  sql: Statements,
  runId: RunId,
  tenant: string | null = null,
  sealing?: Sealing,
): Promise<LoadedRun | undefined> {
  const [row] = await answered(sql<{ now: string; manifest: string }[]>`
    select cs.iso(cs.clock()) as now, json_build_object(
      'run_id', 'run_' || r.run_id, 'tenant_id', r.tenant_id, 'request_id', r.request_id, 'generation', r.generation,
      'supersedes', 'run_' || r.supersedes, 'workflow', r.workflow, 'workflow_version', r.workflow_version,
      'connector', r.connector, 'connector_version', r.connector_version, 'proposer', r.proposer, 'requested_by', r.requested_by, 'on_behalf_of', i.on_behalf_of,
      'created_at', cs.iso(r.created_at), 'state', r.state, 'state_since', cs.iso(r.state_since), 'committed_at', cs.iso(r.committed_at), 'revision', r.revision, 'action_revision', r.action_revision,
      'counters', json_build_object('read_failures', r.read_failures, 'proposal_cycles', r.proposal_cycles, 'verification_waits', r.verification_waits,
        'look_ups', r.look_ups, 'attempts', r.attempts, 'not_sent_retries', r.not_sent_retries, 'retries_refused', r.retries_refused),
      'evidence_round', r.evidence_round, 'evidence_complete', r.evidence_complete, 'decisions_sufficient', r.decisions_sufficient, 'retry_allowed', r.retry_allowed,
      'approval_life_ms', i.approval_life_ms, 'deadlines', json_build_object('run', cs.iso(r.run_deadline), 'approval', cs.iso(r.approval_expires_at)),
      'wake_at', cs.iso(r.wake_at), 'parked_reason', r.parked_reason, 'stop_reason', r.stop_reason, 'resource_key', r.resource_key,
      'in_flight_key', r.in_flight_key, 'chain_head', r.chain_head, 'trace_context', r.trace_context,
      'input', i.input_canonical::json, 'allowed_operations', to_json(i.allowed_operations), 'context', i.context, 'sealed_input', encode(i.sealed, 'base64'),
      'subject_key', (select json_build_object('subject', k.subject, 'wrapped_key', encode(k.wrapped_key, 'base64'), 'erased_at', cs.iso(k.erased_at))
        from cs.subject_key k where i.sealed is not null and k.tenant_id = r.tenant_id and k.subject = i.subject),
      'evidence', coalesce((select json_agg(json_build_object('evidence_id', e.evidence_id, 'revision', e.revision, 'round', e.round, 'kind', e.kind,
          'source_ref', e.source_ref, 'observed_at', cs.iso(e.observed_at), 'version_marker', e.version_marker, 'trusted', e.trusted,
          'facts_digest', e.facts_digest, 'salt', v.salt, 'facts_canonical', v.facts_canonical, 'sealed', encode(v.sealed, 'base64')) order by e.revision, e.evidence_id)
        from cs.evidence e left join cs.evidence_value v using (evidence_id) where e.run_id = r.run_id), '[]'),
      'proposals', coalesce((select json_agg(json_build_object('proposal_id', p.proposal_id, 'revision', p.revision, 'author', p.author, 'author_kind', p.author_kind,
          'body', p.body_canonical::json, 'sealed', encode(p.sealed, 'base64'), 'refusal', case when f.proposal_id is not null then json_build_object('code', f.code, 'message', f.message) end)
          order by p.revision)
        from cs.proposal p left join cs.proposal_refusal f using (proposal_id) where p.run_id = r.run_id), '[]'),
      'action', (select json_build_object('canonical', a.action_canonical, 'digest', a.action_digest, 'fields', a.action_canonical::json)
        from cs.action a where a.run_id = r.run_id and a.action_revision = r.action_revision),
      'approval', (select json_build_object('approval_id', q.approval_id, 'approval_digest', q.approval_digest, 'canonical', q.canonical, 'action_digest', q.action_digest,
          'action_revision', q.action_revision, 'approvals_required', q.approvals_required,
          'groups_required', q.groups_required, 'method', q.method, 'break_glass', q.break_glass, 'policy', q.policy, 'policy_version', q.policy_version,
          'policy_rule', q.policy_rule, 'display', q.display, 'expires_at', cs.iso(q.expires_at),
          'decisions', coalesce((select json_agg(json_build_object('decision_id', d.decision_id, 'revision', d.revision, 'decision', d.decision,
              'principal_id', d.principal_id, 'method', d.method, 'action_digest', d.action_digest, 'action_revision', d.action_revision,
              'decided_at', cs.iso(d.decided_at), 'reason', d.reason, 'break_glass', d.break_glass, 'obstacle', cs.decision_obstacle(r, q, d, true),
              'groups', coalesce((select to_json(p.groups) from cs.principal p where p.principal_id = d.principal_id), '[]'),
              'assertion', (select json_build_object('credential_id', s.credential_id, 'pre_image', s.pre_image, 'client_data_json', cs.base64url(s.client_data_json),
                  'authenticator_data', cs.base64url(s.authenticator_data), 'signature', cs.base64url(s.signature), 'certificate', k.certificate)
                from cs.decision_assertion s left join cs.passkey k using (credential_id) where s.decision_id = d.decision_id)) order by d.revision)
            from cs.decision d where d.approval_id = q.approval_id), '[]'))
        from cs.approval_request q where q.approval_id = r.approval_id),
      'attempts', coalesce((select json_agg(json_build_object('attempt_id', t.attempt_id, 'n', t.n, 'revision', t.revision, 'action_digest', t.action_digest,
          'request_digest', t.request_digest, 'idempotency_key', t.idempotency_key, 'instance_id', t.instance_id, 'started_at', cs.iso(t.started_at),
          'call_deadline', cs.iso(t.call_deadline), 'status', t.status, 'provider_ref', t.provider_ref, 'response', t.response,
          'closed_at', cs.iso(t.closed_at)) order by t.n)
        from cs.attempt t where t.run_id = r.run_id), '[]'),
      'observations', coalesce((select json_agg(json_build_object('revision', o.revision, 'at', cs.iso(o.at), 'kind', o.kind, 'provider_ref', o.provider_ref, 'body', o.body)
          order by o.revision) from cs.observation o where o.run_id = r.run_id), '[]')
    )::text as manifest
    from cs.run r join cs.run_input i using (run_id)
    where r.run_id = ${uuidOfRunId(runId)}::uuid and (${tenant}::text is null or r.tenant_id = ${tenant}::text)`);
  if (row === undefined) return undefined;
  const record = JSON.parse(row.manifest) as StoredRecord;
  const manifest = Manifest.parse({ ...unsealRecord(record, sealing), outcome: record.observations.at(-1) ?? null });
  return { manifest, now: row.now, nowMs: Date.parse(row.now) };
}
