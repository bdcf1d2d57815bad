import type { Observation } from '@counterstamp/connectors';
import {
  backoffMs,
  type DueRun,
  type Durations,
  epochMs,
  type JsonValue,
  type Limits,
  type LoadedRun,
  type Manifest,
  type StageCommit,
  type StopReasonCode,
  settleMs,
  stopReason,
} from '@counterstamp/manifest-core';
import type { StageDecision } from '@counterstamp/stage-runtime';

type Terms = { durations: Durations; limits: Limits; visibilityMs: number };

/**
 * What a look at the business record means for a run whose effect is in doubt (protocol rules 16 to 18). Presence may be concluded at once;
 * absence proves something only when it was observed after the last call deadline + settle. Without the automatic retry, settled absence
 * is parked for a person.
 */
export function decideLook(run: LoadedRun, observation: Observation, terms: Terms): StageDecision {
  const { manifest } = run;
  // Rule 14: positive evidence is a veto on every conclusion that there is no effect.
  const vetoed = manifest.evidence.some((item) => item.kind === 'late_effect');
  if (!vetoed && manifest.attempts.length > 0 && manifest.attempts.every((attempt) => attempt.status === 'not_sent')) {
    const reasons = manifest.attempts.map((attempt) => reasonOf(attempt.response)).join(', ');
    return {
      kind: 'commit',
      on: 'never_sent',
      facts: { stop_reason: stopReason('not_sent', `(${reasons})`) },
      wake_in_ms: null,
    };
  }
  switch (observation.kind) {
    case 'found': {
      switch (observation.match) {
        case 'exact': {
          const { effect } = observation;
          const settled = effect.settlement === 'final' || effect.settlement === 'failed';
          // Sent back to a verifier that has no wait left, the run would turn in a circle: from here on the looks count (rules 16 and 24).
          if (!settled && verifierGaveUp(run, terms))
            return look(run, `its status is ${effect.status}`, nextLookMs(manifest, terms), terms);
          // Looks without a result end at their limit, so more of them means an effect that is seen here and not by the verifier.
          if (manifest.counters.look_ups >= 2 * terms.limits.look_ups_max)
            return park('external_result_uncertain', 'It is found and lost again and again.', effect.provider_ref, {
              effect,
            });
          return {
            kind: 'commit',
            on: 'effect_found',
            facts: { observation: { kind: 'found', provider_ref: effect.provider_ref, body: { effect } } },
            wake_in_ms: terms.durations.stage_lease_ms,
          };
        }
        case 'different': {
          const fields = observation.differing
            .map((diff) => `${diff.field}: approved ${diff.approved}, observed ${diff.observed}`)
            .join('; ');
          return park('effect_differs', `${fields}.`, observation.effect.provider_ref, {
            effect: observation.effect,
            differing: observation.differing,
          });
        }
        case 'multiple':
        case 'lookalike':
          return park('effect_ambiguous', `(${observation.match})`, null, {
            match: observation.match,
            effects: observation.effects,
          });
      }
      break;
    }
    case 'absent': {
      // `run.now` was read before the look: the time that the observation counts from (rule 17).
      const settledAtMs = absenceSettlesAtMs(manifest, terms);
      if (run.nowMs >= settledAtMs && vetoed)
        return park('late_effect_found', 'The provider once said that it was applied.', null, {
          why: 'absent',
          strength: observation.strength,
        });
      if (run.nowMs >= settledAtMs)
        return park('effect_not_found', undefined, null, { why: 'absent', strength: observation.strength });
      return look(run, 'absent so far', Math.min(settledAtMs - run.nowMs, nextLookMs(manifest, terms)), terms);
    }
    case 'unknown':
      return look(run, observation.reason, nextLookMs(manifest, terms), terms);
  }
  throw new Error('unreachable: every match returned');
}

/** Earliest time at which absence of the effect counts: the last call deadline + settle, rounded up. */
function absenceSettlesAtMs(manifest: Manifest, { durations, visibilityMs }: Terms): number {
  const deadlines = manifest.attempts
    .filter((attempt) => attempt.status !== 'not_sent')
    .map((attempt) => epochMs(attempt.call_deadline) + 1);
  return Math.max(...deadlines) + settleMs(durations, visibilityMs);
}

/** Whether the verifier would send the run straight back here while its effect is not settled. */
function verifierGaveUp({ manifest, nowMs }: LoadedRun, { limits }: Terms): boolean {
  return (
    nowMs >= epochMs(manifest.deadlines.run) ||
    manifest.counters.verification_waits + 1 >= limits.verification_waits_max
  );
}

function nextLookMs(manifest: Manifest, { durations }: Terms): number {
  return backoffMs(manifest.counters.look_ups, durations.look_min_ms, durations.look_max_ms);
}

function look(run: LoadedRun, why: string, wake_in_ms: number, { limits }: Terms): StageDecision {
  if (run.nowMs >= epochMs(run.manifest.deadlines.run))
    return park('deadline_exceeded', `Last look: ${why}.`, null, { why });
  if (run.manifest.counters.look_ups + 1 >= limits.look_ups_max)
    return park('external_result_uncertain', `After ${limits.look_ups_max} looks, last: ${why}.`, null, { why });
  return {
    kind: 'commit',
    on: 'look_inconclusive',
    facts: { observation: { kind: 'inconclusive', provider_ref: null, body: { why } } },
    wake_in_ms: Math.max(1, wake_in_ms),
  };
}

function park(
  code: StopReasonCode,
  detail: string | undefined,
  provider_ref: string | null,
  body: JsonValue,
): StageDecision {
  return {
    kind: 'commit',
    on: 'parked',
    facts: {
      observation: { kind: 'inconclusive', provider_ref, body },
      stop_reason: stopReason(code, detail),
      parked_reason: code,
    },
    wake_in_ms: null,
  };
}

function reasonOf(response: JsonValue): string {
  return typeof response === 'object' &&
    response !== null &&
    'reason' in response &&
    typeof response.reason === 'string'
    ? response.reason
    : 'unknown';
}

/** The move that the sweeper commits by itself for a run that is overdue; `undefined` when a hint is all it needs. */
export function decideOverdue({ row, overdue, attempt_id }: DueRun, durations: Durations): StageCommit | undefined {
  const base = { run_id: row.run_id, expected: row.revision, from: row.state };
  switch (overdue) {
    case 'attempt':
      if (attempt_id === null) throw new Error('an overdue attempt without an attempt');
      return {
        ...base,
        on: 'attempt_overdue',
        to: 'needs_reconciliation',
        facts: {
          attempt_outcome: {
            attempt_id,
            status: 'uncertain',
            provider_ref: null,
            response: { class: 'uncertain', reason: 'no outcome was recorded in time' },
          },
          stop_reason: stopReason('external_result_uncertain', '(no outcome was recorded in time)'),
        },
        wake_in_ms: durations.stage_lease_ms,
      };
    case 'approval':
      return {
        ...base,
        on: 'approval_expired',
        to: 'expired',
        facts: { stop_reason: stopReason('approval_expired') },
        wake_in_ms: null,
      };
    case 'run':
      if (row.state === 'needs_reconciliation')
        return {
          ...base,
          on: 'parked',
          to: 'needs_reconciliation',
          facts: { stop_reason: stopReason('deadline_exceeded'), parked_reason: 'deadline_exceeded' },
          wake_in_ms: null,
        };
      return row.state === 'verifying'
        ? {
            ...base,
            on: 'deadline_passed',
            to: 'needs_reconciliation',
            facts: { stop_reason: stopReason('deadline_exceeded') },
            wake_in_ms: durations.stage_lease_ms,
          }
        : {
            ...base,
            on: 'deadline_passed',
            to: 'failed',
            facts: { stop_reason: stopReason('deadline_exceeded') },
            wake_in_ms: null,
          };
    case null:
      return undefined;
  }
}
