import {
  type AuditEntry,
  type CommitOutcome,
  canonicalJson,
  DISPATCH_REFUSALS,
  type DispatchCommit,
  type DispatchOutcome,
  type DispatchRefusal,
  type DueRun,
  factsDigest,
  type Ids,
  runIdFromUuid,
  type StageCommit,
  type Store,
  stopReason,
  uuidOfRunId,
} from '@counterstamp/manifest-core';
import { answered, type Sql } from './connection.ts';
import { hotRow } from './hot-row.ts';
import { endInstance, type InstanceProcess } from './instances.ts';
import { loadRun } from './load-run.ts';
import { sealFacts, sealLateEvidence } from './sealed/seal-values.ts';
import type { Sealing } from './sealed/sealing.ts';

const json = (value: unknown) => JSON.stringify(value);

function isRefusal(code: string): code is DispatchRefusal {
  return (DISPATCH_REFUSALS as readonly string[]).includes(code);
}

/**
 * The workers' store on Postgres: each call is one statement, one round trip, one transaction; where personal data is sealed, one that
 * carries evidence or a proposal asks for the run's key first, which is one round trip more.
 */
export function createWorkerStore(
  sql: Sql,
  deps: { instance_id: string; ids: Ids; process?: InstanceProcess; sealing?: Sealing | undefined },
): Store {
  const { instance_id, ids, process, sealing } = deps;
  return {
    load: (run_id) => loadRun(sql, run_id, null, sealing),
    commitStage: (commit) => commitStage(sql, instance_id, commit, sealing),
    commitDispatch: (commit) => commitDispatch(sql, instance_id, commit),

    async appendEvidence({ run_id, attempt_id, applied, provider_ref, body }) {
      const salt = ids.salt();
      const facts_canonical = canonicalJson(body);
      const evidence = {
        evidence_id: ids.id('evidence'),
        attempt_id,
        provider_ref,
        source_ref: `attempt:${attempt_id}`,
        salt,
        facts_canonical,
        facts_digest: factsDigest(salt, facts_canonical),
      };
      const kept = await sealLateEvidence(sql, sealing, run_id, evidence);
      const [row] = await answered(sql<{ result: 'appended' | 'reopened' | 'known' }[]>`
        select result from cs.append_evidence(${instance_id}, ${uuidOfRunId(run_id)}::uuid, ${json(kept)}::text::jsonb, ${applied},
          ${json(stopReason('late_effect_found'))}::text::jsonb)`);
      if (row === undefined) throw new Error('append_evidence returned nothing');
      return row.result;
    },

    async defer(run_id, expected, wake_in_ms) {
      const [row] = await answered(
        sql<{ moved: boolean }[]>`select cs.defer(${uuidOfRunId(run_id)}::uuid, ${expected}, ${wake_in_ms}) as moved`,
      );
      return row?.moved === true;
    },

    async claimDue({ limit, rehint_min_ms, rehint_max_ms, sweep_grace_ms, lease_loss_ms }) {
      const [row] = await answered(sql<{ skipped: number; due: string }[]>`
        select skipped, due from cs.claim_due(${limit}, ${rehint_min_ms}, ${rehint_max_ms}, ${sweep_grace_ms}, ${lease_loss_ms})`);
      if (row === undefined) throw new Error('claim_due returned nothing');
      const due = JSON.parse(row.due) as {
        run_id: string;
        row: unknown;
        overdue: DueRun['overdue'];
        attempt_id: string | null;
      }[];
      return {
        skipped: row.skipped,
        due: due.map(({ run_id, row: columns, overdue, attempt_id }) => ({
          row: hotRow(runIdFromUuid(run_id), columns),
          overdue,
          attempt_id,
        })),
      };
    },

    audit: (entry) => recordAudit(sql, entry),

    async beat() {
      await answered(sql`select cs.instance_beat(${instance_id}, ${process?.host ?? null}, ${process?.pid ?? null})`);
    },
    async endInstance() {
      await endInstance(sql, { instance_id, evidence: 'ended by itself' });
    },
  };
}

/**
 * Commits one transition from revision `expected` to `expected + 1`; appends its event; sets when the fleet must look again. One round
 * trip, one more for a commit that carries sealed values.
 * @returns `stale_revision` when another worker committed first: reload and decide again.
 * @throws {StoreUnavailable} during the commit the outcome is unknown: reload before acting.
 */
async function commitStage(
  sql: Sql,
  instance_id: string,
  commit: StageCommit,
  sealing: Sealing | undefined,
): Promise<CommitOutcome> {
  const facts = await sealFacts(sql, sealing, null, commit.run_id, commit.facts);
  const [row] = await answered(sql`
    select * from cs.commit_stage(null, null, ${instance_id}, ${uuidOfRunId(commit.run_id)}::uuid, ${commit.expected}, ${commit.from},
      ${commit.on}, ${commit.to}, ${json(facts)}::text::jsonb, ${commit.wake_in_ms})`);
  return row === undefined ? { kind: 'stale_revision' } : { kind: 'committed', row: hotRow(commit.run_id, row) };
}

/**
 * Checks every dispatch condition under the row lock and, if all hold, writes the attempt and the state in one transaction (protocol rule 5c, 5d).
 * Only a `committed` answer permits the send.
 * @throws {StoreUnavailable} the outcome is unknown: send nothing (rule 7).
 */
async function commitDispatch(sql: Sql, instance_id: string, commit: DispatchCommit): Promise<DispatchOutcome> {
  const attempt = {
    attempt_id: commit.attempt_id,
    idempotency_key: commit.idempotency_key,
    action_digest: commit.action_digest,
    request_digest: commit.request_digest,
    operation: commit.operation,
    decision_ids: commit.decision_ids,
    approval_digest: commit.approval_digest,
    retry: commit.retry,
  };
  const [row] = await answered(sql<
    { result: string; detail: string | null; attempt_n: number; started_at: string; budget_ms: number }[]
  >`
    select result, detail, attempt_n, started_at, budget_ms, (hot).* from cs.commit_dispatch(${instance_id}, ${uuidOfRunId(commit.run_id)}::uuid,
      ${commit.expected}, ${json(attempt)}::text::jsonb, ${Buffer.from(commit.request_bytes)}, ${commit.call_deadline_ms}, ${commit.expiry_margin_ms},
      ${commit.sweep_grace_ms}, ${commit.count_dev_keys})`);
  if (row === undefined) throw new Error('commit_dispatch returned nothing');
  if (row.result === 'committed') {
    const { attempt_n, started_at, budget_ms } = row;
    return { kind: 'committed', row: hotRow(commit.run_id, row), attempt_n, started_at, budget_ms };
  }
  if (row.result === 'stale') return { kind: 'stale_revision' };
  if (isRefusal(row.result)) return { kind: 'refused', code: row.result, detail: row.detail ?? '' };
  throw new Error(`commit_dispatch returned ${row.result}`);
}

/** Records what was refused or came too late: an audit event, no change of any run. */
export async function recordAudit(sql: Sql, entry: AuditEntry): Promise<void> {
  await answered(sql`
    select cs.record_audit(${entry.tenant_id}, ${entry.principal_id}, ${entry.run_id === null ? null : uuidOfRunId(entry.run_id)}::uuid, ${entry.what},
      ${entry.code}, ${json(entry.detail)}::text::jsonb)`);
}
