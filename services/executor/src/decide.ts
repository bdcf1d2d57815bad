import type { Outcome } from '@counterstamp/connectors';
import {
  backoffMs,
  type CommitFacts,
  canonicalJson,
  currentEvidence,
  cyclesRemain,
  type DispatchRefusal,
  type Durations,
  digestOf,
  dispatchGuards,
  EXPIRY_MARGIN_MS,
  epochMs,
  evidenceSetDigest,
  type JsonObject,
  type LoadedRun,
  type Manifest,
  type SendResult,
  type StopReasonCode,
  settleMs,
  stopReason,
  type TriggerFrom,
} from '@counterstamp/manifest-core';
import { deferral, type StageDecision } from '@counterstamp/stage-runtime';
import { type Fact, type Gathered, refuseOperation, type Workflow } from '@counterstamp/workflows';
import type { VerifiedDecisions } from './approvals.ts';

/** Go on to the dispatch, or what to do instead. */
export type DispatchDecision = Refusable | { kind: 'dispatch' };

/** A decision, and what about it somebody must be told at once: only tampering explains it. */
export type Refusable = StageDecision & { alarm?: Alarm };
export interface Alarm {
  code: Extract<StopReasonCode, (typeof ALARMING)[number]>;
  detail: string;
}

const EVIDENCE_ERASED = 'The evidence that the approval was based on has been erased.';

/** Stop reasons that no fault of a program or person leads to, as long as the database is left alone. */
const ALARMING = ['digest_mismatch', 'approval_invalid', 'approval_forged', 'evidence_altered'] as const;

function alarmOf(code: StopReasonCode, detail?: string): { alarm?: Alarm } {
  const alarming = ALARMING.find((one) => one === code);
  return alarming === undefined ? {} : { alarm: { code: alarming, detail: stopReason(code, detail).message } };
}

/**
 * What ends this try for good. Before the first dispatch it ends the run; a recorded retry is only taken back, and the reconciler goes on from
 * what it can still conclude (protocol rule 19).
 */
function refuse({ manifest }: LoadedRun, durations: Durations, code: StopReasonCode, detail?: string): Refusable {
  const alarm = alarmOf(code, detail);
  if (manifest.state === 'needs_reconciliation')
    return { ...retryRefused(manifest, durations, stopReason(code, detail).message), ...alarm };
  const facts = { stop_reason: stopReason(code, detail) };
  return { kind: 'commit', on: refusalOf(code), facts, wake_in_ms: null, ...alarm };
}

function refusalOf(code: StopReasonCode): TriggerFrom<'awaiting_approval'> {
  switch (code) {
    case 'approval_expired':
      return 'approval_expired';
    case 'deadline_exceeded':
      return 'deadline_passed';
    default:
      return 'dispatch_refused';
  }
}

function retryRefused(manifest: Manifest, durations: Durations, why: string): StageDecision {
  const code = manifest.stop_reason?.code ?? 'external_result_uncertain';
  return {
    kind: 'commit',
    on: 'retry_refused',
    facts: { stop_reason: stopReason(code, `The retry was refused: ${why}`) },
    wake_in_ms: durations.stage_lease_ms,
  };
}

/** The decisions no longer suffice: they are counted anew, and a recorded retry is taken back. */
function voided({ manifest }: LoadedRun, durations: Durations): StageDecision {
  return manifest.state === 'needs_reconciliation'
    ? retryRefused(manifest, durations, 'the approvals no longer suffice.')
    : { kind: 'commit', on: 'decision_voided', facts: {}, wake_in_ms: null };
}

/**
 * What the row alone says (protocol rule 5a, the cheap checks), for a first dispatch and for a recorded retry alike. `commit_dispatch` repeats
 * every one of them under the lock.
 */
export function decideFromRow(run: LoadedRun, workflow: Workflow | undefined, durations: Durations): DispatchDecision {
  const { manifest, nowMs } = run;
  if (nowMs >= epochMs(manifest.deadlines.run)) return refuse(run, durations, 'deadline_exceeded');
  const { approval, action } = manifest;
  if (approval === null || action === null) throw new Error('a run awaits its dispatch without an action');
  if (nowMs >= epochMs(approval.expires_at)) return refuse(run, durations, 'approval_expired');
  // An older worker beside newer ones, while versions roll: others can do it, and the approval's expiry bounds the wait.
  if (workflow === undefined)
    return deferral(
      run,
      durations,
      'not_installed',
      `workflow ${manifest.workflow} ${manifest.workflow_version} is not installed here`,
    );
  // The approval binds the connector's contract: another version may put other bytes on the wire for the same action.
  const { contract } = workflow.connector;
  if (contract.name !== manifest.connector || contract.version !== manifest.connector_version)
    return deferral(
      run,
      durations,
      'not_installed',
      `connector ${manifest.connector} ${manifest.connector_version} is not installed here`,
    );

  const failed = dispatchGuards(manifest, nowMs, durations).filter((guard) => !guard.pass);
  const names = new Set(failed.map((guard) => guard.guard));
  if (names.has('digest_matches')) return refuse(run, durations, 'digest_mismatch');
  if (names.has('revision_matches'))
    return refuse(run, durations, 'approval_invalid', 'The approval is for another action.');
  const impossible = impossibleDecision(manifest, approval);
  if (impossible !== undefined) return refuse(run, durations, ...impossible);
  // Who approved may have left, or lost a passkey: whoever else is entitled may still approve.
  if (names.has('decisions_sufficient')) return voided(run, durations);
  const forbidden = refuseOperation(workflow, manifest, workflow.effectOperation, 'write');
  if (names.has('operation_allowed') || forbidden !== undefined)
    return refuse(run, durations, 'policy_denied', `${forbidden ?? 'The operation is not allowed'}.`);
  const shape = workflow.action.safeParse(action.fields);
  if (!shape.success)
    return refuse(
      run,
      durations,
      'policy_denied',
      'The stored action is not of the form that this version of the workflow executes.',
    );
  // Asked by a release that bound less: nobody has seen what is asked today.
  if (!BOUND_SINCE_GROUPS.every((member) => Object.hasOwn(JSON.parse(approval.canonical) as JsonObject, member)))
    return askAnew(run, workflow, durations, 'The approval was asked for by an older release.');
  const unbound = unboundField(manifest, approval, action, workflow);
  if (unbound !== undefined)
    return refuse(
      run,
      durations,
      'approval_invalid',
      `What the approval binds as ${unbound} is not what it should be.`,
    );
  const altered = currentEvidence(manifest).find((item) => item.altered);
  if (altered !== undefined) return refuse(run, durations, 'evidence_altered', `It is ${altered.evidence_id}.`);
  // Before anything is read again: what the reads would go by is gone as well.
  if (manifest.erased_at !== null) return refuse(run, durations, 'precondition_failed', EVIDENCE_ERASED);
  // Too close to expiry to send safely: only the expiry itself can end the run now.
  if (names.has('approval_unexpired'))
    return {
      kind: 'defer',
      wake_in_ms: Math.max(1, epochMs(approval.expires_at) - nowMs),
      code: 'expires_too_soon',
      reason: 'expires too soon',
    };
  return { kind: 'dispatch' };
}

/** Members of an approval request that the first releases did not bind. */
const BOUND_SINCE_GROUPS = ['workflow', 'workflow_version', 'groups_required', 'method', 'break_glass'];

/** The decisions are void, and the same is asked again on fresh evidence; where that cannot be, the run or its retry ends. */
function askAnew(run: LoadedRun, workflow: Workflow, durations: Durations, why: string): Refusable {
  const { manifest } = run;
  if (manifest.state === 'needs_reconciliation') return refuse(run, durations, 'precondition_failed', why);
  if (!cyclesRemain(manifest, workflow.limits.proposal_cycles_max))
    return refuse(run, durations, 'precondition_failed', `${why} No cycle is left.`);
  return { kind: 'commit', on: 'evidence_changed', facts: {}, wake_in_ms: durations.stage_lease_ms };
}

/** Obstacles of a recorded decision that only a hand in the tables explains (`cs.decision_obstacle`). */
const IMPOSSIBLE: Readonly<Record<string, string>> = {
  not_in_history: 'is not in the history of the run',
  other_action: 'is about something else than what waits',
  unsigned: 'carries no signature of its approver',
};

/** A decision that no function of the database writes while the run waits; `undefined`: there is none. */
function impossibleDecision(
  { requested_by }: Manifest,
  { decisions }: NonNullable<Manifest['approval']>,
): [StopReasonCode, string] | undefined {
  const alien = decisions.find(({ obstacle }) => obstacle !== null && Object.hasOwn(IMPOSSIBLE, obstacle));
  if (alien !== undefined)
    return ['approval_forged', `Decision ${alien.decision_id} ${IMPOSSIBLE[alien.obstacle ?? '']}.`];
  if (decisions.some((decision) => decision.decision === 'reject'))
    return ['approval_invalid', 'An approver rejected.'];
  return decisions.some((decision) => decision.principal_id === requested_by)
    ? ['approval_invalid', 'The requester approved.']
    : undefined;
}

/**
 * Which of the bound things is not what this action, this run and this workflow make it; `undefined` when all are. The process that asked for the
 * approval stands next to text that nobody trusts: what it bound is derived again here, from the bytes and the records alone.
 */
function unboundField(
  manifest: Manifest,
  approval: NonNullable<Manifest['approval']>,
  action: NonNullable<Manifest['action']>,
  workflow: Workflow,
): string | undefined {
  // What was signed is the digest: the text says what it is of only as long as it has it.
  if (digestOf('cs.approval.v1', approval.canonical) !== approval.approval_digest) return 'approval_digest';
  const bound = JSON.parse(approval.canonical) as JsonObject;
  const display = canonicalJson(workflow.display(action.fields));
  const expected: JsonObject = {
    approval_id: approval.approval_id,
    run_id: manifest.run_id,
    tenant_id: manifest.tenant_id,
    action_digest: action.digest,
    action_revision: manifest.action_revision,
    evidence_set_digest: evidenceSetDigest(currentEvidence(manifest)),
    display_digest: digestOf('cs.display.v1', display),
    workflow: manifest.workflow,
    workflow_version: manifest.workflow_version,
    connector: workflow.contract.name,
    connector_version: workflow.contract.version,
    policy: approval.policy,
    policy_version: approval.policy_version,
    policy_rule: approval.policy_rule,
    approvals_required: approval.approvals_required,
    groups_required: approval.groups_required,
    method: approval.method,
    break_glass: approval.break_glass,
  };
  const differing = differingMember(bound, expected);
  if (differing !== undefined) return differing;
  const { expires_at } = bound;
  if (typeof expires_at !== 'string' || Date.parse(expires_at) !== epochMs(approval.expires_at)) return 'expires_at';
  if (canonicalJson(approval.display) !== display) return 'display';
  return manifest.resource_key === workflow.resourceKey(manifest.tenant_id, action.fields) ? undefined : 'resource_key';
}

/** The first member of `expected` that is not bound with exactly its value; `undefined`: all are. */
function differingMember(bound: JsonObject, expected: JsonObject): string | undefined {
  return Object.entries(expected).find(
    ([member, value]) => canonicalJson(bound[member] ?? null) !== canonicalJson(value),
  )?.[0];
}

/** What the signatures say: one approval that nobody made in this form ends the run, whatever the others are. `undefined`: enough of them hold. */
export function decideSigned(
  run: LoadedRun,
  { forged, suffices }: Pick<VerifiedDecisions, 'forged' | 'suffices'>,
  durations: Durations,
): Refusable | undefined {
  const [first] = forged;
  if (first === undefined) return suffices ? undefined : voided(run, durations);
  // An executor without keys knows nothing of a forgery: another one may judge, and the approval's expiry bounds the wait.
  if (first.fault === 'keys_missing') return deferral(run, durations, 'keys_missing', first.detail);
  return refuse(run, durations, 'approval_forged', `Decision ${first.decision_id}: ${first.fault} (${first.detail}).`);
}

/** What a fresh read of the preconditions says (protocol rule 5a). */
export function decideFromFresh(
  run: LoadedRun,
  workflow: Workflow,
  approved: readonly Fact[] | undefined,
  gathered: Gathered,
  durations: Durations,
): DispatchDecision {
  const { manifest } = run;
  if (gathered.kind === 'stop') return refuse(run, durations, 'policy_denied', gathered.detail);
  // Nothing was sent and nothing is known: the approval's own expiry bounds how often this is tried.
  if (gathered.kind === 'read_failed')
    return deferral(run, durations, 'read_failed', `${gathered.operation}: ${gathered.reason}`);
  if (manifest.action === null) throw new Error('a run awaits its dispatch without an action');
  const preconditions = workflow.preconditions(manifest.action.fields, gathered.records);
  if (preconditions.kind === 'fail') return refuse(run, durations, 'precondition_failed', preconditions.detail);
  // The policy of today asks somebody else or more: what was approved under the old one is asked anew.
  const { approval } = manifest;
  if (approval === null) throw new Error('a run awaits its dispatch without an approval');
  const samePolicy =
    differingMember(JSON.parse(approval.canonical) as JsonObject, { ...preconditions.terms }) === undefined;
  if (approved === undefined) return refuse(run, durations, 'precondition_failed', EVIDENCE_ERASED);
  const same =
    canonicalJson(workflow.materialFacts(approved)) === canonicalJson(workflow.materialFacts(gathered.records));
  if (same && samePolicy) return { kind: 'dispatch' };
  return askAnew(run, workflow, durations, 'The evidence changed since the approval.');
}

/** What to do when `commit_dispatch` refused. Nothing was written and nothing may be sent. */
export function decideRefusal(
  run: LoadedRun,
  refusal: { code: DispatchRefusal; detail: string },
  durations: Durations,
): Refusable {
  const { code, detail } = refusal;
  switch (code) {
    case 'digest_mismatch':
    case 'approval_invalid':
      return refuse(run, durations, code, `${detail}.`);
    case 'decisions_insufficient':
      return voided(run, durations);
    case 'operation_unavailable':
      return refuse(run, durations, 'policy_denied', `${detail}.`);
    case 'other_generation_open':
      return refuse(run, durations, 'precondition_failed', `${detail}.`);
    case 'approval_expired':
    case 'deadline_exceeded':
      return refuse(run, durations, code);
    case 'retry_invalid':
      return retryRefused(run.manifest, durations, `${detail}.`);
    case 'expires_too_soon':
      return { kind: 'defer', wake_in_ms: EXPIRY_MARGIN_MS + durations.epsilon_ms, code, reason: detail };
    case 'on_hold':
    case 'resource_busy':
      return deferral(run, durations, code, detail);
  }
}

/**
 * An outcome as far as it can be true: whether bytes left, and whether a reply came, the transport knows better than a connector. Pure.
 * `sent`: what the one send came to; `undefined` when the connector never sent.
 */
export function credibleOutcome(outcome: Outcome, sent: SendResult | undefined): Outcome {
  if (sent === undefined) return { class: 'not_sent', reason: 'the connector sent nothing' };
  switch (sent.kind) {
    case 'not_sent':
      return { class: 'not_sent', reason: sent.reason };
    case 'no_reply':
      return { class: 'uncertain', reason: sent.reason };
    case 'reply':
      return outcome.class === 'not_sent' ? { class: 'uncertain', reason: outcome.reason } : outcome;
  }
}

/** The move that an outcome leads to (protocol rule 12), with what it records. */
export interface OutcomeDecision {
  on: Extract<TriggerFrom<'executing'>, 'effect_accepted' | 'effect_rejected' | 'outcome_uncertain' | 'nothing_sent'>;
  facts: CommitFacts;
  wake_in_ms: number | null;
  /** Whether the provider said that the effect exists: what a lost swap must not lose. */
  applied: boolean;
}

/** `earlier`: the run's attempts before this one. A clear rejection speaks for the run only when all of them sent nothing. */
export function decideOutcome(
  attempt_id: string,
  earlier: Manifest['attempts'],
  outcome: Outcome,
  durations: Durations,
  visibilityMs: number,
): OutcomeDecision {
  const lookAtOnce = durations.stage_lease_ms;
  const close = (
    status: 'succeeded' | 'rejected' | 'not_sent' | 'uncertain',
    provider_ref: string | null,
    response: JsonObject,
  ) => ({
    attempt_outcome: { attempt_id, status, provider_ref, response },
  });
  switch (outcome.class) {
    case 'applied':
      return {
        on: 'effect_accepted',
        facts: close('succeeded', outcome.effect.provider_ref, {
          class: 'applied',
          effect: { ...outcome.effect },
          replayed: outcome.replayed,
        }),
        wake_in_ms: durations.stage_lease_ms,
        applied: true,
      };
    case 'not_sent':
      return {
        on: 'nothing_sent',
        facts: {
          ...close('not_sent', null, { ...outcome }),
          stop_reason: stopReason('not_sent', `(${outcome.reason})`),
        },
        wake_in_ms: lookAtOnce,
        applied: false,
      };
    case 'rejected':
      if (earlier.every((attempt) => attempt.status === 'not_sent')) {
        return {
          on: 'effect_rejected',
          facts: {
            ...close('rejected', null, { ...outcome }),
            stop_reason: stopReason('effect_rejected', `It answered ${outcome.code}.`),
          },
          // Looked at again once the effect could no longer begin unseen (rule 25).
          wake_in_ms: durations.call_deadline_ms + settleMs(durations, visibilityMs),
          applied: false,
        };
      }
      return uncertain(outcome.code);
    case 'retry_safe':
    case 'uncertain':
      return uncertain(outcome.reason);
  }

  function uncertain(reason: string): OutcomeDecision {
    return {
      on: 'outcome_uncertain',
      facts: {
        ...close('uncertain', null, { ...outcome }),
        stop_reason: stopReason('external_result_uncertain', `(${reason})`),
      },
      wake_in_ms: lookAtOnce,
      applied: false,
    };
  }
}

/** Milliseconds before the next try to commit an outcome while the database is away. */
export function outcomeRetryMs(tries: number): number {
  return backoffMs(tries, 100, 2_000);
}
