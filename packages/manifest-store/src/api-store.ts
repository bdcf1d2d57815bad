import {
  type Assertion,
  type AuditEntry,
  type CommitFacts,
  type CommitOutcome,
  type Decision,
  type Digest,
  type HotRow,
  type JsonObject,
  type LoadedRun,
  type NewRun,
  type RunId,
  runIdFromUuid,
  type State,
  type StopReason,
  type StoredEvent,
  stopReason,
  type Trigger,
  uuidOfRunId,
} from '@counterstamp/manifest-core';
import { listAlarms, type RaisedAlarm } from './alarms.ts';
import { listCheckpoints } from './checkpoints.ts';
import { answered, type Sql } from './connection.ts';
import { type Hold, listHolds, setHold } from './holds.ts';
import { hotRow } from './hot-row.ts';
import { endInstance, type Instance, type InstanceEnd, type InstanceProcess, listInstances } from './instances.ts';
import { loadRun } from './load-run.ts';
import type { Principal, PrincipalRef } from './principal.ts';
import { readAs } from './read-as.ts';
import { type ReceiptRecord, receiptRecord } from './receipt-record.ts';
import { approverObstacle, listRuns, type RunSummary, runEvents } from './run-reads.ts';
import { sealFacts, sealRun } from './sealed/seal-values.ts';
import type { Sealing } from './sealed/sealing.ts';
import { recordAudit } from './worker-store.ts';

export type CreateOutcome =
  | { kind: 'created' | 'existing'; row: HotRow }
  | { kind: 'idempotency_conflict'; run_id: RunId | null }
  | { kind: 'supersedes_invalid' }
  | { kind: 'principal_unknown' | 'on_behalf_unknown' | 'open_runs_limit' | 'subject_erased' };

export interface DecisionCommit {
  run_id: RunId;
  approval_id: string;
  decision_id: string;
  decision: 'approve' | 'reject';
  method: Decision['method'];
  break_glass: boolean;
  /** For `passkey`: what was signed, bytes as base64url, and the challenge that it used up. */
  assertion: (Omit<Assertion, 'certificate'> & { challenge: string }) | null;
  approval_digest: Digest;
  action_digest: Digest;
  action_revision: number;
  reason: string | null;
}
export type DecisionResult =
  | 'recorded'
  | 'repeated'
  | 'already_decided'
  | 'approval_expired'
  | 'digest_mismatch'
  | 'not_awaiting_approval'
  | 'run_not_found'
  | 'approval_not_found'
  | 'not_an_approver'
  | 'self_approval'
  | 'signature_required'
  | 'challenge_invalid'
  | 'credential_revoked'
  | 'break_glass_not_allowed';
export type StoredDecision = Pick<
  Decision,
  'decision_id' | 'decision' | 'principal_id' | 'method' | 'decided_at' | 'reason' | 'break_glass'
>;
export interface DecisionOutcome {
  result: DecisionResult;
  /** What is recorded for this approval now, oldest first. */
  decided: StoredDecision[];
  /** From asking for the approval to this decision, in milliseconds; null when none was recorded now. */
  waited_ms: number | null;
  /** Null when there is no such run. */
  row: HotRow | null;
}

export const VERDICTS = ['landed', 'did_not_land', 'landed_differently', 'still_unknown', 'look_again'] as const;
export type VerdictKind = (typeof VERDICTS)[number];

export interface VerdictCommit {
  run_id: RunId;
  expected: number;
  verdict: VerdictKind;
  /** What the person saw and where, in their words. */
  evidence: string;
  /** Database time before the person looked; required for `did_not_land` (rule 17). */
  observed_at: string | null;
  provider_ref: string | null;
  /** The effect as observed, for `landed_differently`; its digest is what a second person confirms. */
  effect: JsonObject | null;
  effect_digest: Digest | null;
  settle_ms: number;
  /** Z: how old a heartbeat must be before an instance counts as fenced. */
  pause_ms: number;
  /** For the verdicts that close the run. */
  stop_reason: StopReason | null;
  wake_in_ms: number;
}
export interface VerdictOutcome {
  result:
    | 'recorded'
    | 'run_not_found'
    | 'role_missing'
    | 'not_in_doubt'
    | 'stale_revision'
    | 'observed_in_future'
    | 'not_settled'
    | 'evidence_stands'
    | 'instance_not_fenced'
    | 'second_person_needed';
  /** What the refusal is about: the time at which the run settles, the unfenced instances, the digest to confirm. */
  detail: string | null;
  row: HotRow | null;
}

export interface SupportCommit {
  run_id: RunId;
  expected: number;
  kind: 'waive_fencing' | 'confirm_difference';
  effect_digest: Digest | null;
  reason: string;
}
export type SupportResult = 'recorded' | 'run_not_found' | 'role_missing' | 'not_in_doubt' | 'stale_revision';

/** The api's store: every call names the tenant and the principal, and the database compares both with the row. */
export interface ApiStore {
  authenticate(key_id: string, secret_hash: Digest): Promise<Principal | undefined>;
  createRun(created: NewRun): Promise<CreateOutcome>;
  load(tenant: string, run_id: RunId): Promise<LoadedRun | undefined>;
  /** Newest first. `before`: the last run of the page before. */
  list(tenant: string, filter: { state?: State; before?: RunId; limit: number }): Promise<RunSummary[]>;
  events(tenant: string, run_id: RunId): Promise<StoredEvent[] | undefined>;
  /** Why this principal's approval of the run would not count now; null when nothing stands against it. */
  approverObstacle(who: PrincipalRef, run_id: RunId): Promise<string | null>;
  /** Newest first. `after`: the last one of the page before. */
  alarms(tenant: string, filter: { after?: number; limit: number }): Promise<RaisedAlarm[]>;
  /** Everything that a run's receipt shows, of one moment. `disclose: false` leaves facts and the deciders' words out. */
  receipt(tenant: string, run_id: RunId, disclose: boolean): Promise<ReceiptRecord | undefined>;
  /** Signed checkpoints of the whole installation, oldest first, after one of them. */
  checkpoints(after: number, limit: number): Promise<{ seq: number; envelope: JsonObject }[]>;
  commit(
    who: PrincipalRef,
    commit: {
      run_id: RunId;
      expected: number;
      from: State;
      on: Trigger;
      to: State;
      facts: CommitFacts;
      wake_in_ms: number | null;
    },
  ): Promise<CommitOutcome>;
  decide(who: PrincipalRef, decision: DecisionCommit, leaseMs: number): Promise<DecisionOutcome>;
  /** The installation's holds, as this tenant may see them. */
  holds(tenant: string): Promise<Hold[]>;
  /** Sets a hold on a scope, or with `null` releases it. */
  setHold(who: PrincipalRef, scope: string, reason: string | null): Promise<void>;
  audit(entry: AuditEntry): Promise<void>;
  beat(instance_id: string, process: InstanceProcess): Promise<void>;
  /** A person's verdict on a run in doubt, on the revision that the person saw (protocol rule 20). */
  verdict(who: PrincipalRef, verdict: VerdictCommit): Promise<VerdictOutcome>;
  /** A second person stands in for a missing fence, or confirms an observed difference. */
  support(who: PrincipalRef, support: SupportCommit): Promise<SupportResult>;
  /** Process lives, newest first. They belong to the installation, not to a tenant. */
  instances(filter: { service?: string; limit: number }): Promise<Instance[]>;
  /** An operator's word that an instance is gone, with evidence. */
  fence(
    who: PrincipalRef,
    fence: { instance_id: string; evidence: string; credential_rotated: boolean; pause_ms: number },
  ): Promise<InstanceEnd>;
  ping(): Promise<void>;
}

const json = (value: unknown) => JSON.stringify(value);

/** @param deps `sealing` seals the personal data of new runs and opens that of recorded ones; without it new runs are in plain text. */
export function createApiStore(sql: Sql, deps: { sealing?: Sealing | undefined } = {}): ApiStore {
  const { sealing } = deps;
  return {
    async authenticate(key_id, secret_hash) {
      const [row] = await answered(
        sql<Principal[]>`select tenant_id, principal_id, role from cs.authenticate(${key_id}, ${secret_hash})`,
      );
      return row;
    },

    async createRun(created) {
      const { run_id, tenant_id, principal_id, supersedes } = created;
      const body = {
        ...(sealing === undefined ? created : await sealRun(sql, sealing, created)),
        run_id: uuidOfRunId(run_id),
        supersedes: supersedes === null ? null : uuidOfRunId(supersedes),
      };
      const [row] = await answered(sql<{ result: CreateOutcome['kind']; id: string | null }[]>`
        select result, run_id as id, (hot).* from cs.create_run(${tenant_id}, ${principal_id}, ${json(body)}::text::jsonb)`);
      if (row === undefined) throw new Error('create_run returned nothing');
      const id = row.id === null ? null : runIdFromUuid(row.id);
      if (row.result === 'idempotency_conflict') return { kind: row.result, run_id: id };
      if (row.result !== 'created' && row.result !== 'existing') return { kind: row.result };
      if (id === null) throw new Error('create_run returned no run');
      return { kind: row.result, row: hotRow(id, row) };
    },

    load: (tenant, run_id) => readAs(sql, tenant, (tx) => loadRun(tx, run_id, tenant, sealing)),
    list: (tenant, filter) => listRuns(sql, tenant, filter),
    events: (tenant, run_id) => runEvents(sql, tenant, run_id),
    approverObstacle: (who, run_id) => approverObstacle(sql, who, run_id),
    alarms: (tenant, filter) => listAlarms(sql, tenant, filter),
    receipt: (tenant, run_id, disclose) => receiptRecord(sql, tenant, run_id, disclose, sealing),
    checkpoints: (after, limit) => listCheckpoints(sql, after, limit),

    async commit(who, { run_id, expected, from, on, to, facts, wake_in_ms }) {
      const kept = await sealFacts(sql, sealing, who.tenant_id, run_id, facts);
      const [row] = await answered(sql`
        select * from cs.commit_stage(${who.tenant_id}, ${who.principal_id}, null, ${uuidOfRunId(run_id)}::uuid, ${expected}, ${from}, ${on}, ${to},
          ${json(kept)}::text::jsonb, ${wake_in_ms})`);
      return row === undefined ? { kind: 'stale_revision' } : { kind: 'committed', row: hotRow(run_id, row) };
    },

    async decide(who, { run_id, assertion, ...decision }, leaseMs) {
      const body = {
        ...decision,
        assertion: assertion === null ? null : inBase64(assertion),
        rejected_reason: stopReason('approval_rejected'),
        expired_reason: stopReason('approval_expired'),
      };
      const [row] = await answered(sql<
        { result: DecisionResult; decided: StoredDecision[]; revision: number | null; waited_ms: number | null }[]
      >`
        select result, decided, (hot).*, case result when 'recorded' then cs.decision_wait_ms(${who.tenant_id}, ${uuidOfRunId(run_id)}::uuid) end as waited_ms
          from cs.commit_decision(${who.tenant_id}, ${who.principal_id}, ${uuidOfRunId(run_id)}::uuid, ${json(body)}::text::jsonb, ${leaseMs})`);
      if (row === undefined) throw new Error('commit_decision returned nothing');
      return {
        result: row.result,
        decided: row.decided ?? [],
        waited_ms: row.waited_ms,
        row: row.revision === null ? null : hotRow(run_id, row),
      };
    },

    holds: (tenant) => listHolds(sql, tenant),
    setHold: (who, scope, reason) => setHold(sql, who, scope, reason),

    audit: (entry) => recordAudit(sql, entry),
    async beat(instance_id, { host, pid }) {
      await answered(sql`select cs.instance_beat(${instance_id}, ${host}, ${pid})`);
    },
    async verdict(who, { run_id, expected, wake_in_ms, ...verdict }) {
      const [row] = await answered(sql<
        { result: VerdictOutcome['result']; detail: string | null; revision: number | null }[]
      >`
        select result, detail, (hot).* from cs.commit_verdict(${who.tenant_id}, ${who.principal_id}, ${uuidOfRunId(run_id)}::uuid, ${expected},
          ${json(verdict)}::text::jsonb, ${wake_in_ms})`);
      if (row === undefined) throw new Error('commit_verdict returned nothing');
      return {
        result: row.result,
        detail: row.detail,
        row: row.revision === null ? null : hotRow(run_id, row),
      };
    },
    async support(who, { run_id, expected, kind, effect_digest, reason }) {
      const [row] = await answered(sql<{ result: SupportResult }[]>`
        select cs.support_verdict(${who.tenant_id}, ${who.principal_id}, ${uuidOfRunId(run_id)}::uuid, ${expected}, ${kind}, ${effect_digest},
          ${reason}) as result`);
      if (row === undefined) throw new Error('support_verdict returned nothing');
      return row.result;
    },
    instances: (filter) => listInstances(sql, filter),
    fence: (who, fence) => endInstance(sql, { ...fence, who }),
    async ping() {
      await answered(sql`select 1`);
    },
  };
}

/** Postgres decodes base64, WebAuthn speaks base64url. */
function inBase64<A extends Pick<Assertion, 'client_data_json' | 'authenticator_data' | 'signature'>>(assertion: A): A {
  const base64 = (text: string) => Buffer.from(text, 'base64url').toString('base64');
  return {
    ...assertion,
    client_data_json: base64(assertion.client_data_json),
    authenticator_data: base64(assertion.authenticator_data),
    signature: base64(assertion.signature),
  };
}
