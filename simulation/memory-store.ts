import {
  type AuditEntry,
  attemptOverdue,
  type CommitFacts,
  type CommitOutcome,
  canonicalJson,
  type DispatchCommit,
  type DispatchOutcome,
  type DispatchRefusal,
  type DueRun,
  digestOf,
  effectWasSeen,
  eventHash,
  factsDigest,
  type HotRow,
  type Ids,
  idempotencyKey,
  isClosed,
  type JsonObject,
  type JsonValue,
  type LoadedRun,
  mayCloseAbsent,
  mayDispatch,
  mayRetry,
  type NewRun,
  nothingLeft,
  type RetryFacts,
  type RetryGrounds,
  type RunId,
  type Service,
  type StageCommit,
  type State,
  type Store,
  type StoredEvent,
  sha256Text,
  stopReason,
  type Trigger,
  transitionRule,
} from '@counterstamp/manifest-core';
import type { ApiStore, InstanceEnd, Principal, PrincipalRef, Role } from '@counterstamp/manifest-store';

import {
  type Approval,
  type Attempt,
  addProposal,
  type Decision,
  type Evidence,
  evidenceOfEffect,
  hotRow,
  iso,
  lastDeadlineMs,
  type MemoryRun,
  manifestOf,
  observation,
  type Row,
  retrySafeIn,
  type StoredApproval,
  type StoredAttempt,
  type StoredDecision,
} from './memory-run.ts';

/** Runs that come up within this time count as in line, in milliseconds, and no more of them than this. */
const IN_LINE_MS = 120_000;
const IN_LINE_MAX = 1_025;

/** Members of an approval request as the product writes it. */
type Bound = Record<string, string | number> & { groups_required?: Approval['groups_required']; break_glass?: boolean };

/**
 * Rules that stand in SQL and that only the simulation's constructor can leave out. Each is one line of `cs.commit_*`; see protocol.md section 4.
 */
export const STORE_RULES = [
  'swap-on-revision',
  'swap',
  'decisions-in-commit',
  'digest-in-commit',
  'expiry-in-commit',
  'hold-in-commit',
  'one-in-flight',
  'other-generation',
  'retry-rechecks-approval',
  'retention-in-commit',
  'settle-in-commit',
  'evidence-blocks-retry',
  'reject-only-if-first',
  'person-absent-needs-settle',
  'person-absent-needs-fence',
  'reopen-on-evidence',
  'closure-audit',
  'successor-after-closure-look',
  'park',
  'expirer',
] as const;
export type StoreRule = (typeof STORE_RULES)[number];

/** What the database refuses with an SQLSTATE of our own: a worker that asks for it has a bug. */
export class StoreRefusal extends Error {
  override readonly name = 'StoreRefusal';
  readonly code: string;
  constructor(code: string, message: string) {
    super(message);
    this.code = code;
  }
}

export type MemoryApi = Pick<
  ApiStore,
  | 'createRun'
  | 'load'
  | 'events'
  | 'commit'
  | 'decide'
  | 'holds'
  | 'setHold'
  | 'audit'
  | 'verdict'
  | 'support'
  | 'fence'
>;

export interface MemoryInstance {
  instance_id: string;
  service: string;
  startedMs: number;
  beatMs: number;
  leaseMs: number | null;
  leaseLostMs: number | null;
  leaseHeld: boolean;
  endedMs: number | null;
  endedBy: string | null;
  rotated: boolean;
}

interface KnownPrincipal {
  tenant_id: string;
  principal_id: string;
  roles: Set<Role>;
}

/** Who commits: a worker under its login, or the api for a principal. */
export type StageCommitter =
  | { service: Exclude<Service, 'api'>; instance_id: string }
  | { service: 'api'; who: PrincipalRef };

/** Told right after every commit of a run, while nothing else can have happened: what the invariants are checked on. */
export type CommitListener = (run: MemoryRun, event: StoredEvent) => void;

/** What each service may be asked to wait with. */
const DEFERRABLE: Partial<Record<Service, readonly State[]>> = {
  preflight: ['queued', 'preflight', 'collecting', 'proposed'],
  executor: ['awaiting_approval', 'needs_reconciliation'],
  verifier: ['verifying'],
  reconciler: ['needs_reconciliation', 'failed', 'completed'],
};
const DEFER_MAX_MS = 3_600_000;
const HAVE_FUNCTIONS: ReadonlySet<string> = new Set([
  'request_accepted',
  'dispatched',
  'retry_dispatched',
  'decision_recorded',
  'approval_rejected',
  'person_unsure',
  'person_landed',
  'person_absent',
  'person_settled_with_difference',
]);
const CLOSED_WITHOUT_EFFECT: ReadonlySet<State> = new Set<State>(['rejected', 'expired', 'failed']);
const STOPPED: ReadonlySet<State> = new Set<State>(['rejected', 'expired', 'failed', 'needs_reconciliation']);
const HAVE_ATTEMPT: ReadonlySet<State> = new Set<State>([
  'executing',
  'verifying',
  'completed',
  'needs_reconciliation',
]);
const HAVE_ACTION: ReadonlySet<State> = new Set<State>([...HAVE_ATTEMPT, 'awaiting_approval']);
const IN_DOUBT: ReadonlySet<State> = new Set<State>(['executing', 'needs_reconciliation']);

/**
 * The functions of `cs` in memory, one statement after the other without an await, hence each a transaction. Kept equal to Postgres by the
 * contract suite that both pass (testing/store-contract.ts).
 */
export class MemoryStore {
  readonly runs = new Map<RunId, MemoryRun>();
  readonly instances = new Map<string, MemoryInstance>();
  readonly audits: (AuditEntry & { atMs: number; service: Service })[] = [];
  readonly #principals = new Map<string, KnownPrincipal>();
  readonly #holds = new Map<string, string>();
  readonly #now: () => number;
  readonly #without: ReadonlySet<StoreRule>;
  readonly #onCommit: CommitListener;

  constructor(options: { nowMs: () => number; without?: Iterable<StoreRule>; onCommit?: CommitListener }) {
    this.#now = options.nowMs;
    this.#without = new Set(options.without ?? []);
    this.#onCommit = options.onCommit ?? (() => undefined);
  }

  #keeps(rule: StoreRule): boolean {
    return !this.#without.has(rule);
  }

  addPrincipal(who: Principal): void {
    const known = this.#principals.get(who.principal_id);
    if (known === undefined) this.#principals.set(who.principal_id, { ...who, roles: new Set([who.role]) });
    else known.roles.add(who.role);
  }

  #isPerson(tenant: string, principal: string, role: Role): boolean {
    const known = this.#principals.get(principal);
    return known?.tenant_id === tenant && known.roles.has(role);
  }

  isApprover(tenant: string, principal: string): boolean {
    return this.#isPerson(tenant, principal, 'approver');
  }

  /** Takes a person's key away. */
  revoke(principal: string, role: Role): void {
    this.#principals.get(principal)?.roles.delete(role);
  }

  isHeld(connector: string): boolean {
    return this.#holds.has('*') || this.#holds.has(connector);
  }

  /** When a sweep would claim something next, for a scheduler that jumps from one instant to the next. */
  nextWakeMs(lease_loss_ms: number): number {
    let next = Number.POSITIVE_INFINITY;
    for (const run of this.runs.values()) {
      if (run.wakeMs !== null && run.wakeMs < next) next = run.wakeMs;
      if (run.state !== 'executing') continue;
      const open = run.attemptRows.find((attempt) => attempt.status === 'started');
      const lostMs = open && this.instances.get(open.instance_id)?.leaseLostMs;
      if (lostMs !== undefined && lostMs !== null) next = Math.min(next, lostMs + lease_loss_ms);
    }
    return next;
  }

  /** Whether a sweep would claim anything now. */
  anyDue(lease_loss_ms: number): boolean {
    const now = this.#now();
    for (const run of this.runs.values()) {
      if (run.wakeMs !== null && run.wakeMs <= now) return true;
      if (run.state === 'executing' && this.#leaseLooksLost(run, lease_loss_ms)) return true;
    }
    return false;
  }

  #leaseLooksLost(run: MemoryRun, lease_loss_ms: number): boolean {
    const open = run.attemptRows.find((attempt) => attempt.status === 'started');
    const instance = open && this.instances.get(open.instance_id);
    if (instance === undefined) return false;
    return (
      instance.endedMs !== null ||
      (instance.leaseMs !== null &&
        !instance.leaseHeld &&
        (instance.leaseLostMs === null || instance.leaseLostMs + lease_loss_ms <= this.#now()))
    );
  }

  // ------------------------------------------------------------------------------------------------------------ instances

  takeLease(instance_id: string): boolean {
    const now = this.#now();
    const instance = this.#instance(instance_id, 'executor');
    if (instance.endedMs !== null || instance.leaseHeld) return false;
    instance.leaseHeld = true;
    instance.leaseMs ??= now;
    instance.leaseLostMs = null;
    instance.beatMs = now;
    return true;
  }

  /** The session is gone: its process ended, or its connection broke. */
  dropLease(instance_id: string): void {
    const instance = this.instances.get(instance_id);
    if (instance !== undefined) instance.leaseHeld = false;
  }

  beat(instance_id: string, service: string): void {
    const instance = this.#instance(instance_id, service);
    if (instance.endedMs === null) instance.beatMs = this.#now();
  }

  endInstance(instance_id: string, by: 'self' | 'supervisor'): InstanceEnd {
    const instance = this.instances.get(instance_id);
    if (instance === undefined) return 'instance_unknown';
    if (instance.endedMs !== null) return 'already_ended';
    instance.endedMs = this.#now();
    instance.endedBy = by;
    return 'ended';
  }

  #instance(instance_id: string, service: string): MemoryInstance {
    let instance = this.instances.get(instance_id);
    if (instance === undefined) {
      const now = this.#now();
      instance = {
        instance_id,
        service,
        startedMs: now,
        beatMs: now,
        leaseMs: null,
        leaseLostMs: null,
        leaseHeld: false,
        endedMs: null,
        endedBy: null,
        rotated: false,
      };
      this.instances.set(instance_id, instance);
    }
    return instance;
  }

  // ------------------------------------------------------------------------------------------------------------ reads

  load(run_id: RunId, tenant: string | null = null): LoadedRun | undefined {
    const run = this.runs.get(run_id);
    if (run === undefined || (tenant !== null && run.made.tenant_id !== tenant)) return undefined;
    const nowMs = this.#now();
    return { manifest: manifestOf(run), now: iso(nowMs), nowMs };
  }

  // ------------------------------------------------------------------------------------------------------------ commits

  /** `cs.apply_transition`: the one place that changes a run. */
  #apply(
    run: MemoryRun,
    service: Service,
    on: Trigger,
    to: State,
    actor: string,
    set: Partial<Row>,
    refs: JsonObject,
    now: number,
    wakeMs: number | null,
  ): void {
    const rule = transitionRule(run.state, on);
    if (rule === undefined || rule.to !== to || !rule.by.includes(service))
      throw new StoreRefusal('CS001', `illegal move: ${run.state} on ${on} to ${to} by ${service}`);
    const from = run.state;
    const changed: Partial<Row> = { ...set, state: to };
    if (rule.counts !== undefined) changed[rule.counts] = run[rule.counts] + 1;
    if (STOPPED.has(to)) {
      if (changed.stop_reason === undefined && (run.stop_reason === null || from !== to))
        throw new StoreRefusal('CS003', 'a stop needs its reason');
    } else if (run.stop_reason !== null) changed.stop_reason = null;
    if (to !== 'needs_reconciliation') {
      if (run.parked_reason !== null) changed.parked_reason = null;
      if (run.retry_allowed) changed.retry_allowed = false;
    }
    if (run.in_flight_key !== null && !IN_DOUBT.has(to)) changed.in_flight_key = null;
    if (from === 'awaiting_approval' && to === 'collecting') {
      changed.action_revision = null;
      changed.approval_id = null;
      changed.approvalExpiresMs = null;
      changed.decisions_sufficient = false;
      changed.resource_key = null;
    }
    changed.wakeMs = wakeMs !== null && run.deadlineMs > now ? Math.min(wakeMs, run.deadlineMs) : wakeMs;
    if (!this.#keeps('closure-audit') && (to === 'failed' || to === 'completed')) changed.wakeMs = null;
    if (!this.#keeps('park') && on === 'parked') {
      changed.parked_reason = null;
      changed.wakeMs = now + 1_000;
    }
    this.#checkRow(run, changed);
    Object.assign(run, changed);
    run.revision += 1;
    run.committedMs = now;
    if (from !== to) run.stateSinceMs = now;
    const { wakeMs: _wake, approvalExpiresMs, ...columns } = changed;
    const expiry =
      approvalExpiresMs === undefined
        ? {}
        : { approval_expires_at: approvalExpiresMs === null ? null : iso(approvalExpiresMs) };
    this.#append(run, from, to, on, actor, { set: { ...columns, ...expiry } as JsonObject, refs }, now);
  }

  /** The CHECK constraints of cs.run, on the row as it would become. */
  #checkRow(run: MemoryRun, changed: Partial<Row>): void {
    const next: Row = { ...run, ...changed };
    const { state, parked_reason, stop_reason, retry_allowed, in_flight_key } = next;
    const doubt = state === 'needs_reconciliation';
    const check = (name: string, holds: boolean) => {
      if (!holds) throw new StoreRefusal('23514', name);
    };
    check('run_due_or_parked', isClosed(state) || next.wakeMs !== null || parked_reason !== null);
    check('run_stop_reason_iff_stopped', (stop_reason !== null) === STOPPED.has(state));
    check('run_parked_only_in_doubt', parked_reason === null || doubt);
    check('run_retry_only_in_doubt', !retry_allowed || (doubt && parked_reason === null));
    check('run_executing_holds_resource', state !== 'executing' || in_flight_key !== null);
    check('run_in_flight_only_in_doubt', in_flight_key === null || IN_DOUBT.has(state));
    check('run_action_before_approval', !HAVE_ACTION.has(state) || next.action_revision !== null);
    check('run_attempt_before_effect', !HAVE_ATTEMPT.has(state) || next.attempts >= 1);
    check('run_approval_within_run', next.approvalExpiresMs === null || next.approvalExpiresMs <= run.deadlineMs);
    if (changed.in_flight_key !== undefined && in_flight_key !== null && this.#keeps('one-in-flight'))
      if (this.#others(run).some((other) => other.in_flight_key === in_flight_key))
        throw new StoreRefusal('23505', 'run_in_flight');
  }

  #append(
    run: MemoryRun,
    from: State | null,
    to: State,
    trigger: Trigger,
    actor: string,
    body: JsonObject,
    now: number,
  ): void {
    const payload = JSON.stringify(body);
    const record = {
      run_id: run.made.run_id,
      revision: run.revision,
      from,
      to,
      trigger,
      actor,
      at_us: `${now}000`,
      payload_digest: sha256Text(payload),
      previous_hash: run.events.at(-1)?.hash ?? null,
    };
    const hash = eventHash(record);
    const event = { ...record, payload, hash };
    run.events.push(event);
    run.chain_head = hash;
    this.#onCommit(run, event);
  }

  #swap(run_id: RunId, expected: number, from: State): MemoryRun | undefined {
    const run = this.runs.get(run_id);
    if (run === undefined) return undefined;
    if (!this.#keeps('swap')) {
      // A blind write: it puts down what its writer believed.
      run.state = from;
      return run;
    }
    if (run.state !== from) return undefined;
    return run.revision === expected || !this.#keeps('swap-on-revision') ? run : undefined;
  }

  /** All or nothing: what a refused commit had written is taken back. */
  #transaction<T>(run: MemoryRun | undefined, work: () => T): T {
    if (run === undefined) return work();
    const { evidence, proposals, attemptRows, observations, actions, approvals, decisions } = run;
    const kept = [[...proposals], [...attemptRows]] as const;
    const lengths = [evidence.length, observations.length] as const;
    const actionKeys = new Set(actions.keys());
    const votes = [...decisions].map(([id, list]) => [id, list, list.length] as const);
    try {
      return work();
    } catch (error) {
      proposals.splice(0, proposals.length, ...kept[0]);
      attemptRows.splice(0, attemptRows.length, ...kept[1]);
      evidence.length = lengths[0];
      observations.length = lengths[1];
      for (const key of [...actions.keys()]) if (!actionKeys.has(key)) actions.delete(key);
      const known = new Set(votes.map(([id]) => id));
      for (const id of [...approvals.keys()]) if (!known.has(id)) approvals.delete(id);
      for (const id of [...decisions.keys()]) if (!known.has(id)) decisions.delete(id);
      for (const [, list, length] of votes) list.length = length;
      throw error;
    }
  }

  commitStage(by: StageCommitter, commit: StageCommit): CommitOutcome {
    return this.#transaction(this.runs.get(commit.run_id), () => this.#commitStage(by, commit));
  }

  #commitStage(by: StageCommitter, commit: StageCommit): CommitOutcome {
    const { on, to, facts } = commit;
    const run = this.#swap(commit.run_id, commit.expected, commit.from);
    if (run === undefined || ('who' in by && run.made.tenant_id !== by.who.tenant_id))
      return { kind: 'stale_revision' };
    const now = this.#now();
    if (on === 'late_effect_found' && !this.#keeps('reopen-on-evidence')) return { kind: 'stale_revision' };
    if (HAVE_FUNCTIONS.has(on)) throw new StoreRefusal('CS001', `${on} has a function of its own`);
    const rule = transitionRule(run.state, on);
    for (const name of Object.keys(facts))
      if (rule === undefined || !(rule.facts as readonly string[]).includes(name))
        throw new StoreRefusal('CS002', `${on} may not write ${name}`);
    for (const name of rule?.requires ?? [])
      if (!(name in facts)) throw new StoreRefusal('CS002', `${on} must write ${name}`);
    if (
      (commit.from === 'executing' && rule?.attempt !== facts.attempt_outcome?.status) ||
      (rule?.observation !== undefined && rule.observation !== facts.observation?.kind)
    )
      throw new StoreRefusal('CS002', `${on} carries another outcome than its own`);
    if (
      on === 'effect_rejected' &&
      this.#keeps('reject-only-if-first') &&
      run.attemptRows.some((attempt) => attempt.status !== 'started' && attempt.status !== 'not_sent')
    )
      throw new StoreRefusal('CS003', 'an earlier attempt may have had the effect');
    if (
      on === 'never_sent' &&
      (run.attemptRows.some((attempt) => attempt.status !== 'not_sent') || this.#evidenceOfEffect(run))
    )
      throw new StoreRefusal('CS003', 'an attempt may have been sent');
    const set: Partial<Row> = {};
    const refs: JsonObject = {};
    if (on === 'retry_recorded' || on === 'resend_recorded') {
      if (facts.retry_grounds === undefined) throw new StoreRefusal('CS002', `${on} must write retry_grounds`);
      const refusal = this.#retryRefusal(run, now, facts.retry_grounds, false);
      if (refusal === 'evidence_stands' || refusal === 'approval_expired' || refusal === 'key_too_old')
        return { kind: 'stale_revision' };
      if (refusal !== null || (on === 'resend_recorded') !== nothingLeft(run.attemptRows))
        throw new StoreRefusal('CS004', `the retry is refused: ${refusal ?? 'of another kind'}`);
      set.retry_allowed = true;
    }
    if (on === 'attempt_overdue' && this.#isOvertaken(run, facts, now)) return { kind: 'stale_revision' };
    if (on === 'action_fixed' && expiryOf(facts) <= now) return { kind: 'stale_revision' };
    if (on === 'retry_refused') {
      if (!run.retry_allowed) throw new StoreRefusal('CS003', 'no retry is recorded');
      set.retry_allowed = false;
    }
    if (
      (on === 'approval_expired' && run.approvalExpiresMs !== null && now < run.approvalExpiresMs) ||
      (on === 'deadline_passed' && now < run.deadlineMs)
    )
      throw new StoreRefusal('CS004', `${on} before its time`);

    const revision = run.revision + 1;
    if (facts.evidence !== undefined) {
      set.evidence_round = run.evidence_round + 1;
      refs.evidence = this.#recordEvidence(run, revision, facts.evidence);
    }
    if (facts.evidence_complete !== undefined) set.evidence_complete = facts.evidence_complete;
    if (on === 'evidence_changed') set.evidence_complete = false;
    if (on === 'checks_passed') set.read_failures = 0;
    if (on === 'decision_voided') set.decisions_sufficient = false;
    if (facts.proposal !== undefined) {
      addProposal(run, revision, facts.proposal);
      refs.proposal_id = facts.proposal.proposal_id;
      refs.proposal_digest = facts.proposal.body_digest;
    }
    if (facts.proposal_id !== undefined) refs.proposal_id = facts.proposal_id;
    if (facts.proposal_refusal !== undefined) {
      const refused = facts.proposal_refusal;
      const index = run.proposals.findIndex((proposal) => proposal.proposal_id === refused.proposal_id);
      const proposal = run.proposals[index];
      if (proposal === undefined) throw new StoreRefusal('CS003', 'the refused proposal is not of this run');
      run.proposals[index] = { ...proposal, refusal: { code: refused.code, message: refused.message } };
      refs.proposal_refusal = { ...refused };
    }
    if (facts.read_failure !== undefined) refs.read_failure = { ...facts.read_failure };

    let wakeMs: number | null;
    if (on === 'action_fixed') {
      const approval = this.#fixAction(run, commit.expected + 1, facts, now, set);
      wakeMs = approval.expiresMs;
      refs.action_digest = approval.action_digest;
      refs.approval_digest = approval.approval_digest;
    } else if (to === 'awaiting_approval') wakeMs = run.approvalExpiresMs;
    else wakeMs = commit.wake_in_ms === null ? null : now + commit.wake_in_ms;

    if (facts.attempt_outcome !== undefined) {
      const outcome = facts.attempt_outcome;
      const index = run.attemptRows.findIndex((attempt) => attempt.attempt_id === outcome.attempt_id);
      const attempt = run.attemptRows[index];
      if (attempt?.status !== 'started')
        throw new StoreRefusal('CS003', `no open attempt ${outcome.attempt_id} that this may close`);
      run.attemptRows[index] = {
        ...attempt,
        status: outcome.status,
        provider_ref: outcome.provider_ref,
        response: outcome.response,
        closed_at: iso(now),
        closedMs: now,
      };
      refs.attempt = { ...outcome };
    }
    if (facts.observation !== undefined) {
      run.observations.push(observation(revision, now, facts.observation));
      refs.observation = { ...facts.observation };
    }
    if (facts.retry_grounds !== undefined) refs.retry_grounds = { ...facts.retry_grounds };
    if (facts.parked_reason !== undefined) {
      set.parked_reason = facts.parked_reason;
      set.retry_allowed = false;
    }
    if (facts.stop_reason !== undefined) set.stop_reason = facts.stop_reason;
    const actor = 'who' in by ? `principal/${by.who.principal_id}` : `${by.service}/${by.instance_id}`;
    this.#apply(run, by.service, on, to, actor, set, refs, now, wakeMs);
    return { kind: 'committed', row: this.#hot(run) };
  }

  #recordEvidence(run: MemoryRun, revision: number, drafts: NonNullable<CommitFacts['evidence']>): JsonValue {
    return drafts.map((draft) => {
      run.evidence.push({
        evidence_id: draft.evidence_id,
        revision: revision as Evidence['revision'],
        round: run.evidence_round + 1,
        kind: draft.kind,
        source_ref: draft.source_ref,
        observed_at: draft.observed_at,
        version_marker: draft.version_marker,
        trusted: draft.trusted,
        facts_digest: draft.facts_digest,
        facts: JSON.parse(draft.facts_canonical) as JsonValue,
        attempt_id: null,
      });
      return {
        evidence_id: draft.evidence_id,
        source_ref: draft.source_ref,
        version_marker: draft.version_marker,
        facts_digest: draft.facts_digest,
      };
    });
  }

  /** Whether the attempt is its worker's again: its deadline lies ahead, and its instance holds its lease. */
  #isOvertaken(run: MemoryRun, facts: CommitFacts, now: number): boolean {
    const attempt = run.attemptRows.find((one) => one.attempt_id === facts.attempt_outcome?.attempt_id);
    if (attempt?.status !== 'started' || now >= attempt.deadlineMs) return false;
    const instance = this.instances.get(attempt.instance_id);
    return instance === undefined || (instance.endedMs === null && instance.leaseLostMs === null);
  }

  #fixAction(
    run: MemoryRun,
    action_revision: number,
    facts: CommitFacts,
    now: number,
    set: Partial<Row>,
  ): StoredApproval {
    const { action, approval_request: asked } = facts;
    const { made } = run;
    const bound = asked === undefined ? undefined : (JSON.parse(asked.canonical) as Bound);
    const expiresMs = Date.parse(String(bound?.expires_at));
    if (
      action === undefined ||
      asked === undefined ||
      bound === undefined ||
      bound.run_id !== made.run_id ||
      bound.action_revision !== action_revision ||
      bound.action_digest !== action.digest ||
      bound.approval_id !== asked.approval_id ||
      bound.connector !== made.connector ||
      bound.connector_version !== made.connector_version ||
      bound.tenant_id !== made.tenant_id ||
      (made.approval_life_ms !== null && expiresMs > now + made.approval_life_ms) ||
      bound.display_digest !== digestOf('cs.display.v1', asked.display_canonical)
    )
      throw new StoreRefusal('CS003', 'the approval request does not bind this action');
    if (run.actions.has(action_revision)) throw new StoreRefusal('23505', 'action_pkey');
    run.actions.set(action_revision, {
      canonical: action.canonical,
      digest: action.digest,
      fields: JSON.parse(action.canonical) as JsonObject,
    });
    const approval: StoredApproval = {
      approval_id: asked.approval_id,
      approval_digest: asked.approval_digest,
      canonical: asked.canonical,
      action_digest: action.digest,
      action_revision: action_revision as Approval['action_revision'],
      approvals_required: Number(bound.approvals_required),
      groups_required: bound.groups_required ?? {},
      method: (bound.method ?? 'session') as Approval['method'],
      break_glass: bound.break_glass === true,
      policy: String(bound.policy),
      policy_version: Number(bound.policy_version),
      policy_rule: String(bound.policy_rule),
      display: JSON.parse(asked.display_canonical) as Approval['display'],
      expires_at: iso(expiresMs),
      decisions: [],
      bound,
      expiresMs,
      display_canonical: asked.display_canonical,
    };
    run.approvals.set(approval.approval_id, approval);
    run.decisions.set(approval.approval_id, []);
    set.action_revision = action_revision;
    set.approval_id = approval.approval_id;
    set.approvalExpiresMs = expiresMs;
    set.resource_key = asked.resource_key;
    set.decisions_sufficient = false;
    return approval;
  }

  #evidenceOfEffect(run: MemoryRun): boolean {
    return evidenceOfEffect(run);
  }

  /** `cs.retry_refusal`. `recorded`: what the look-up showed has been judged. */
  #retryRefusal(
    run: MemoryRun,
    now: number,
    grounds: Pick<RetryGrounds, 'retention_ms' | 'reserve_ms' | 'expiry_margin_ms'> & Partial<RetryGrounds>,
    recorded: boolean,
  ): string | null {
    const sends = run.attemptRows.filter((attempt) => attempt.status !== 'not_sent');
    const { observed_at = null, settle_ms = 0, not_sent_retries_max = 0 } = grounds;
    const observedMs = observed_at === null ? null : Date.parse(observed_at);
    const facts: RetryFacts = {
      attempts: run.attemptRows.map((attempt) =>
        attempt.status === 'uncertain'
          ? { status: 'uncertain', retry_safe_in: retrySafeIn(attempt, now) }
          : { status: attempt.status },
      ),
      evidence_of_effect: this.#keeps('evidence-blocks-retry') && this.#evidenceOfEffect(run),
      retries_refused: run.retries_refused,
      until_expiry: this.#keeps('retry-rechecks-approval')
        ? (run.approvalExpiresMs ?? 0) - now
        : Number.MAX_SAFE_INTEGER,
      expiry_margin: grounds.expiry_margin_ms,
      not_sent_retries: recorded ? 0 : run.not_sent_retries,
      not_sent_retries_max: recorded ? 1 : not_sent_retries_max,
      absence:
        recorded || !this.#keeps('settle-in-commit')
          ? { since_deadline: 0, settle: 0 }
          : observedMs === null || observedMs > now
            ? null
            : { since_deadline: observedMs - lastDeadlineMs(run), settle: settle_ms },
      key: grounds.retention_ms === null ? null : { retention: grounds.retention_ms },
      since_first_send: sends.length === 0 ? 0 : now - Math.min(...sends.map((attempt) => attempt.startedMs)),
      reserve: this.#keeps('retention-in-commit') ? grounds.reserve_ms : Number.NEGATIVE_INFINITY,
    };
    const refusal = mayRetry(facts);
    return refusal === 'after_not_sent' || refusal === 'after_absence' || refusal === 'after_retry_safe'
      ? null
      : refusal;
  }

  commitDispatch(instance_id: string, commit: DispatchCommit): DispatchOutcome {
    return this.#transaction(this.runs.get(commit.run_id), () => this.#commitDispatch(instance_id, commit));
  }

  #commitDispatch(instance_id: string, commit: DispatchCommit): DispatchOutcome {
    const from = commit.retry === null ? 'awaiting_approval' : 'needs_reconciliation';
    const run = this.#swap(commit.run_id, commit.expected, from);
    if (run === undefined) return { kind: 'stale_revision' };
    const now = this.#now();
    const refused = (code: DispatchRefusal, detail = ''): DispatchOutcome => ({ kind: 'refused', code, detail });
    const approval = run.approval_id === null ? undefined : run.approvals.get(run.approval_id);
    const action = run.action_revision === null ? undefined : run.actions.get(run.action_revision);
    if (commit.retry !== null) {
      let why: string | null = run.retry_allowed
        ? this.#retryRefusal(run, now, { ...commit.retry, expiry_margin_ms: 0 }, true)
        : 'no retry is recorded';
      if (why === null && run.attemptRows.some((attempt) => attempt.request_digest !== commit.request_digest))
        why = 'the bytes are not those of the first attempt';
      if (why !== null && why !== 'approval_expired') return refused('retry_invalid', why);
    }
    if (approval === undefined || action === undefined)
      return refused('approval_invalid', 'the approval request is not what its digest says');
    const decisions = run.decisions.get(approval.approval_id) ?? [];
    const rechecks = commit.retry === null || this.#keeps('retry-rechecks-approval');
    const expiryChecked = this.#keeps('expiry-in-commit') && rechecks;
    const far = Number.MAX_SAFE_INTEGER;
    const { operation } = action.fields;
    const code = mayDispatch({
      approval_bound:
        approval.action_revision === run.action_revision &&
        digestOf('cs.approval.v1', approval.canonical) === approval.approval_digest &&
        approval.bound.action_digest === approval.action_digest &&
        approval.bound.run_id === run.made.run_id &&
        approval.bound.approvals_required === approval.approvals_required,
      digest_matches:
        !this.#keeps('digest-in-commit') ||
        (digestOf('cs.action.v1', action.canonical) === approval.action_digest &&
          commit.action_digest === approval.action_digest &&
          commit.approval_digest === approval.approval_digest),
      rejected: this.#keeps('decisions-in-commit') && decisions.some((decision) => decision.decision === 'reject'),
      approvals: this.#keeps('decisions-in-commit')
        ? this.#approvals(run, approval, commit.count_dev_keys, commit.decision_ids)
        : far,
      approvals_required: approval.approvals_required,
      operation_allowed:
        typeof operation === 'string' &&
        run.made.allowed_operations.includes(operation) &&
        operation === commit.operation,
      until_expiry: expiryChecked ? approval.expiresMs - now : far,
      until_run_deadline: run.deadlineMs - now,
      expiry_margin: commit.expiry_margin_ms,
      other_generation_open:
        this.#keeps('other-generation') &&
        this.#others(run).some(
          (other) =>
            other.made.tenant_id === run.made.tenant_id &&
            other.made.request_id === run.made.request_id &&
            !CLOSED_WITHOUT_EFFECT.has(other.state),
        ),
      on_hold: this.#keeps('hold-in-commit') && (this.#holds.has('*') || this.#holds.has(run.made.connector)),
      resource_busy:
        this.#keeps('one-in-flight') &&
        this.#others(run).some((other) => other.resource_key === run.resource_key && IN_DOUBT.has(other.state)),
    });
    if (code !== null) return refused(code, code);
    if (
      run.action_revision === null ||
      commit.idempotency_key !== idempotencyKey(run.made.run_id, run.action_revision, approval.action_digest)
    ) {
      if (this.#keeps('digest-in-commit'))
        throw new StoreRefusal('CS003', 'the idempotency key is not the one of this action');
    }
    if (commit.request_digest !== digestOf('cs.request-bytes.v1', commit.request_bytes))
      throw new StoreRefusal('CS003', 'the request digest is not that of the bytes');
    const deadlineMs = Math.min(now + commit.call_deadline_ms, expiryChecked ? approval.expiresMs : far);
    const n = run.attempts + 1;
    const attempt: StoredAttempt = {
      attempt_id: commit.attempt_id,
      n,
      revision: (run.revision + 1) as Attempt['revision'],
      action_digest: commit.action_digest,
      request_digest: commit.request_digest,
      idempotency_key: commit.idempotency_key,
      instance_id,
      started_at: iso(now),
      call_deadline: iso(deadlineMs),
      status: 'started',
      provider_ref: null,
      response: null,
      closed_at: null,
      request_bytes: Uint8Array.from(commit.request_bytes),
      startedMs: now,
      deadlineMs,
      closedMs: 0,
    };
    run.attemptRows.push(attempt);
    this.#apply(
      run,
      'executor',
      commit.retry === null ? 'dispatched' : 'retry_dispatched',
      'executing',
      `executor/${instance_id}`,
      { in_flight_key: run.resource_key },
      {
        attempt_id: commit.attempt_id,
        action_digest: approval.action_digest,
        request_digest: commit.request_digest,
        idempotency_key: commit.idempotency_key,
        call_deadline: attempt.call_deadline,
      },
      now,
      deadlineMs + commit.sweep_grace_ms,
    );
    return { kind: 'committed', row: this.#hot(run), attempt_n: n, started_at: iso(now), budget_ms: deadlineMs - now };
  }

  #others(run: MemoryRun): MemoryRun[] {
    return [...this.runs.values()].filter((other) => other !== run);
  }

  /** Distinct entitled people who approved exactly this, now. */
  #approvals(run: MemoryRun, approval: StoredApproval, count_dev_keys: boolean, verified: readonly string[]): number {
    const { tenant_id, principal_id: requester } = run.made;
    const people = (run.decisions.get(approval.approval_id) ?? []).filter(
      (decision) =>
        verified.includes(decision.decision_id) &&
        decision.decision === 'approve' &&
        decision.action_digest === approval.action_digest &&
        decision.action_revision === approval.action_revision &&
        decision.approval_digest === approval.approval_digest &&
        decision.principal_id !== requester &&
        !run.proposals.some((proposal) => proposal.author === decision.principal_id) &&
        (decision.method !== 'dev_key' ||
          (count_dev_keys && this.#isPerson(tenant_id, decision.principal_id, 'approver'))),
    );
    return new Set(people.map((decision) => decision.principal_id)).size;
  }

  appendEvidence(
    by: { service: 'executor' | 'reconciler'; instance_id: string },
    late: Parameters<Store['appendEvidence']>[0],
    ids: Ids,
  ): 'appended' | 'reopened' | 'known' {
    const run = this.runs.get(late.run_id);
    const attempt = run?.attemptRows.find((item) => item.attempt_id === late.attempt_id);
    if (run === undefined || attempt === undefined)
      throw new StoreRefusal('CS003', 'evidence needs the attempt it speaks about');
    const now = this.#now();
    const recorded = late.applied
      ? attempt.status === 'succeeded'
      : attempt.status === 'succeeded' || attempt.status === 'rejected' || attempt.status === 'not_sent';
    const kind = late.applied ? 'late_effect' : 'late_outcome';
    if (recorded || run.evidence.some((item) => item.attempt_id === late.attempt_id && item.kind === kind))
      return 'known';
    const evidence_id = ids.id('evidence');
    run.evidence.push({
      evidence_id,
      revision: run.revision as Evidence['revision'],
      round: 0,
      kind,
      source_ref: `attempt:${late.attempt_id}`,
      observed_at: iso(now),
      version_marker: null,
      trusted: true,
      facts_digest: factsDigest(ids.salt(), canonicalJson(late.body)),
      facts: late.body,
      attempt_id: late.attempt_id,
    });
    const recordsThisEffect =
      (run.stop_reason?.code === 'settled_with_difference' || run.stop_reason?.code === 'settlement_failed') &&
      run.observations.some((item) => item.provider_ref !== null && item.provider_ref === late.provider_ref);
    const closed = run.state === 'failed' && !recordsThisEffect;
    const parked = run.parked_reason !== null && FOR_WANT_OF_AN_EFFECT.has(run.parked_reason);
    if (!late.applied || !(closed || parked) || !this.#keeps('reopen-on-evidence')) return 'appended';
    const reason = stopReason('late_effect_found');
    this.#apply(
      run,
      by.service,
      'late_effect_found',
      'needs_reconciliation',
      `${by.service}/${by.instance_id}`,
      { stop_reason: reason, parked_reason: reason.code },
      { evidence_id },
      now,
      null,
    );
    return 'reopened';
  }

  defer(service: Service, run_id: RunId, expected: number, wake_in_ms: number | null): boolean {
    const run = this.runs.get(run_id);
    if (run === undefined || run.revision !== expected || run.wakeMs === null) return false;
    if (DEFERRABLE[service]?.includes(run.state) !== true) return false;
    const now = this.#now();
    if (run.state === 'failed' || run.state === 'completed') {
      run.wakeMs = wake_in_ms === null ? null : now + wake_in_ms;
      return true;
    }
    // LEAST ignores what is null; with nothing left the row would wait for ever, which its CHECK refuses.
    const bounds = [
      wake_in_ms === null ? DEFER_MAX_MS + now : now + Math.min(wake_in_ms, DEFER_MAX_MS),
      ...(run.state === 'awaiting_approval' && run.approvalExpiresMs !== null ? [run.approvalExpiresMs] : []),
      ...(run.deadlineMs > now ? [run.deadlineMs] : []),
    ];
    run.wakeMs = Math.min(...bounds);
    return true;
  }

  claimDue(claim: Parameters<Store['claimDue']>[0]): Awaited<ReturnType<Store['claimDue']>> {
    const now = this.#now();
    const started = [...this.runs.values()].filter((run) =>
      run.attemptRows.some((attempt) => attempt.status === 'started'),
    );
    for (const run of started) {
      const open = run.attemptRows.find((attempt) => attempt.status === 'started');
      const instance = open && this.instances.get(open.instance_id);
      if (instance === undefined || instance.leaseMs === null) continue;
      if (instance.leaseHeld) instance.leaseLostMs = null;
      else instance.leaseLostMs ??= now;
    }
    const lost = (run: MemoryRun): boolean => {
      const open = run.attemptRows.find((attempt) => attempt.status === 'started');
      const instance = open && this.instances.get(open.instance_id);
      return (
        instance !== undefined &&
        (instance.endedMs !== null ||
          (instance.leaseLostMs !== null && instance.leaseLostMs + claim.lease_loss_ms <= now))
      );
    };
    const due = [...this.runs.values()].filter((run) => run.wakeMs !== null && run.wakeMs <= now);
    due.sort((a, b) => (a.wakeMs ?? 0) - (b.wakeMs ?? 0));
    // Tenants take turns, each with its longest due first.
    const turns = new Map<string, number>();
    const byTurn = due.map((run) => {
      const turn = turns.get(run.made.tenant_id) ?? 0;
      turns.set(run.made.tenant_id, turn + 1);
      return { run, turn };
    });
    byTurn.sort((a, b) => a.turn - b.turn);
    const claimed = new Set(byTurn.slice(0, claim.limit).map(({ run }) => run));
    for (const run of started) if (run.state === 'executing' && lost(run)) claimed.add(run);
    return {
      skipped: 0,
      due: [...claimed].map((run): DueRun => {
        const pause = Math.max(claim.rehint_min_ms, Math.min(claim.rehint_max_ms, now - run.committedMs));
        const expires = run.approvalExpiresMs;
        run.wakeMs = now + pause;
        if (run.state === 'awaiting_approval' && expires !== null && expires > now)
          run.wakeMs = Math.min(run.wakeMs, expires);
        const open =
          run.state === 'executing' ? run.attemptRows.find((attempt) => attempt.status === 'started') : undefined;
        return {
          row: this.#hot(run),
          overdue: this.#overdue(run, open, lost(run), claim, now),
          attempt_id: open?.attempt_id ?? null,
        };
      }),
    };
  }

  /** The row with how many runs of its tenant the fleet has to carry on now. */
  #hot(run: MemoryRun): HotRow {
    const until = this.#now() + IN_LINE_MS;
    const inLine = [...this.runs.values()].filter(
      ({ made, state, wakeMs, decisions_sufficient }) =>
        made.tenant_id === run.made.tenant_id &&
        wakeMs !== null &&
        wakeMs <= until &&
        !isClosed(state) &&
        (state !== 'awaiting_approval' || decisions_sufficient),
    );
    return hotRow(run, Math.min(IN_LINE_MAX, inLine.length));
  }

  #overdue(
    run: MemoryRun,
    open: StoredAttempt | undefined,
    lease_lost: boolean,
    claim: { sweep_grace_ms: number },
    now: number,
  ): DueRun['overdue'] {
    if (run.state === 'executing') {
      if (open === undefined) return null;
      const facts = { since_deadline: now - open.deadlineMs, grace: claim.sweep_grace_ms, lease_lost };
      return attemptOverdue(facts) ? 'attempt' : null;
    }
    if (run.deadlineMs <= now && !isClosed(run.state)) return 'run';
    const expires = run.approvalExpiresMs;
    const expired = run.state === 'awaiting_approval' && expires !== null && expires <= now;
    return expired && this.#keeps('expirer') ? 'approval' : null;
  }

  // ------------------------------------------------------------------------------------------------------------ the api's

  createRun(created: NewRun): Awaited<ReturnType<ApiStore['createRun']>> {
    if (this.#principals.get(created.principal_id)?.tenant_id !== created.tenant_id)
      return { kind: 'principal_unknown' };
    const same = [...this.runs.values()].find(
      ({ made }) =>
        made.tenant_id === created.tenant_id &&
        made.request_id === created.request_id &&
        made.supersedes === created.supersedes,
    );
    if (same !== undefined) {
      if (same.made.body_digest === created.body_digest) return { kind: 'existing', row: this.#hot(same) };
      return { kind: 'idempotency_conflict', run_id: same.made.run_id };
    }
    const before = created.supersedes === null ? undefined : this.runs.get(created.supersedes);
    if (created.supersedes !== null && !this.#maySupersede(before, created)) return { kind: 'supersedes_invalid' };
    const now = this.#now();
    const run: MemoryRun = {
      made: created,
      generation: (before?.generation ?? 0) + 1,
      createdMs: now,
      deadlineMs: now + created.run_life_ms,
      input: JSON.parse(created.input_canonical) as JsonObject,
      evidence: [],
      proposals: [],
      actions: new Map(),
      approvals: new Map(),
      decisions: new Map(),
      attemptRows: [],
      observations: [],
      supports: [],
      events: [],
      state: 'queued',
      stateSinceMs: now,
      committedMs: now,
      revision: 1,
      action_revision: null,
      read_failures: 0,
      proposal_cycles: 0,
      verification_waits: 0,
      look_ups: 0,
      attempts: 0,
      not_sent_retries: 0,
      retries_refused: 0,
      evidence_round: 0,
      evidence_complete: false,
      decisions_sufficient: false,
      retry_allowed: false,
      approval_id: null,
      approvalExpiresMs: null,
      wakeMs: now + created.wake_in_ms,
      parked_reason: null,
      stop_reason: null,
      resource_key: null,
      in_flight_key: null,
      chain_head: sha256Text(''),
    };
    if (created.proposal !== null) addProposal(run, 1, created.proposal);
    this.runs.set(created.run_id, run);
    const { tenant_id, request_id, supersedes, workflow, connector } = created;
    const set = { state: 'queued', tenant_id, request_id, generation: run.generation, supersedes, workflow, connector };
    const refs = { body_digest: created.body_digest, input_digest: sha256Text(created.input_canonical) };
    this.#append(run, null, 'queued', 'request_accepted', `principal/${created.principal_id}`, { set, refs }, now);
    return { kind: 'created', row: this.#hot(run) };
  }

  #maySupersede(before: MemoryRun | undefined, created: NewRun): boolean {
    if (before?.made.tenant_id !== created.tenant_id || before.made.request_id !== created.request_id) return false;
    if (!CLOSED_WITHOUT_EFFECT.has(before.state)) return false;
    if (!this.#keeps('successor-after-closure-look')) return true;
    const looks = this.audits.filter(
      (entry) =>
        entry.run_id === created.supersedes &&
        entry.service === 'reconciler' &&
        entry.what === 'closure_audit' &&
        entry.code === 'looked',
    );
    const settleMs = Math.max(0, created.settle_ms);
    return before.attemptRows.every((attempt) => {
      if (attempt.status === 'not_sent') return true;
      if (attempt.status === 'started') return false;
      return looks.some(({ detail, atMs }) => {
        const observedMs = typeof detail.observed_at === 'string' ? Date.parse(detail.observed_at) : Number.NaN;
        return observedMs >= attempt.deadlineMs + settleMs && observedMs <= atMs;
      });
    });
  }

  decide(
    who: PrincipalRef,
    decision: Parameters<ApiStore['decide']>[1],
    leaseMs: number,
  ): Awaited<ReturnType<ApiStore['decide']>> {
    const run = this.runs.get(decision.run_id);
    if (run === undefined || run.made.tenant_id !== who.tenant_id)
      return { result: 'run_not_found', decided: [], waited_ms: null, row: null };
    const now = this.#now();
    const approval = run.approvals.get(decision.approval_id);
    const decisions = run.decisions.get(decision.approval_id) ?? [];
    const result = this.#decide(run, approval, decisions, who, decision, leaseMs, now);
    if (result !== 'recorded' && result !== 'repeated')
      this.#audit(who.tenant_id, who.principal_id, run.made.run_id, 'decide', result, { decision: decision.decision });
    const decided = decisions.map(
      ({ decision_id, decision: said, principal_id, method, decided_at, reason, break_glass }) => ({
        decision_id,
        decision: said,
        principal_id,
        method,
        decided_at,
        reason,
        break_glass,
      }),
    );
    return { result, decided, waited_ms: null, row: this.#hot(run) };
  }

  #decide(
    run: MemoryRun,
    approval: StoredApproval | undefined,
    decisions: StoredDecision[],
    who: PrincipalRef,
    decision: Parameters<ApiStore['decide']>[1],
    leaseMs: number,
    now: number,
  ): Awaited<ReturnType<ApiStore['decide']>>['result'] {
    if (approval === undefined) return 'approval_not_found';
    if (!this.#isPerson(who.tenant_id, who.principal_id, 'approver')) return 'not_an_approver';
    if (
      approval.approval_digest !== decision.approval_digest ||
      approval.action_digest !== decision.action_digest ||
      approval.action_revision !== decision.action_revision
    )
      return 'digest_mismatch';
    const mine = decisions.find((item) => item.principal_id === who.principal_id);
    if (mine !== undefined) return mine.decision === decision.decision ? 'repeated' : 'already_decided';
    if (run.state !== 'awaiting_approval') {
      if (run.state === 'expired') return 'approval_expired';
      return decisions.length > 0 ? 'already_decided' : 'not_awaiting_approval';
    }
    if (run.approval_id !== approval.approval_id) return 'digest_mismatch';
    const actor = `principal/${who.principal_id}`;
    if (now >= approval.expiresMs) {
      this.#apply(
        run,
        'api',
        'approval_expired',
        'expired',
        actor,
        { stop_reason: stopReason('approval_expired') },
        {},
        now,
        null,
      );
      return 'approval_expired';
    }
    if (
      decision.decision === 'approve' &&
      (who.principal_id === run.made.principal_id ||
        run.proposals.some((proposal) => proposal.author === who.principal_id))
    )
      return 'self_approval';
    if (decision.decision === 'approve' && run.decisions_sufficient) return 'already_decided';
    decisions.push({
      decision_id: decision.decision_id,
      revision: (run.revision + 1) as Decision['revision'],
      decision: decision.decision,
      principal_id: who.principal_id,
      method: decision.method,
      action_digest: approval.action_digest,
      action_revision: approval.action_revision,
      decided_at: iso(now),
      reason: decision.reason,
      break_glass: decision.break_glass,
      groups: [],
      obstacle: null,
      assertion: null,
      approval_digest: approval.approval_digest,
    });
    const refs = { decision_id: decision.decision_id, approval_digest: approval.approval_digest };
    if (decision.decision === 'reject') {
      this.#apply(
        run,
        'api',
        'approval_rejected',
        'rejected',
        actor,
        { stop_reason: stopReason('approval_rejected') },
        refs,
        now,
        null,
      );
      return 'recorded';
    }
    const approvals = decisions.filter((item) => item.decision === 'approve').length;
    const sufficient = approvals >= approval.approvals_required;
    const wakeMs = sufficient ? Math.min(now + leaseMs, approval.expiresMs) : approval.expiresMs;
    this.#apply(
      run,
      'api',
      'decision_recorded',
      'awaiting_approval',
      actor,
      { decisions_sufficient: sufficient },
      refs,
      now,
      wakeMs,
    );
    return 'recorded';
  }

  verdict(who: PrincipalRef, verdict: Parameters<ApiStore['verdict']>[1]): Awaited<ReturnType<ApiStore['verdict']>> {
    const run = this.runs.get(verdict.run_id);
    if (run === undefined || run.made.tenant_id !== who.tenant_id)
      return { result: 'run_not_found', detail: null, row: null };
    const now = this.#now();
    const refusal = this.#verdictRefusal(run, who, verdict, now);
    if (refusal !== null) {
      this.#audit(who.tenant_id, who.principal_id, verdict.run_id, 'verdict', refusal.result, {
        verdict: verdict.verdict,
        detail: refusal.detail,
      });
      return { ...refusal, row: this.#hot(run) };
    }
    const { on, to } = VERDICT_MOVES[verdict.verdict];
    const set: Partial<Row> = {};
    switch (verdict.verdict) {
      case 'landed':
        set.verification_waits = 0;
        break;
      case 'still_unknown':
        set.parked_reason = run.parked_reason ?? 'external_result_uncertain';
        set.retry_allowed = false;
        break;
      case 'look_again':
        set.parked_reason = null;
        break;
      case 'did_not_land':
      case 'landed_differently':
        if (verdict.stop_reason !== null) set.stop_reason = verdict.stop_reason;
    }
    run.observations.push(
      observation(run.revision + 1, now, {
        kind: 'person',
        provider_ref: verdict.provider_ref,
        body: {
          verdict: verdict.verdict,
          evidence: verdict.evidence,
          observed_at: verdict.observed_at,
          effect: verdict.effect,
        },
      }),
    );
    const wakeMs = verdict.verdict === 'still_unknown' ? null : now + verdict.wake_in_ms;
    const { run_id: _run, expected: _expected, wake_in_ms: _wake, stop_reason: _stop, ...said } = verdict;
    this.#apply(run, 'api', on, to, `principal/${who.principal_id}`, set, { verdict: said }, now, wakeMs);
    return { result: 'recorded', detail: null, row: this.#hot(run) };
  }

  #verdictRefusal(
    run: MemoryRun,
    who: PrincipalRef,
    verdict: Parameters<ApiStore['verdict']>[1],
    now: number,
  ): { result: Exclude<Awaited<ReturnType<ApiStore['verdict']>>['result'], 'recorded'>; detail: string | null } | null {
    const observedMs = verdict.observed_at === null ? null : Date.parse(verdict.observed_at);
    if (!this.#isPerson(who.tenant_id, who.principal_id, 'operator')) return { result: 'role_missing', detail: null };
    if (run.state !== 'needs_reconciliation') return { result: 'not_in_doubt', detail: run.state };
    if (run.revision !== verdict.expected) return { result: 'stale_revision', detail: String(run.revision) };
    if (observedMs !== null && observedMs > now) return { result: 'observed_in_future', detail: iso(now) };
    if (verdict.verdict === 'did_not_land') {
      if (!this.#evidenceOfEffect(run) && effectWasSeen(run.parked_reason))
        return { result: 'evidence_stands', detail: run.parked_reason };
      const deadlineMs = lastDeadlineMs(run);
      const senders = run.attemptRows.filter((attempt) => attempt.status !== 'not_sent').map((one) => one.instance_id);
      const unfenced = senders.filter((instance_id) => !this.#fenced(instance_id, verdict.pause_ms, now));
      const fencing_waived = this.#supported(run, who, 'waive_fencing', null);
      const why = mayCloseAbsent({
        absence: this.#keeps('person-absent-needs-settle')
          ? {
              since_deadline: observedMs === null ? Number.NEGATIVE_INFINITY : observedMs - deadlineMs,
              settle: verdict.settle_ms,
            }
          : { since_deadline: 0, settle: 0 },
        evidence_of_effect: this.#evidenceOfEffect(run),
        instances_fenced: unfenced.length === 0 || !this.#keeps('person-absent-needs-fence'),
        fencing_waived,
      });
      if (why === null) {
        if (fencing_waived || !this.#keeps('person-absent-needs-fence')) return null;
        // A process that stopped for longer than Z may have written right before its end: only a look from then on + settle would show it.
        const ends = senders.map((instance_id) => this.instances.get(instance_id)?.endedMs ?? Number.NEGATIVE_INFINITY);
        const coveredMs = Math.max(...ends) + verdict.settle_ms;
        return (observedMs ?? Number.NEGATIVE_INFINITY) < coveredMs
          ? { result: 'not_settled', detail: iso(coveredMs) }
          : null;
      }
      const detail =
        why === 'not_settled'
          ? iso(deadlineMs + verdict.settle_ms)
          : why === 'instance_not_fenced'
            ? unfenced.join(', ')
            : null;
      return { result: why, detail };
    }
    const required = run.approval_id === null ? 0 : (run.approvals.get(run.approval_id)?.approvals_required ?? 0);
    if (
      verdict.verdict === 'landed_differently' &&
      required >= 2 &&
      !this.#supported(run, who, 'confirm_difference', verdict.effect_digest)
    )
      return { result: 'second_person_needed', detail: verdict.effect_digest };
    return null;
  }

  #fenced(instance_id: string, pause_ms: number, now: number): boolean {
    const instance = this.instances.get(instance_id);
    if (instance === undefined) return false;
    return instance.rotated || (instance.endedMs !== null && instance.beatMs + pause_ms <= now && !instance.leaseHeld);
  }

  #supported(run: MemoryRun, who: PrincipalRef, kind: string, subject: string | null): boolean {
    return run.supports.some(
      (support) =>
        support.kind === kind &&
        support.attempts === run.attempts &&
        support.principal_id !== who.principal_id &&
        (subject === null || support.subject_digest === subject),
    );
  }

  support(who: PrincipalRef, support: Parameters<ApiStore['support']>[1]): Awaited<ReturnType<ApiStore['support']>> {
    const run = this.runs.get(support.run_id);
    if (run === undefined || run.made.tenant_id !== who.tenant_id) return 'run_not_found';
    if (!this.#isPerson(who.tenant_id, who.principal_id, 'operator')) return 'role_missing';
    if (run.state !== 'needs_reconciliation') return 'not_in_doubt';
    if (run.revision !== support.expected) return 'stale_revision';
    run.supports.push({
      principal_id: who.principal_id,
      kind: support.kind,
      attempts: run.attempts,
      subject_digest: support.effect_digest ?? '',
    });
    return 'recorded';
  }

  fence(who: PrincipalRef, fence: Parameters<ApiStore['fence']>[1]): InstanceEnd {
    if (!this.#isPerson(who.tenant_id, who.principal_id, 'operator')) return 'role_missing';
    const instance = this.instances.get(fence.instance_id);
    const now = this.#now();
    if (instance === undefined) return 'instance_unknown';
    if (instance.endedMs !== null && (instance.rotated || !fence.credential_rotated)) return 'already_ended';
    if (!fence.credential_rotated && (instance.beatMs + fence.pause_ms > now || instance.leaseHeld))
      return 'instance_alive';
    if (fence.credential_rotated) instance.endedMs = now;
    else instance.endedMs ??= now;
    instance.endedBy ??= 'operator';
    instance.rotated ||= fence.credential_rotated;
    return 'ended';
  }

  setHold(scope: string, reason: string | null): void {
    if (reason === null) this.#holds.delete(scope);
    else this.#holds.set(scope, reason);
  }

  audit(service: Service, entry: AuditEntry): void {
    if (service !== 'api' && entry.principal_id !== null)
      throw new StoreRefusal('CS005', 'a worker speaks for no principal');
    this.audits.push({ ...entry, atMs: this.#now(), service });
  }

  #audit(
    tenant_id: string | null,
    principal_id: string | null,
    run_id: RunId | null,
    what: string,
    code: string,
    detail: JsonObject,
  ): void {
    this.audits.push({ tenant_id, principal_id, run_id, what, code, detail, atMs: this.#now(), service: 'api' });
  }

  // ------------------------------------------------------------------------------------------------------------ ports

  /** The workers' port. What it returns is a promise, as every port's answer; the work is done when it is called. */
  workerStore(service: Exclude<Service, 'api'>, instance_id: string, ids: Ids): Store {
    const by = { service, instance_id };
    return {
      load: (run_id) => answer(() => this.load(run_id)),
      commitStage: (commit) => answer(() => this.commitStage(by, commit)),
      commitDispatch: (commit) =>
        answer(() => {
          if (service !== 'executor') throw new StoreRefusal('CS005', `${service} may not do this`);
          return this.commitDispatch(instance_id, commit);
        }),
      appendEvidence: (late) =>
        answer(() => {
          if (service !== 'executor' && service !== 'reconciler')
            throw new StoreRefusal('CS005', `${service} may not do this`);
          return this.appendEvidence({ service, instance_id }, late, ids);
        }),
      defer: (run_id, expected, wake_in_ms) => answer(() => this.defer(service, run_id, expected, wake_in_ms)),
      claimDue: (claim) => answer(() => this.claimDue(claim)),
      audit: (entry) => answer(() => this.audit(service, entry)),
      beat: () => answer(() => this.beat(instance_id, service)),
      endInstance: () => answer(() => void this.endInstance(instance_id, 'self')),
    };
  }

  /** The api's operations, of the ones that change runs. */
  api(): MemoryApi {
    return {
      createRun: (created) => answer(() => this.createRun(created)),
      load: (tenant, run_id) => answer(() => this.load(run_id, tenant)),
      events: (tenant, run_id) =>
        answer(() => {
          const run = this.runs.get(run_id);
          return run?.made.tenant_id === tenant ? [...run.events] : undefined;
        }),
      commit: (who, commit) => answer(() => this.commitStage({ service: 'api', who }, commit)),
      decide: (who, decision, leaseMs) => answer(() => this.decide(who, decision, leaseMs)),
      holds: () =>
        answer(() =>
          [...this.#holds].map(([scope, reason]) => ({ scope, reason, set_by: '', set_at: iso(this.#now()) })),
        ),
      setHold: (_who, scope, reason) => answer(() => this.setHold(scope, reason)),
      audit: (entry) => answer(() => this.audit('api', entry)),
      verdict: (who, verdict) => answer(() => this.verdict(who, verdict)),
      support: (who, support) => answer(() => this.support(who, support)),
      fence: (who, fence) => answer(() => this.fence(who, fence)),
    };
  }
}

function answer<T>(work: () => T): Promise<T> {
  return new Promise((resolve) => resolve(work()));
}

const VERDICT_MOVES = {
  landed: { on: 'person_landed', to: 'verifying' },
  did_not_land: { on: 'person_absent', to: 'failed' },
  landed_differently: { on: 'person_settled_with_difference', to: 'failed' },
  still_unknown: { on: 'person_unsure', to: 'needs_reconciliation' },
  look_again: { on: 'person_unsure', to: 'needs_reconciliation' },
} as const satisfies Record<string, { on: Trigger; to: State }>;

/** Why a run is parked when no effect was seen; evidence of one changes that. */
const FOR_WANT_OF_AN_EFFECT: ReadonlySet<string> = new Set([
  'effect_not_found',
  'verification_not_found',
  'external_result_uncertain',
  'deadline_exceeded',
]);

/** When the approval that a commit asks for would expire; not a number where it asks for none. */
function expiryOf(facts: CommitFacts): number {
  const { approval_request: asked } = facts;
  return asked === undefined
    ? Number.NaN
    : Date.parse((JSON.parse(asked.canonical) as { expires_at: string }).expires_at);
}
