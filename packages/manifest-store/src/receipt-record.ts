import {
  type ATTEMPT_STATUSES,
  canonicalJson,
  type Decision,
  type JsonObject,
  type JsonValue,
  type Observation,
  type RunId,
  type State,
  type StopReason,
  type StoredEvent,
  uuidOfRunId,
} from '@counterstamp/manifest-core';
import type { ChainHead } from './checkpoints.ts';
import { answered, type Sql, type Statements } from './connection.ts';
import { readAs } from './read-as.ts';
import { SealBroken } from './sealed/seal.ts';
import type { Sealing } from './sealed/sealing.ts';
import { factsTextOf, type Opener, openerOf, type StoredEvidence, type StoredRecord } from './sealed/unseal-run.ts';

/** What the facts of a piece of evidence are, or why they are not shown. */
type RecordedFacts = { salt: string; canonical: string } | 'erased' | 'not_disclosed';

/** Everything that is recorded of one run and goes into its receipt, as it stood at one moment. Instants are UTC with microseconds. */
export interface ReceiptRecord {
  /** The database's clock at the read. */
  issued_at: string;
  run: {
    run_id: RunId;
    tenant_id: string;
    request_id: string;
    generation: number;
    workflow: string;
    workflow_version: number;
    connector: string;
    connector_version: string;
    requested_by: string;
    on_behalf_of: string | null;
    state: State;
    revision: number;
    created_at: string;
    stop_reason: StopReason | null;
    parked_reason: string | null;
  };
  /** The one that stands. */
  action: { canonical: string; digest: string; action_revision: number } | null;
  /** Of every round, oldest first. */
  evidence: {
    evidence_id: string;
    round: number;
    kind: string;
    source_ref: string;
    observed_at: string;
    version_marker: string | null;
    facts_digest: string;
    facts: RecordedFacts;
  }[];
  /** The request about the action that stands, and what was displayed with it. */
  approval: { canonical: string; approval_digest: string; display_canonical: string } | null;
  /** On that request, oldest first; earlier ones are in the events. */
  decisions: {
    decision_id: string;
    decision: Decision['decision'];
    break_glass: boolean;
    principal_id: string;
    method: Decision['method'];
    decided_at: string;
    revision: number;
    reason: { text: string } | 'not_disclosed' | null;
    /** Bytes as base64url. */
    signed: {
      credential_id: string;
      pre_image: string;
      client_data_json: string;
      authenticator_data: string;
      signature: string;
    } | null;
    certificate: JsonValue;
  }[];
  attempts: {
    attempt_id: string;
    n: number;
    action_digest: string;
    request_digest: string;
    idempotency_key: string;
    started_at: string;
    call_deadline: string;
    status: (typeof ATTEMPT_STATUSES)[number];
    provider_ref: string | null;
    closed_at: string | null;
  }[];
  /** The last observation. */
  outcome: {
    revision: number;
    kind: Observation['kind'];
    at: string;
    provider_ref: string | null;
    body: JsonValue;
  } | null;
  /** The whole history, oldest first. */
  events: (Omit<StoredEvent, 'from' | 'to'> & { from: State | null; to: State; at: string })[];
  chain_head: string;
  /** The newest one that covers the run. */
  covering: { envelope: JsonObject; leaves: ChainHead[] } | null;
}

type StoredReceiptEvidence = Omit<ReceiptRecord['evidence'][number], 'facts'> & StoredEvidence;

/** As the statement gives it: values sealed where they are sealed, the display as a value, and what opens them. */
type StoredReceipt = Omit<ReceiptRecord, 'evidence' | 'approval' | 'decisions'> &
  Pick<StoredRecord, 'subject_key' | 'sealed_input'> & {
    evidence: StoredReceiptEvidence[];
    approval: { canonical: string; approval_digest: string; display: JsonValue } | null;
    decisions: (Omit<ReceiptRecord['decisions'][number], 'reason'> & { reason: string | null })[];
  };

/**
 * Reads what a receipt is made of, in one statement and so of one moment: a history beside an older state would look tampered with.
 * Evidence that was altered is given as it is stored, so that the receipt's check names it.
 * @param disclose `false`: facts and the deciders' words stay here; their digests go out all the same.
 * @returns `undefined` when the tenant has no such run.
 * @throws {DataKeyMissing} @throws {SealBroken} when the run is sealed and its subject's key does not open.
 */
export async function receiptRecord(
  sql: Sql,
  tenant: string,
  run_id: RunId,
  disclose: boolean,
  sealing?: Sealing,
): Promise<ReceiptRecord | undefined> {
  const stored = await readAs(sql, tenant, (tx) => readReceipt(tx, tenant, run_id));
  if (stored === undefined) return undefined;
  const { subject_key, sealed_input, evidence, approval, decisions, ...rest } = stored;
  const { tenant_id } = stored.run;
  const facts = disclose
    ? factsWith(openerOf({ run_id, tenant_id, subject_key, sealed_input }, sealing))
    : () => 'not_disclosed' as const;
  return {
    ...rest,
    evidence: evidence.map(({ salt, facts_canonical, sealed, ...item }) => ({
      ...item,
      facts: facts({ ...item, salt, facts_canonical, sealed }),
    })),
    approval: approval === null ? null : displayed(approval),
    decisions: decisions.map((decision) => ({ ...decision, reason: told(decision.reason, disclose) })),
  };
}

function factsWith(opener: Opener): (item: StoredEvidence) => RecordedFacts {
  return (item) => {
    try {
      const kept = factsTextOf(item, opener);
      return kept === undefined ? 'erased' : { salt: kept.salt, canonical: kept.facts_canonical };
    } catch (error) {
      if (!(error instanceof SealBroken)) throw error;
      // Nothing that opens is left. Empty texts have no recorded digest: the check fails, where "erased" would pass.
      return { salt: '', canonical: '' };
    }
  };
}

/** The display is kept as a value; its canonical form is the text whose digest the request binds. */
function displayed({ display, ...approval }: NonNullable<StoredReceipt['approval']>): ReceiptRecord['approval'] {
  return { ...approval, display_canonical: canonicalJson(display) };
}

function told(reason: string | null, disclose: boolean): ReceiptRecord['decisions'][number]['reason'] {
  if (reason === null) return null;
  return disclose ? { text: reason } : 'not_disclosed';
}

async function readReceipt(tx: Statements, tenant: string, run_id: RunId): Promise<StoredReceipt | undefined> {
  const [row] = await answered(tx<{ receipt: string }[]>`
    select json_build_object(
      'issued_at', cs.iso(cs.clock()),
      'run', json_build_object('run_id', 'run_' || r.run_id, 'tenant_id', r.tenant_id, 'request_id', r.request_id, 'generation', r.generation,
        'workflow', r.workflow, 'workflow_version', r.workflow_version, 'connector', r.connector, 'connector_version', r.connector_version,
        'requested_by', r.requested_by, 'on_behalf_of', i.on_behalf_of, 'state', r.state, 'revision', r.revision, 'created_at', cs.iso(r.created_at),
        'stop_reason', r.stop_reason, 'parked_reason', r.parked_reason),
      'subject_key', (select json_build_object('subject', k.subject, 'wrapped_key', encode(k.wrapped_key, 'base64'), 'erased_at', cs.iso(k.erased_at))
        from cs.subject_key k where i.sealed is not null and k.tenant_id = r.tenant_id and k.subject = i.subject),
      'sealed_input', encode(i.sealed, 'base64'),
      'action', (select json_build_object('canonical', a.action_canonical, 'digest', a.action_digest, 'action_revision', a.action_revision)
        from cs.action a where a.run_id = r.run_id and a.action_revision = r.action_revision),
      'evidence', coalesce((select json_agg(json_build_object('evidence_id', e.evidence_id, 'round', e.round, 'kind', e.kind, 'source_ref', e.source_ref,
          'observed_at', cs.iso(e.observed_at), 'version_marker', e.version_marker, 'facts_digest', e.facts_digest,
          'salt', v.salt, 'facts_canonical', v.facts_canonical, 'sealed', encode(v.sealed, 'base64')) order by e.revision, e.evidence_id)
        from cs.evidence e left join cs.evidence_value v using (evidence_id) where e.run_id = r.run_id), '[]'),
      'approval', (select json_build_object('canonical', q.canonical, 'approval_digest', q.approval_digest, 'display', q.display)
        from cs.approval_request q where q.approval_id = r.approval_id),
      'decisions', coalesce((select json_agg(json_build_object('decision_id', d.decision_id, 'decision', d.decision, 'break_glass', d.break_glass,
          'principal_id', d.principal_id, 'method', d.method, 'decided_at', cs.iso(d.decided_at), 'revision', d.revision, 'reason', d.reason,
          'signed', case when s.decision_id is not null then json_build_object('credential_id', s.credential_id, 'pre_image', s.pre_image,
            'client_data_json', cs.base64url(s.client_data_json), 'authenticator_data', cs.base64url(s.authenticator_data), 'signature', cs.base64url(s.signature)) end,
          'certificate', k.certificate) order by d.revision)
        from cs.decision d left join cs.decision_assertion s using (decision_id) left join cs.passkey k using (credential_id)
        where d.approval_id = r.approval_id), '[]'),
      'attempts', coalesce((select json_agg(json_build_object('attempt_id', t.attempt_id, 'n', t.n, 'action_digest', t.action_digest,
          'request_digest', t.request_digest, 'idempotency_key', t.idempotency_key, 'started_at', cs.iso(t.started_at),
          'call_deadline', cs.iso(t.call_deadline), 'status', t.status, 'provider_ref', t.provider_ref, 'closed_at', cs.iso(t.closed_at)) order by t.n)
        from cs.attempt t where t.run_id = r.run_id), '[]'),
      'outcome', (select json_build_object('revision', o.revision, 'kind', o.kind, 'at', cs.iso(o.at), 'provider_ref', o.provider_ref, 'body', o.body)
        from cs.observation o where o.run_id = r.run_id order by o.revision desc limit 1),
      'events', (select json_agg(json_build_object('run_id', 'run_' || e.run_id, 'revision', e.revision, 'from', e.from_state, 'to', e.to_state,
          'trigger', e.trigger, 'actor', e.actor, 'at', cs.iso(e.at), 'at_us', cs.microseconds(e.at)::text, 'payload', e.payload,
          'payload_digest', e.payload_digest, 'previous_hash', e.previous_hash, 'hash', e.hash) order by e.revision)
        from cs.run_event e where e.run_id = r.run_id),
      'chain_head', r.chain_head,
      'covering', cs.checkpoint_covering(r.tenant_id, r.run_id)::json
    )::text as receipt
    from cs.run r join cs.run_input i using (run_id)
    where r.run_id = ${uuidOfRunId(run_id)}::uuid and r.tenant_id = ${tenant}`);
  return row === undefined ? undefined : (JSON.parse(row.receipt) as StoredReceipt);
}
