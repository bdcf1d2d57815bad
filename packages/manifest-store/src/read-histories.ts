import {
  type Approval,
  type Attempt,
  type DecisionRecord,
  type Manifest,
  type Observation,
  type RunId,
  type StoredEvent,
  uuidOfRunId,
} from '@counterstamp/manifest-core';
import { answered, type Sql } from './connection.ts';

/** Everything that is recorded of one run, in the order in which it was written; what `@counterstamp/history-checker` judges. */
export interface StoredHistory {
  run: Pick<
    Manifest,
    | 'run_id'
    | 'tenant_id'
    | 'request_id'
    | 'generation'
    | 'connector'
    | 'requested_by'
    | 'state'
    | 'revision'
    | 'action_revision'
    | 'decisions_sufficient'
    | 'retry_allowed'
    | 'wake_at'
    | 'parked_reason'
    | 'stop_reason'
    | 'chain_head'
  >;
  events: StoredEvent[];
  /** Superseded ones included. */
  actions: { action_revision: number; canonical: string; digest: string }[];
  approvals: (Pick<
    Approval,
    | 'approval_id'
    | 'approval_digest'
    | 'canonical'
    | 'action_digest'
    | 'action_revision'
    | 'approvals_required'
    | 'expires_at'
  > & { decisions: DecisionRecord[] })[];
  attempts: Attempt[];
  /** Outcomes whose swap was lost (protocol rule 14). */
  late_evidence: {
    evidence_id: string;
    kind: 'late_outcome' | 'late_effect';
    attempt_id: string;
    revision: number;
    observed_at: string;
  }[];
  observations: Observation[];
}

/** One page, and the database's clock right after its snapshot was taken. */
export interface HistoryPage {
  now: string;
  histories: StoredHistory[];
}

/**
 * Reads histories page by page: all of them, or those of one run's request, whose other generations belong to the same judgement. Each page
 * is one statement and so one snapshot. Needs a login that may read the tables, as every worker's may.
 */
export async function* readHistories(sql: Sql, only?: RunId): AsyncGenerator<HistoryPage> {
  const PAGE = 100;
  let after = '00000000-0000-0000-0000-000000000000';
  for (;;) {
    const some =
      only === undefined
        ? sql``
        : sql`and (r.tenant_id, r.request_id) = (select o.tenant_id, o.request_id from cs.run o where o.run_id = ${uuidOfRunId(only)}::uuid)`;
    const rows = await answered(sql<{ run_id: string; now: string; history: string }[]>`
      select r.run_id, cs.iso(cs.clock()) as now, json_build_object(
        'run', json_build_object('run_id', 'run_' || r.run_id, 'tenant_id', r.tenant_id, 'request_id', r.request_id, 'generation', r.generation,
          'connector', r.connector, 'requested_by', r.requested_by, 'state', r.state, 'revision', r.revision, 'action_revision', r.action_revision,
          'decisions_sufficient', r.decisions_sufficient, 'retry_allowed', r.retry_allowed, 'wake_at', cs.iso(r.wake_at), 'parked_reason', r.parked_reason,
          'stop_reason', r.stop_reason, 'chain_head', r.chain_head),
        'events', coalesce((select json_agg(json_build_object('run_id', 'run_' || e.run_id, 'revision', e.revision, 'from', e.from_state, 'to', e.to_state,
            'trigger', e.trigger, 'actor', e.actor, 'at_us', cs.microseconds(e.at)::text, 'payload', e.payload, 'payload_digest', e.payload_digest,
            'previous_hash', e.previous_hash, 'hash', e.hash) order by e.revision) from cs.run_event e where e.run_id = r.run_id), '[]'),
        'actions', coalesce((select json_agg(json_build_object('action_revision', a.action_revision, 'canonical', a.action_canonical, 'digest', a.action_digest)
            order by a.action_revision) from cs.action a where a.run_id = r.run_id), '[]'),
        'approvals', coalesce((select json_agg(json_build_object('approval_id', q.approval_id, 'approval_digest', q.approval_digest, 'canonical', q.canonical,
            'action_digest', q.action_digest, 'action_revision', q.action_revision, 'approvals_required', q.approvals_required, 'expires_at', cs.iso(q.expires_at),
            'decisions', coalesce((select json_agg(json_build_object('decision_id', d.decision_id, 'revision', d.revision, 'decision', d.decision,
                'principal_id', d.principal_id, 'method', d.method, 'action_digest', d.action_digest, 'action_revision', d.action_revision,
                'decided_at', cs.iso(d.decided_at), 'reason', d.reason, 'break_glass', d.break_glass) order by d.revision) from cs.decision d where d.approval_id = q.approval_id), '[]'))
            order by q.action_revision) from cs.approval_request q where q.run_id = r.run_id), '[]'),
        'attempts', coalesce((select json_agg(json_build_object('attempt_id', t.attempt_id, 'n', t.n, 'revision', t.revision, 'action_digest', t.action_digest,
            'request_digest', t.request_digest, 'idempotency_key', t.idempotency_key, 'instance_id', t.instance_id, 'started_at', cs.iso(t.started_at),
            'call_deadline', cs.iso(t.call_deadline), 'status', t.status, 'provider_ref', t.provider_ref, 'response', t.response,
            'closed_at', cs.iso(t.closed_at)) order by t.n) from cs.attempt t where t.run_id = r.run_id), '[]'),
        'late_evidence', coalesce((select json_agg(json_build_object('evidence_id', e.evidence_id, 'kind', e.kind, 'attempt_id', e.attempt_id,
            'revision', e.revision, 'observed_at', cs.iso(e.observed_at)) order by e.observed_at)
            from cs.evidence e where e.run_id = r.run_id and e.attempt_id is not null), '[]'),
        'observations', coalesce((select json_agg(json_build_object('revision', o.revision, 'at', cs.iso(o.at), 'kind', o.kind, 'provider_ref', o.provider_ref,
            'body', o.body) order by o.revision) from cs.observation o where o.run_id = r.run_id), '[]'))::text as history
      from cs.run r where r.run_id > ${after}::uuid ${some}
      order by r.run_id limit ${PAGE}`);
    const last = rows.at(-1);
    if (last === undefined) return;
    yield { now: last.now, histories: rows.map((row) => JSON.parse(row.history) as StoredHistory) };
    if (rows.length < PAGE) return;
    after = last.run_id;
  }
}
