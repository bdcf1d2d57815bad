import type { Ledger, LedgerEffect, LedgerRequest, RunHistory, RunRow } from '@counterstamp/history-checker';
import {
  type Attempt,
  canonicalJson,
  type Decision,
  type Digest,
  digestOf,
  eventHash,
  idempotencyKey,
  type JsonObject,
  type Observation,
  type Revision,
  type RunId,
  type StopReasonCode,
  type StoredEvent,
  sha256Text,
  stopReason,
  transitionRule,
} from '@counterstamp/manifest-core';

const START_MS = Date.parse('2026-09-30T14:00:00.000Z');
const STEP_MS = 100;
/** D of the fast profile. */
const CALL_MS = 2_000;

/** A history that tests may doctor. */
type Mutable<T> = T extends string | number | boolean | null
  ? T
  : T extends readonly (infer Item)[]
    ? Mutable<Item>[]
    : { -readonly [Name in keyof T]: Mutable<T[Name]> };
export type Draft = { -readonly [Name in keyof RunHistory]: Mutable<RunHistory[Name]> };
export interface LedgerDraft extends Ledger {
  requests: LedgerRequest[];
  effects: LedgerEffect[];
}

export interface HistoryOptions {
  /** The last digits of its id. */
  number?: number;
  request_id?: string;
  generation?: number;
  /** How long the approval lives. */
  lifeMs?: number;
  approvals_required?: number;
  amount_minor?: number;
}

/** Writes a run's history step by step as the store would have: legal moves, one chained event each, and the ledger beside it. */
export function historyBuilder(options: HistoryOptions = {}) {
  const { number = 1, request_id = 'case_1', generation = 1, lifeMs = 60_000, approvals_required = 1 } = options;
  const run_id = `run_00000000-0000-7000-8000-${String(number).padStart(12, '0')}` as RunId;
  const fields: JsonObject = {
    operation: 'refund_order',
    order_id: 'order_913',
    amount_minor: options.amount_minor ?? 4200,
    currency: 'USD',
    destination: 'pay_913',
    reason: 'damaged_item',
    evidence_refs: [`evd_${number}`],
    metadata: {},
  };
  const canonical = canonicalJson(fields);
  const action_digest = digestOf('cs.action.v1', canonical);
  const request_digest = digestOf('cs.request-bytes.v1', `${run_id} ${canonical}`);
  let nowMs = START_MS;
  const run: Mutable<RunRow> = {
    run_id,
    tenant_id: 'shop_north',
    request_id,
    generation,
    connector: 'sandbox-payments',
    requested_by: 'prn_agent',
    state: 'queued',
    revision: 0 as Revision,
    action_revision: null,
    decisions_sufficient: false,
    retry_allowed: false,
    wake_at: null,
    parked_reason: null,
    stop_reason: null,
    chain_head: '' as Digest,
  };
  const history: Draft = {
    run,
    events: [],
    actions: [],
    approvals: [],
    attempts: [],
    late_evidence: [],
    observations: [],
  };
  const ledger: LedgerDraft = { since: null, requests: [], effects: [] };
  const instance = 'ins_1';

  /** Appends one move at the present time. */
  function move(on: string, set: Partial<RunRow> = {}, refs: JsonObject = {}, by?: string): StoredEvent {
    const from = run.revision === 0 ? null : run.state;
    const rule = transitionRule(from, on);
    if (rule === undefined) throw new Error(`${on} is illegal in ${from}`);
    const [service = ''] = rule.by;
    const leaves = rule.to !== 'needs_reconciliation';
    const changed: JsonObject = {
      ...(rule.to !== from && run.stop_reason !== null ? { stop_reason: null } : {}),
      ...(leaves && run.parked_reason !== null ? { parked_reason: null } : {}),
      ...(leaves && run.retry_allowed ? { retry_allowed: false } : {}),
      ...(set as JsonObject),
      state: rule.to,
    };
    const revision = (run.revision + 1) as Revision;
    const payload = JSON.stringify({ set: changed, refs });
    const event: StoredEvent = {
      run_id,
      revision,
      from,
      to: rule.to,
      trigger: on,
      actor: by ?? (service === 'api' ? 'principal/prn_agent' : `${service}/${instance}`),
      at_us: String(nowMs * 1_000 + 123),
      payload,
      payload_digest: sha256Text(payload),
      previous_hash: run.revision === 0 ? null : run.chain_head,
      hash: '',
    };
    event.hash = eventHash(event);
    history.events.push(event);
    Object.assign(run, changed, { revision, chain_head: event.hash });
    const closed = ['completed', 'rejected', 'expired', 'failed'].includes(rule.to);
    run.wake_at = closed || run.parked_reason !== null ? null : instant(nowMs + 3_000);
    nowMs += STEP_MS;
    return event;
  }

  const stop = (code: StopReasonCode) => ({ stop_reason: stopReason(code) });
  const parked = (code: StopReasonCode) => ({ ...stop(code), parked_reason: code });
  const open = () => history.attempts.at(-1) ?? fail('no attempt');
  const observed = (kind: Observation['kind'], provider_ref: string | null = null): JsonObject => {
    const revision = (run.revision + 1) as Revision;
    history.observations.push({ revision, at: instant(nowMs), kind, provider_ref, body: {} });
    return { observation: { kind, provider_ref, body: {} } };
  };
  const close = (
    on: string,
    status: Attempt['status'],
    set: Partial<RunRow> = {},
    provider_ref: string | null = null,
  ) => {
    const attempt = open();
    Object.assign(attempt, { status, provider_ref, response: { reason: on }, closed_at: instant(nowMs) });
    move(on, set, { attempt: { attempt_id: attempt.attempt_id, status, provider_ref, response: { reason: on } } });
  };

  /** From collecting to the question. */
  function ask(): void {
    move('evidence_recorded');
    move('proposal_received');
    const action_revision = (run.revision + 1) as Revision;
    const approval_id = `apr_${number}_${action_revision}`;
    const expires_at = instant(nowMs + lifeMs);
    const bound = canonicalJson({
      approval_id,
      run_id,
      action_digest,
      action_revision,
      approvals_required,
      expires_at,
    });
    history.actions.push({ action_revision, canonical, digest: action_digest });
    history.approvals.push({
      approval_id,
      approval_digest: digestOf('cs.approval.v1', bound),
      canonical: bound,
      action_digest,
      action_revision,
      approvals_required,
      expires_at,
      decisions: [],
    });
    move('action_fixed', { action_revision, decisions_sufficient: false }, { action_digest });
  }

  const builder = {
    history,
    ledger,
    /** Lets time pass. */
    after(ms: number) {
      nowMs += ms;
      return builder;
    },
    move(on: string, set: Partial<RunRow> = {}, refs: JsonObject = {}) {
      move(on, set, refs);
      return builder;
    },
    /** From the request to the question. */
    asked() {
      for (const on of ['request_accepted', 'request_loaded', 'checks_passed']) move(on);
      ask();
      return builder;
    },
    /** The evidence changed: every decision is void, and the same is asked anew. */
    askedAnew() {
      move('evidence_changed', { action_revision: null, decisions_sufficient: false });
      ask();
      return builder;
    },
    decide(principal_id = 'prn_ada', decision: Decision['decision'] = 'approve') {
      const approval = history.approvals.at(-1) ?? fail('nothing asked');
      const decision_id = `dec_${run.revision + 1}`;
      approval.decisions.push({
        decision_id,
        revision: (run.revision + 1) as Revision,
        decision,
        principal_id,
        method: 'dev_key',
        action_digest,
        action_revision: approval.action_revision,
        decided_at: instant(nowMs),
        reason: null,
        break_glass: false,
      });
      const refs = { decision_id, approval_digest: approval.approval_digest };
      if (decision === 'reject')
        move('approval_rejected', stop('approval_rejected'), refs, `principal/${principal_id}`);
      else {
        const decisions_sufficient = approval.decisions.length >= approval.approvals_required;
        move('decision_recorded', { decisions_sufficient }, refs, `principal/${principal_id}`);
      }
      return builder;
    },
    approved() {
      builder.asked();
      for (let person = 1; person <= approvals_required; person++) builder.decide(`prn_ada_${person}`);
      return builder;
    },
    /** The first dispatch, or a retry. */
    dispatch() {
      const n = history.attempts.length + 1;
      const { action_revision, expires_at } = history.approvals.at(-1) ?? fail('nothing asked');
      const key = idempotencyKey(run_id, action_revision, action_digest);
      const attempt: Mutable<Attempt> = {
        attempt_id: `att_${number}_${n}`,
        n,
        revision: (run.revision + 1) as Revision,
        action_digest,
        request_digest,
        idempotency_key: key,
        instance_id: instance,
        started_at: instant(nowMs),
        call_deadline: nowMs + CALL_MS < Date.parse(expires_at) ? instant(nowMs + CALL_MS) : expires_at,
        status: 'started',
        provider_ref: null,
        response: null,
        closed_at: null,
      };
      history.attempts.push(attempt);
      const { attempt_id, call_deadline } = attempt;
      const refs = { attempt_id, action_digest, request_digest, idempotency_key: key, call_deadline };
      move(n === 1 ? 'dispatched' : 'retry_dispatched', {}, refs);
      return builder;
    },
    /** The request of the present attempt arrives. */
    arrives(change: Partial<LedgerRequest> = {}) {
      ledger.requests.push({
        provider: run.connector,
        seq: ledger.requests.length + 1,
        arrived_at: new Date(nowMs).toISOString(),
        run_id,
        idempotency_key: open().idempotency_key,
        body_digest: request_digest,
        ...change,
      });
      return builder;
    },
    /** The request that arrived last has its effect. */
    takesEffect(change: Partial<LedgerEffect> = {}) {
      const { amount_minor = 0, currency = '', destination = '', reason = '' } = fields;
      ledger.effects.push({
        provider: run.connector,
        ref: `re_${number}_${ledger.effects.length + 1}`,
        request_seq: ledger.requests.at(-1)?.seq ?? null,
        run_id,
        idempotency_key: ledger.requests.at(-1)?.idempotency_key ?? null,
        action_digest,
        settlement: 'final',
        fields: { amount_minor, currency, destination, reason },
        ...change,
      });
      return builder;
    },
    accepted() {
      close('effect_accepted', 'succeeded', {}, ledger.effects.at(-1)?.ref ?? 're_unknown');
      return builder;
    },
    verified() {
      move('effect_verified', {}, observed('matched', ledger.effects.at(-1)?.ref ?? 're_unknown'));
      return builder;
    },
    uncertain() {
      close('outcome_uncertain', 'uncertain', stop('external_result_uncertain'));
      return builder;
    },
    overdue() {
      close('attempt_overdue', 'uncertain', stop('external_result_uncertain'));
      return builder;
    },
    rejected() {
      close('effect_rejected', 'rejected', stop('effect_rejected'));
      return builder;
    },
    notSent() {
      close('nothing_sent', 'not_sent', stop('not_sent'));
      return builder;
    },
    found() {
      move('effect_found', {}, observed('found', ledger.effects.at(-1)?.ref ?? 're_unknown'));
      return builder;
    },
    /** The reconciler permits a retry, after settled absence or after an attempt that sent nothing. */
    retryRecorded(on: 'retry_recorded' | 'resend_recorded' = 'retry_recorded') {
      move(on, { retry_allowed: true }, on === 'retry_recorded' ? observed('absent') : {});
      return builder;
    },
    parked(code: StopReasonCode = 'effect_not_found') {
      move('parked', parked(code), observed('inconclusive'));
      return builder;
    },
    personSays(on: 'person_absent' | 'person_settled_with_difference', provider_ref: string | null = null) {
      const code = on === 'person_absent' ? 'person_absent' : 'settled_with_difference';
      observed('person', provider_ref);
      move(on, stop(code), { verdict: { verdict: on, provider_ref } }, 'principal/prn_op');
      return builder;
    },
    settlementFailed() {
      move(
        'settlement_failed',
        stop('settlement_failed'),
        observed('settlement_failed', ledger.effects.at(-1)?.ref ?? null),
      );
      return builder;
    },
    neverSent() {
      move('never_sent', stop('not_sent'));
      return builder;
    },
    expired() {
      move('approval_expired', stop('approval_expired'), {}, 'reconciler/ins_1');
      return builder;
    },
    /** An answer that came after somebody else had moved the run on. */
    lateEvidence(kind: 'late_effect' | 'late_outcome' = 'late_effect') {
      history.late_evidence.push({
        evidence_id: `evd_late_${history.late_evidence.length + 1}`,
        observed_at: instant(nowMs),
        kind,
        attempt_id: open().attempt_id,
        revision: run.revision,
      });
      nowMs += STEP_MS;
      return builder;
    },
    reopened() {
      move('late_effect_found', parked('late_effect_found'), { evidence_id: 'evd_late_1' });
      return builder;
    },
    reversed() {
      move(
        'effect_reversed',
        parked('effect_reversed'),
        observed('settlement_failed', ledger.effects.at(-1)?.ref ?? null),
      );
      return builder;
    },
  };
  return builder;
}

function instant(ms: number): string {
  return `${new Date(ms).toISOString().slice(0, -1)}123Z`;
}

function fail(what: string): never {
  throw new Error(what);
}

/** A whole copy that a test may change. */
export function doctored<T extends object>(of: T, change: (copy: T) => void): T {
  const copy = structuredClone(of);
  change(copy);
  return copy;
}

/** Hashes a history anew, as somebody would who owns the database and covers what was done: only the other checks can find it then. */
export function rechained(history: Draft): Draft {
  let previous: string | null = null;
  for (const event of history.events) {
    event.previous_hash = previous;
    event.payload_digest = sha256Text(event.payload);
    event.hash = eventHash(event);
    previous = event.hash;
  }
  history.run.chain_head = (previous ?? '') as Digest;
  return history;
}
