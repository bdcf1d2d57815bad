import {
  type ApprovalDraft,
  backoffMs,
  canonicalJson,
  currentEvidence,
  cyclesRemain,
  type Digest,
  type Durations,
  digestOf,
  type EvidenceDraft,
  epochMs,
  evidenceSetDigest,
  type JsonObject,
  type Limits,
  type LoadedRun,
  type Manifest,
  type Proposal,
  type ProposalDraft,
  pendingProposal,
  type StopReasonCode,
  stopReason,
} from '@counterstamp/manifest-core';
import { deferral, type StageDecision } from '@counterstamp/stage-runtime';
import type { ApprovalTerms, Gathered, ProposalVerdict, Verdict, Workflow } from '@counterstamp/workflows';

type Terms = { durations: Durations; limits: Limits };

/** Ends the run with a reason; nothing was sent. */
export function stop(code: StopReasonCode, detail?: string): StageDecision {
  return { kind: 'commit', on: 'checks_failed', facts: { stop_reason: stopReason(code, detail) }, wake_in_ms: null };
}

/** The run's own deadline ends it before anything else is done. `undefined`: it still has time. */
export function decideDeadline(run: LoadedRun): StageDecision | undefined {
  if (run.nowMs < epochMs(run.manifest.deadlines.run)) return undefined;
  return {
    kind: 'commit',
    on: 'deadline_passed',
    facts: { stop_reason: stopReason('deadline_exceeded') },
    wake_in_ms: null,
  };
}

/** Every operation of the workflow is needed on the way to a verified effect: one that the run may not use stops it before anything is read. */
export function decideOperations(run: Manifest, workflow: Workflow): StageDecision | undefined {
  const missing = Object.keys(workflow.operations).filter((operation) => !run.allowed_operations.includes(operation));
  return missing.length === 0
    ? undefined
    : stop('operation_unavailable', `Not among the run's allowed operations: ${missing.join(', ')}.`);
}

/** A read that failed is counted and repeated after a back-off; at the limit the run stops. */
function decideReadFailure(
  run: Manifest,
  failure: { operation: string; reason: string },
  { durations, limits }: Terms,
): StageDecision {
  const failures = run.counters.read_failures + 1;
  if (failures >= limits.read_failures_max)
    return stop('attempt_limit', `${failure.operation} failed ${failures} times, last: ${failure.reason}.`);
  const { operation, reason } = failure;
  return {
    kind: 'commit',
    on: 'read_failed',
    facts: { read_failure: { operation, reason } },
    wake_in_ms: backoffMs(failures - 1, durations.look_min_ms, durations.look_max_ms),
  };
}

/** Queued: is there such a request in the tenant's own scope? Its record is the run's first evidence. */
export function decideRequest(
  run: LoadedRun,
  gathered: Gathered,
  verdict: Verdict | undefined,
  evidence: EvidenceDraft[],
  { durations }: Terms,
): StageDecision {
  if (gathered.kind === 'stop') return stop(gathered.code, gathered.detail);
  // Nothing is known yet that a counter could stand on: the run's own deadline bounds how often this is tried.
  if (gathered.kind === 'read_failed')
    return deferral(run, durations, 'read_failed', `${gathered.operation}: ${gathered.reason}`);
  if (verdict?.kind === 'stop') return stop(verdict.code, verdict.detail);
  if (verdict?.kind === 'read_failed')
    return deferral(run, durations, 'read_failed', `${verdict.operation}: ${verdict.reason}`);
  return { kind: 'commit', on: 'request_loaded', facts: { evidence }, wake_in_ms: durations.stage_lease_ms };
}

/** Preflight: is the request in scope, open and within bounds? */
export function decideScope(
  run: Manifest,
  gathered: Gathered,
  check: (records: Extract<Gathered, { kind: 'records' }>['records']) => Verdict,
  terms: Terms,
): StageDecision {
  if (gathered.kind === 'stop') return stop(gathered.code, gathered.detail);
  if (gathered.kind === 'read_failed') return decideReadFailure(run, gathered, terms);
  const verdict = check(gathered.records);
  if (verdict.kind === 'stop') return stop(verdict.code, verdict.detail);
  if (verdict.kind === 'read_failed') return decideReadFailure(run, verdict, terms);
  return { kind: 'commit', on: 'checks_passed', facts: {}, wake_in_ms: terms.durations.stage_lease_ms };
}

/** Collect: record what was read; stop when authoritative records disagree. */
export function decideEvidence(
  run: Manifest,
  gathered: Gathered,
  verdict: Verdict | undefined,
  evidence: EvidenceDraft[],
  terms: Terms,
): StageDecision {
  if (gathered.kind === 'stop') return stop(gathered.code, gathered.detail);
  if (gathered.kind === 'read_failed') return decideReadFailure(run, gathered, terms);
  if (verdict?.kind === 'read_failed') return decideReadFailure(run, verdict, terms);
  if (verdict?.kind === 'stop') {
    return {
      kind: 'commit',
      on: 'checks_failed',
      facts: { evidence, stop_reason: stopReason(verdict.code, verdict.detail) },
      wake_in_ms: null,
    };
  }
  const waitsOutside = run.proposer === 'external' && pendingProposal(run) === undefined;
  return {
    kind: 'commit',
    on: 'evidence_recorded',
    facts: { evidence, evidence_complete: true },
    wake_in_ms: waitsOutside ? terms.durations.proposal_wait_ms : terms.durations.stage_lease_ms,
  };
}

/** Propose, first half: take the proposal that waits, or the one that the rules make; one from outside may take its time, a bounded number of times. */
export function decideProposal(
  run: LoadedRun,
  workflow: Workflow,
  drafted: ProposalDraft | undefined,
  { durations }: Terms,
): StageDecision {
  const pending = pendingProposal(run.manifest);
  if (pending !== undefined) {
    return {
      kind: 'commit',
      on: 'proposal_received',
      facts: { proposal_id: pending.proposal_id },
      wake_in_ms: durations.stage_lease_ms,
    };
  }
  if (drafted !== undefined)
    return {
      kind: 'commit',
      on: 'proposal_received',
      facts: { proposal: drafted },
      wake_in_ms: durations.stage_lease_ms,
    };
  if (run.nowMs < epochMs(run.manifest.committed_at) + durations.proposal_wait_ms) {
    return { kind: 'nothing', reason: 'the proposal comes from outside and has not arrived' };
  }
  if (!cyclesRemain(run.manifest, workflow.limits.proposal_cycles_max))
    return stop('attempt_limit', 'No proposal arrived in time.');
  const read_failure = { operation: 'propose', reason: 'no proposal arrived in time' };
  return {
    kind: 'commit',
    on: 'proposal_asked_again',
    facts: { read_failure },
    wake_in_ms: durations.proposal_wait_ms,
  };
}

/** Propose, second half: refuse with a reason, or fix the exact bytes and ask for approval of them. */
export function decideAction(
  run: LoadedRun,
  proposal: Proposal,
  verdict: ProposalVerdict,
  workflow: Workflow,
  drawn: { approval_id: string; nonce: string },
  terms: Terms,
): StageDecision {
  const { manifest } = run;
  switch (verdict.kind) {
    case 'stop':
      return {
        kind: 'commit',
        on: 'checks_failed',
        facts: {
          proposal_refusal: { proposal_id: proposal.proposal_id, code: verdict.code, message: verdict.detail },
          stop_reason: stopReason(verdict.code, verdict.detail),
        },
        wake_in_ms: null,
      };
    case 'refused': {
      const proposal_refusal = { proposal_id: proposal.proposal_id, code: verdict.code, message: verdict.message };
      // The rules would only repeat themselves: another cycle helps nobody.
      if (proposal.author_kind === 'rules' || !cyclesRemain(manifest, workflow.limits.proposal_cycles_max)) {
        return {
          kind: 'commit',
          on: 'checks_failed',
          facts: { proposal_refusal, stop_reason: stopReason(verdict.code, `${verdict.message}.`) },
          wake_in_ms: null,
        };
      }
      return {
        kind: 'commit',
        on: 'proposal_refused',
        facts: { proposal_refusal },
        wake_in_ms: terms.durations.proposal_wait_ms,
      };
    }
    case 'accepted': {
      const canonical = canonicalJson(verdict.action);
      const digest = digestOf('cs.action.v1', canonical);
      return {
        kind: 'commit',
        on: 'action_fixed',
        facts: {
          action: { canonical, digest },
          approval_request: approvalRequest(
            run,
            verdict.action,
            digest,
            verdict.terms,
            workflow,
            drawn,
            terms.durations,
          ),
        },
        wake_in_ms: terms.durations.approval_life_ms,
      };
    }
  }
}

/** Everything that is bound together by an approval, in one canonical text. Never outlives the run. */
function approvalRequest(
  run: LoadedRun,
  action: JsonObject,
  action_digest: Digest,
  terms: ApprovalTerms,
  workflow: Workflow,
  drawn: { approval_id: string; nonce: string },
  durations: Durations,
): ApprovalDraft {
  const { manifest } = run;
  const display_canonical = canonicalJson(workflow.display(action));
  // A request may shorten its approval's life, never lengthen it.
  const lifeMs = Math.min(durations.approval_life_ms, manifest.approval_life_ms ?? Number.POSITIVE_INFINITY);
  const expiresMs = Math.min(run.nowMs + lifeMs, epochMs(manifest.deadlines.run));
  const canonical = canonicalJson({
    profile: 'cs.approval.v1',
    approval_id: drawn.approval_id,
    run_id: manifest.run_id,
    tenant_id: manifest.tenant_id,
    action_digest,
    action_revision: manifest.revision + 1,
    evidence_set_digest: evidenceSetDigest(currentEvidence(manifest)),
    display_digest: digestOf('cs.display.v1', display_canonical),
    policy: terms.policy,
    policy_version: terms.policy_version,
    policy_rule: terms.policy_rule,
    approvals_required: terms.approvals_required,
    groups_required: terms.groups_required,
    method: terms.method,
    break_glass: terms.break_glass,
    workflow: manifest.workflow,
    workflow_version: manifest.workflow_version,
    connector: manifest.connector,
    connector_version: manifest.connector_version,
    expires_at: new Date(expiresMs).toISOString(),
    nonce: drawn.nonce,
  });
  return {
    approval_id: drawn.approval_id,
    canonical,
    approval_digest: digestOf('cs.approval.v1', canonical),
    display_canonical,
    resource_key: workflow.resourceKey(manifest.tenant_id, action),
  };
}
