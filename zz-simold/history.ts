import {
  checkHistory,
  type LateEvidence,
  type LedgerEffect,
  type RunHistory,
  type Snapshot,
} from '@counterstamp/history-checker';
import type { JsonValue } from '@counterstamp/manifest-core';
import { iso, type MemoryRun } from './memory-run.ts';
import { contractOf } from './ports.ts';
import type { ProviderEffect } from './provider.ts';
import type { World } from './world.ts';

/** The first thing that the history checker (H1 to H12) finds in a world; null when all hold. `healed`: the fleet had time to heal. */
export function judge(world: World, healed: boolean): string | null {
  const found = checkHistory(snapshotOf(world, healed)).find(({ severity }) => severity === 'violation');
  return found === undefined ? null : `${found.check} ${found.code} (${found.run_id}): ${found.message}`;
}

function snapshotOf(world: World, healed: boolean): Snapshot {
  const { provider, durations } = world;
  const name = contractOf(world).name;
  // A copy that the network made is nobody's send: what it did stands among the effects.
  const requests = provider.ledger.filter((entry) => !entry.copy);
  return {
    runs: [...world.store.runs.values()].map(historyOf),
    ledger: {
      since: null,
      requests: requests.map((entry) => ({
        provider: name,
        seq: provider.ledger.indexOf(entry) + 1,
        arrived_at: iso(entry.arrivedMs),
        run_id: entry.run_id,
        idempotency_key: provider.keepsKeys ? entry.key : null,
        body_digest: entry.body_digest,
      })),
      effects: provider.effects.map((effect) => {
        const made = provider.ledger.findIndex((entry) => entry.effect === effect && entry.result === 'applied');
        return effectOf(effect, name, made < 0 ? null : made + 1, provider.keepsKeys);
      }),
    },
    settle: { pause_ms: durations.pause_ms, provider_ms: durations.provider_ms },
    // A run of a healed fleet waits for one re-hint at most.
    healed: healed ? { now: iso(world.scheduler.nowMs), overdue_ms: durations.rehint_max_ms } : null,
  };
}

function effectOf(effect: ProviderEffect, provider: string, request_seq: number | null, keyed: boolean): LedgerEffect {
  const { ref, run_id, amount, currency, destination, status, metadata, reason, memo } = effect;
  const said: Record<string, JsonValue> = { amount_minor: amount, currency };
  if (memo === '') Object.assign(said, { destination, reason });
  else Object.assign(said, { customer_id: destination, memo: memo.slice((run_id?.length ?? -1) + 1) });
  return {
    provider,
    ref,
    request_seq,
    run_id,
    idempotency_key: keyed ? effect.key : null,
    action_digest: typeof metadata.action_digest === 'string' ? metadata.action_digest : null,
    settlement: status === 'succeeded' ? 'final' : status,
    fields: said,
  };
}

function historyOf(run: MemoryRun): RunHistory {
  const { made } = run;
  return {
    run: {
      run_id: made.run_id,
      tenant_id: made.tenant_id,
      request_id: made.request_id,
      generation: run.generation,
      connector: made.connector,
      requested_by: made.principal_id,
      state: run.state,
      revision: run.revision as RunHistory['run']['revision'],
      action_revision: run.action_revision as RunHistory['run']['action_revision'],
      decisions_sufficient: run.decisions_sufficient,
      retry_allowed: run.retry_allowed,
      wake_at: run.wakeMs === null ? null : iso(run.wakeMs),
      parked_reason: run.parked_reason,
      stop_reason: run.stop_reason,
      chain_head: run.chain_head,
    },
    events: run.events,
    actions: [...run.actions].map(([action_revision, { canonical, digest }]) => ({
      action_revision,
      canonical,
      digest,
    })),
    approvals: [...run.approvals.values()].map((approval) => ({
      ...approval,
      decisions: run.decisions.get(approval.approval_id) ?? [],
    })),
    attempts: run.attemptRows,
    late_evidence: run.evidence.flatMap(({ evidence_id, observed_at, kind, attempt_id, revision }): LateEvidence[] =>
      attempt_id !== null && (kind === 'late_effect' || kind === 'late_outcome')
        ? [{ evidence_id, observed_at, kind, attempt_id, revision }]
        : [],
    ),
    observations: run.observations,
  };
}
