import type { ConnectorContract, FieldDiff, Observation } from '@counterstamp/connectors';
import {
  backoffMs,
  type CommitFacts,
  compareEffect,
  type Durations,
  epochMs,
  type JsonObject,
  type Limits,
  type LoadedRun,
  stopReason,
} from '@counterstamp/manifest-core';
import type { StageDecision } from '@counterstamp/stage-runtime';

type Terms = { durations: Durations; limits: Limits; contract: ConnectorContract | undefined };

/**
 * Whether an independent read proves the approved effect (protocol rule 21): our reference, a final status, every field equal. Different is
 * parked for a person; not visible, pending or unreadable is a counted wait; at the limit it becomes a matter of reconciliation.
 */
export function decideVerification(run: LoadedRun, observation: Observation, terms: Terms): StageDecision {
  switch (observation.kind) {
    case 'unknown':
      return wait(run, observation.reason, terms);
    case 'absent':
      return wait(run, 'not visible yet', terms);
    case 'found':
      break;
  }
  switch (observation.match) {
    case 'exact':
      break;
    case 'different':
      return mismatch(observation.effect.provider_ref, observation.differing, {
        effect: observation.effect,
        differing: observation.differing,
      });
    case 'multiple':
      return mismatch(null, [], { effects: observation.effects });
    case 'lookalike':
      return wait(run, 'only an effect without our reference is visible', terms);
  }
  const { effect } = observation;
  const seen = { provider_ref: effect.provider_ref, body: { effect } };
  switch (compareEffect({ settlement: effect.settlement, differing: [] })) {
    case 'match':
      return {
        kind: 'commit',
        on: 'effect_verified',
        facts: { observation: { kind: 'matched', ...seen } },
        // A settlement that can still turn is looked at again (rule 25).
        wake_in_ms: firstAuditMs(terms),
      };
    case 'failed':
      return {
        kind: 'commit',
        on: 'settlement_failed',
        facts: {
          observation: { kind: 'settlement_failed', ...seen },
          stop_reason: stopReason('settlement_failed', `Its status is ${effect.status}.`),
        },
        wake_in_ms: terms.durations.closure_audit_ms,
      };
    case 'different':
      throw new Error('unreachable: an exact effect differs in nothing');
    case 'pending':
      return wait(run, `its status is ${effect.status}`, terms);
  }
}

/** Until a completed run is first looked at again; null where a final status never turns. */
function firstAuditMs({ contract, durations }: Terms): number | null {
  const horizonMs = contract?.reversalHorizonMs ?? 0;
  return horizonMs > 0 ? Math.min(horizonMs, durations.closure_audit_ms) : null;
}

function mismatch(provider_ref: string | null, differing: readonly FieldDiff[], body: JsonObject): StageDecision {
  const fields = differing
    .map((diff) => `${diff.field}: approved ${diff.approved}, observed ${diff.observed}`)
    .join('; ');
  return {
    kind: 'commit',
    on: 'verification_failed',
    facts: {
      observation: { kind: 'mismatched', provider_ref, body },
      stop_reason: stopReason(
        'verification_mismatch',
        fields === '' ? 'Several effects carry our reference.' : `${fields}.`,
      ),
      parked_reason: 'verification_mismatch',
    },
    wake_in_ms: null,
  };
}

function wait(run: LoadedRun, why: string, { durations, limits }: Terms): StageDecision {
  const waits = run.manifest.counters.verification_waits + 1;
  const observation: CommitFacts['observation'] = { kind: 'pending', provider_ref: null, body: { why } };
  if (run.nowMs >= epochMs(run.manifest.deadlines.run)) {
    return {
      kind: 'commit',
      on: 'deadline_passed',
      facts: { stop_reason: stopReason('deadline_exceeded', `Last look: ${why}.`) },
      wake_in_ms: durations.look_min_ms,
    };
  }
  if (waits >= limits.verification_waits_max) {
    return {
      kind: 'commit',
      on: 'verification_failed',
      facts: {
        observation: { ...observation, kind: 'not_found' },
        stop_reason: stopReason('verification_not_found', `Last look: ${why}.`),
      },
      wake_in_ms: durations.look_min_ms,
    };
  }
  return {
    kind: 'commit',
    on: 'verification_pending',
    facts: { observation },
    wake_in_ms: backoffMs(waits - 1, durations.look_min_ms, durations.look_max_ms),
  };
}
