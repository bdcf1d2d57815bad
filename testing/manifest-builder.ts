import { displayRefund, RefundAction } from '@counterstamp/connectors';
import {
  type Approval,
  type Attempt,
  canonicalJson,
  currentEvidence,
  type Digest,
  digestOf,
  type Evidence,
  evidenceSetDigest,
  type HotRow,
  idempotencyKey,
  type JsonObject,
  type LoadedRun,
  Manifest,
  type Proposal,
  type Revision,
  type RunId,
} from '@counterstamp/manifest-core';

/** The instant at which the tests' runs stand unless they say otherwise. */
export const START_MS = Date.parse('2026-09-30T14:00:00.000Z');
export const at = (ms: number): string => new Date(ms).toISOString();
export const RUN_ID = 'run_00000000-0000-7000-8000-000000000001' as RunId;
const NO_DIGEST = `sha256:${'0'.repeat(64)}` as Digest;

/** A valid run of the workflow `refund`, in `proposed` unless changed. */
export function manifest(change: Partial<Manifest> = {}): Manifest {
  return {
    run_id: RUN_ID,
    tenant_id: 'shop_north',
    request_id: 'case_2841',
    generation: 1,
    supersedes: null,
    workflow: 'refund',
    workflow_version: 1,
    connector: 'sandbox-payments',
    connector_version: '1',
    proposer: 'rules',
    requested_by: 'prn_agent',
    on_behalf_of: null,
    created_at: at(START_MS),
    state: 'proposed',
    state_since: at(START_MS),
    committed_at: at(START_MS),
    revision: 5 as Revision,
    action_revision: null,
    counters: {
      read_failures: 0,
      proposal_cycles: 0,
      verification_waits: 0,
      look_ups: 0,
      attempts: 0,
      not_sent_retries: 0,
      retries_refused: 0,
    },
    evidence_round: 1,
    evidence_complete: true,
    decisions_sufficient: false,
    retry_allowed: false,
    approval_life_ms: null,
    deadlines: { run: at(START_MS + 86_400_000), approval: null },
    wake_at: at(START_MS + 3_000),
    parked_reason: null,
    stop_reason: null,
    resource_key: null,
    in_flight_key: null,
    chain_head: NO_DIGEST,
    trace_context: null,
    erased_at: null,
    input: {},
    allowed_operations: ['read_request', 'read_order', 'read_payment', 'read_refund_status', 'refund_order'],
    context: [],
    evidence: [],
    proposals: [],
    action: null,
    approval: null,
    attempts: [],
    observations: [],
    outcome: null,
    ...change,
  };
}

/** The run's record after a change of some counters. */
export function counted(run: Manifest, counters: Partial<Manifest['counters']>): Manifest {
  return { ...run, counters: { ...run.counters, ...counters } };
}

/** A run whose action awaits approval from `nowMs` on. */
export function asked(
  run: Manifest,
  fields: JsonObject,
  { nowMs = START_MS, lifeMs = 60_000, approvals_required = 1 } = {},
): Manifest {
  const canonical = canonicalJson(fields);
  const digest = digestOf('cs.action.v1', canonical);
  const action_revision = (run.revision + 1) as Revision;
  const approval_id = `apr_${action_revision}`;
  const refund = RefundAction.safeParse(fields);
  const display = refund.success ? displayRefund(refund.data) : [];
  const terms = {
    policy: 'refund',
    policy_version: 2,
    policy_rule: 'one_person',
    approvals_required,
    groups_required: {},
    method: 'passkey' as const,
    break_glass: false,
  };
  const bound = canonicalJson({
    profile: 'cs.approval.v1',
    approval_id,
    run_id: run.run_id,
    tenant_id: run.tenant_id,
    action_digest: digest,
    action_revision,
    evidence_set_digest: evidenceSetDigest(currentEvidence(run)),
    display_digest: digestOf('cs.display.v1', canonicalJson(display)),
    ...terms,
    workflow: run.workflow,
    workflow_version: run.workflow_version,
    connector: run.connector,
    connector_version: run.connector_version,
    expires_at: at(nowMs + lifeMs),
    nonce: '00',
  });
  const approval: Approval = {
    approval_id,
    approval_digest: digestOf('cs.approval.v1', bound),
    canonical: bound,
    action_digest: digest,
    action_revision,
    ...terms,
    display,
    expires_at: at(nowMs + lifeMs),
    decisions: [],
  };
  return {
    ...run,
    state: 'awaiting_approval',
    revision: action_revision,
    action_revision,
    deadlines: { ...run.deadlines, approval: approval.expires_at },
    action: { canonical, digest, fields },
    resource_key: refund.success ? `${run.tenant_id}/sandbox-payments/${refund.data.destination}` : null,
    approval,
  };
}

/** The run after one more decision on what it asks. */
export function decided(run: Manifest, principal_id: string, decision: 'approve' | 'reject' = 'approve'): Manifest {
  if (run.approval === null) throw new Error('nothing asked');
  const { action_digest, action_revision, decisions } = run.approval;
  const vote = {
    decision_id: `dec_${run.revision}`,
    revision: run.revision,
    decision,
    principal_id,
    method: 'dev_key' as const,
    action_digest,
    action_revision,
    decided_at: at(START_MS),
    reason: null,
    break_glass: false,
    groups: [],
    obstacle: null,
    assertion: null,
  };
  return {
    ...run,
    revision: (run.revision + 1) as Revision,
    approval: { ...run.approval, decisions: [...decisions, vote] },
  };
}

/** An attempt of a run that was asked about; its call deadline is 2 s after its start. */
export function attempt(run: Manifest, change: Partial<Attempt> = {}): Attempt {
  const { action, action_revision } = run;
  if (action === null || action_revision === null) throw new Error('nothing asked');
  const n = change.n ?? 1;
  return {
    attempt_id: `att_${n}`,
    n,
    revision: (run.revision + 1) as Revision,
    action_digest: action.digest,
    request_digest: NO_DIGEST,
    idempotency_key: idempotencyKey(run.run_id, action_revision, action.digest),
    instance_id: 'ins_1',
    started_at: at(START_MS),
    call_deadline: at(START_MS + 2_000),
    status: 'uncertain',
    provider_ref: null,
    response: { class: 'uncertain', reason: 'timeout' },
    closed_at: at(START_MS + 2_000),
    ...change,
  };
}

/** One recorded fact of the run's first round. */
export function evidence(kind: string, facts: JsonObject, change: Partial<Evidence> = {}): Evidence {
  return {
    evidence_id: `evd_${kind}`,
    revision: 4 as Revision,
    round: 1,
    kind,
    source_ref: `test:${kind}`,
    observed_at: at(START_MS),
    version_marker: '1',
    trusted: true,
    facts_digest: digestOf('cs.evidence.v1', canonicalJson(facts)),
    facts,
    ...change,
  };
}

export function proposal(body: JsonObject, change: Partial<Proposal> = {}): Proposal {
  return {
    proposal_id: 'prp_1',
    revision: 5 as Revision,
    author: 'rules',
    author_kind: 'rules',
    body,
    refusal: null,
    ...change,
  };
}

/** The run as a worker loads it. Throws when a builder made what the store could never hand out. */
export function loaded(run: Manifest, nowMs = START_MS): LoadedRun {
  return { manifest: Manifest.parse(run), nowMs, now: at(nowMs) };
}

/** The row's steering columns, as a commit hands them back. */
export function hotRow(run: Manifest, change: Partial<HotRow> = {}): HotRow {
  const { run_id, revision, state, evidence_complete, decisions_sufficient, retry_allowed, parked_reason, wake_at } =
    run;
  return {
    run_id,
    revision,
    state,
    evidence_complete,
    decisions_sufficient,
    retry_allowed,
    parked_reason,
    wake_at,
    tenant_in_line: 1,
    ...change,
  };
}
