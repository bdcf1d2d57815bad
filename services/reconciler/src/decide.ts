import { type ConnectorContract, type Effect, keyRetentionMs, type Observation } from '@counterstamp/connectors';
import {
  type AttemptFact,
  backoffMs,
  type ClosureFacts,
  closureAudits,
  type DueRun,
  type Durations,
  EXPIRY_MARGIN_MS,
  epochMs,
  type JsonValue,
  type Limits,
  type LoadedRun,
  type Look,
  type Manifest,
  type NextLookFacts,
  nextClosureAudit,
  nextLook,
  nothingLeft,
  type RetryGrounds,
  retryReserveMs,
  type StageCommit,
  type StopReasonCode,
  settleMs,
  stopReason,
} from '@counterstamp/manifest-core';
import type { StageDecision } from '@counterstamp/stage-runtime';

/** What a look is judged by beside the run. */
export interface Terms {
  durations: Durations;
  limits: Limits;
  /** V of the run's workflow, and its target's contract; undefined where the workflow is not installed. */
  visibilityMs: number;
  contract: ConnectorContract | undefined;
}

/**
 * What a look at the business record means for a run whose effect is in doubt (protocol rules 16 to 19). Presence may be concluded at once;
 * absence proves something only when it was observed after the last call deadline + settle. The judgement itself is `nextLook`.
 */
export function decideLook(run: LoadedRun, observation: Observation, terms: Terms): StageDecision {
  const { manifest } = run;
  const facts = lookFacts(run, observation, terms);
  const next = nextLook(facts);
  switch (next.to) {
    case 'not_sent':
      return {
        kind: 'commit',
        on: 'never_sent',
        facts: { stop_reason: stopReason('not_sent', `(${reasonsOf(manifest)})`) },
        wake_in_ms: terms.durations.closure_audit_ms,
      };
    case 'retry':
      return next.kind === 'after_not_sent'
        ? resend(run, terms)
        : {
            kind: 'commit',
            on: 'retry_recorded',
            facts: {
              observation: {
                kind: 'absent',
                provider_ref: null,
                body: { why: 'absent', observed_at: run.now, retry: next.kind },
              },
              retry_grounds: groundsOf(run.now, terms),
            },
            wake_in_ms: terms.durations.stage_lease_ms,
          };
    case 'verifying':
      return found(run, observation, terms);
    case 'wait':
      return look(run, whyOf(observation), waitMs(facts, run, terms), terms);
    case 'park':
      return parkFor(next.why, observation);
  }
}

/** The run, the look and the configuration as the facts that the guards of manifest-core ask for. */
function lookFacts(run: LoadedRun, observation: Observation, terms: Terms): NextLookFacts {
  const { manifest, nowMs } = run;
  const { durations, limits, contract } = terms;
  const left = manifest.attempts.filter((attempt) => attempt.status !== 'not_sent');
  const retention = contract === undefined ? null : keyRetentionMs(contract);
  // Rounded so that absence counts later and the key looks older than to the microsecond.
  const lastDeadline = Math.max(...left.map((attempt) => epochMs(attempt.call_deadline) + 1));
  return {
    look: lookOf(observation),
    attempts: manifest.attempts.map((attempt) => attemptFact(attempt, nowMs)),
    evidence_of_effect:
      manifest.evidence.some((item) => item.kind === 'late_effect') ||
      manifest.attempts.some((attempt) => attempt.status === 'succeeded'),
    retries_refused: manifest.counters.retries_refused,
    until_expiry: manifest.approval === null ? 0 : epochMs(manifest.approval.expires_at) - nowMs,
    expiry_margin: durations.epsilon_ms + EXPIRY_MARGIN_MS,
    not_sent_retries: manifest.counters.not_sent_retries,
    not_sent_retries_max: limits.not_sent_retries_max,
    // `run.now` was read before the look: the time that the observation counts from (rule 17).
    absence:
      observation.kind === 'absent' && left.length > 0
        ? { since_deadline: nowMs - lastDeadline, settle: settleMs(durations, terms.visibilityMs) }
        : null,
    key: retention === null ? null : { retention },
    since_first_send:
      left.length === 0 ? 0 : nowMs + 1 - Math.min(...left.map((attempt) => epochMs(attempt.started_at))),
    reserve: retryReserveMs(durations),
    verifier_gave_up: verifierGaveUp(run, terms),
  };
}

function lookOf(observation: Observation): Look {
  switch (observation.kind) {
    case 'absent':
    case 'unknown':
      return { seen: observation.kind };
    case 'found':
      switch (observation.match) {
        case 'exact':
          return { seen: 'ours', effects: [{ settlement: observation.effect.settlement, differing: [] }] };
        case 'different':
          return {
            seen: 'ours',
            effects: [{ settlement: observation.effect.settlement, differing: observation.differing }],
          };
        case 'multiple':
          return {
            seen: 'ours',
            effects: observation.effects.map(({ settlement }) => ({ settlement, differing: [] })),
          };
        case 'lookalike':
          return { seen: 'lookalike' };
      }
  }
}

function attemptFact(attempt: Manifest['attempts'][number], nowMs: number): AttemptFact {
  if (attempt.status !== 'uncertain') return { status: attempt.status };
  const { response } = attempt;
  const permits = typeof response === 'object' && response !== null && !Array.isArray(response);
  if (!permits || response.class !== 'retry_safe' || attempt.closed_at === null)
    return { status: 'uncertain', retry_safe_in: null };
  const afterMs = typeof response.afterMs === 'number' ? response.afterMs : 0;
  return { status: 'uncertain', retry_safe_in: epochMs(attempt.closed_at) + 1 + afterMs - nowMs };
}

function groundsOf(observed_at: string | null, { durations, limits, visibilityMs, contract }: Terms): RetryGrounds {
  return {
    observed_at,
    settle_ms: settleMs(durations, visibilityMs),
    retention_ms: contract === undefined ? null : keyRetentionMs(contract),
    reserve_ms: retryReserveMs(durations),
    expiry_margin_ms: durations.epsilon_ms + EXPIRY_MARGIN_MS,
    not_sent_retries_max: limits.not_sent_retries_max,
  };
}

/** The same request once more, after a back-off since the last one that did not leave (rule 8). */
function resend({ manifest, nowMs }: LoadedRun, terms: Terms): StageDecision {
  const { defer_min_ms, defer_max_ms, stage_lease_ms } = terms.durations;
  const closedMs = Math.max(...manifest.attempts.map((attempt) => epochMs(attempt.closed_at ?? attempt.started_at)));
  const leftMs = closedMs + backoffMs(manifest.counters.not_sent_retries, defer_min_ms, defer_max_ms) - nowMs;
  if (leftMs > 0)
    return { kind: 'defer', wake_in_ms: leftMs, code: 'resend_backoff', reason: 'not sent; tried again later' };
  return {
    kind: 'commit',
    on: 'resend_recorded',
    facts: { retry_grounds: groundsOf(null, terms) },
    wake_in_ms: stage_lease_ms,
  };
}

/** Our effect is there: the verifier judges it. */
function found(run: LoadedRun, observation: Observation, { durations, limits }: Terms): StageDecision {
  if (observation.kind !== 'found' || observation.match !== 'exact') throw new Error('only an exact effect is found');
  const { effect } = observation;
  // Looks without a result end at their limit, so more of them means an effect that is seen here and not by the verifier.
  if (run.manifest.counters.look_ups >= 2 * limits.look_ups_max)
    return park('external_result_uncertain', 'It is found and lost again and again.', effect.provider_ref, { effect });
  return {
    kind: 'commit',
    on: 'effect_found',
    facts: { observation: { kind: 'found', provider_ref: effect.provider_ref, body: { effect } } },
    wake_in_ms: durations.stage_lease_ms,
  };
}

type ParkReason = 'different' | 'multiple' | 'lookalike' | 'absent' | 'evidence_stands';

function parkFor(why: ParkReason, observation: Observation): StageDecision {
  if (observation.kind === 'found' && observation.match === 'different') {
    const fields = observation.differing
      .map((diff) => `${diff.field}: approved ${diff.approved}, observed ${diff.observed}`)
      .join('; ');
    return park('effect_differs', `${fields}.`, observation.effect.provider_ref, {
      effect: observation.effect,
      differing: observation.differing,
    });
  }
  if (observation.kind === 'found' && observation.match !== 'exact')
    return park('effect_ambiguous', `(${observation.match})`, null, {
      match: observation.match,
      effects: observation.effects,
    });
  const strength = observation.kind === 'absent' ? observation.strength : null;
  return why === 'evidence_stands'
    ? park('late_effect_found', 'The provider once said that it was applied.', null, { why: 'absent', strength })
    : park('effect_not_found', undefined, null, { why: 'absent', strength });
}

function whyOf(observation: Observation): string {
  switch (observation.kind) {
    case 'absent':
      return 'absent so far';
    case 'unknown':
      return observation.reason;
    case 'found':
      return observation.match === 'exact' ? `its status is ${observation.effect.status}` : observation.match;
  }
}

/** Until the next look: backed off, and no later than absence counts or the answer of the target permits another send. */
function waitMs(facts: NextLookFacts, { manifest }: LoadedRun, { durations }: Terms): number {
  const { look_min_ms, look_max_ms } = durations;
  const waits = [backoffMs(manifest.counters.look_ups, look_min_ms, look_max_ms)];
  if (facts.absence !== null) waits.push(facts.absence.settle - facts.absence.since_deadline);
  for (const attempt of facts.attempts)
    if (attempt.status === 'uncertain' && attempt.retry_safe_in !== null) waits.push(attempt.retry_safe_in);
  return Math.min(...waits.filter((ms) => ms > 0), look_max_ms);
}

/** Whether the verifier would send the run straight back here while its effect is not settled. */
function verifierGaveUp({ manifest, nowMs }: LoadedRun, { limits }: Terms): boolean {
  return (
    nowMs >= epochMs(manifest.deadlines.run) ||
    manifest.counters.verification_waits + 1 >= limits.verification_waits_max
  );
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

function reasonsOf({ attempts }: Manifest): string {
  return attempts
    .map(({ response }) =>
      typeof response === 'object' &&
      response !== null &&
      !Array.isArray(response) &&
      typeof response.reason === 'string'
        ? response.reason
        : 'unknown',
    )
    .join(', ');
}

/** A look at a closed run: what to do, and whether the look is worth an audit event (a successor may rest on it). */
export type AuditDecision = { decision: StageDecision; looked: string | null };

/**
 * What a look at a closed run means (protocol rule 25). A failed run reopens when an effect shows that its outcome does not record, a
 * completed one when its effect was undone. Otherwise the next look is due, or none.
 */
export function decideClosureAudit(run: LoadedRun, observation: Observation, terms: Terms): AuditDecision {
  const { manifest, nowMs } = run;
  const facts = closureFacts(manifest, terms);
  const next = nextClosureAudit(facts, nowMs);
  const rest: StageDecision = {
    kind: 'defer',
    wake_in_ms: next === null ? null : next - nowMs,
    code: 'closure_rest',
    reason: 'closed; looked at again later',
  };
  if (observation.kind === 'unknown') {
    // No answer is no look: asked again soon, for as long as the last look is not one whole interval overdue.
    const last = closureAudits(facts).at(-1) ?? 0;
    const givenUp = next === null && nowMs > last + terms.durations.closure_audit_ms;
    const wait = Math.min(terms.durations.look_max_ms, next === null ? Number.POSITIVE_INFINITY : next - nowMs);
    return givenUp
      ? { decision: rest, looked: 'given_up' }
      : {
          decision: { kind: 'defer', wake_in_ms: wait, code: 'closure_unanswered', reason: observation.reason },
          looked: null,
        };
  }
  if (manifest.state === 'completed') return { decision: reversalOf(observation) ?? rest, looked: null };
  return { decision: lateEffectOf(manifest, observation) ?? rest, looked: 'looked' };
}

/** The instants of a closed run that its looks are timed by. */
export function closureFacts(manifest: Manifest, { durations, visibilityMs, contract }: Terms): ClosureFacts {
  const left = manifest.attempts.filter((attempt) => attempt.status !== 'not_sent');
  return {
    state: manifest.state === 'completed' ? 'completed' : 'failed',
    closed_at: epochMs(manifest.state_since),
    last_deadline: nothingLeft(manifest.attempts)
      ? null
      : Math.max(...left.map((attempt) => epochMs(attempt.call_deadline) + 1)),
    first_started: left.length === 0 ? null : Math.min(...left.map((attempt) => epochMs(attempt.started_at))),
    settle_ms: settleMs(durations, visibilityMs),
    closure_audit_ms: durations.closure_audit_ms,
    retention_ms: contract?.idempotency.kind === 'key' ? contract.idempotency.retentionMs : null,
    reversal_horizon_ms: contract?.reversalHorizonMs ?? 0,
  };
}

/** Effects with our reference that a look showed; a lookalike is somebody else's. */
function ourEffects(observation: Observation): Effect[] {
  if (observation.kind !== 'found' || observation.match === 'lookalike') return [];
  return 'effects' in observation ? observation.effects : [observation.effect];
}

/** What a completed run's effect has become, when it is no longer the one that was verified. */
function reversalOf(observation: Observation): StageDecision | undefined {
  const effects = ourEffects(observation);
  const [effect, second] = effects;
  if (effect === undefined) return undefined;
  const asVerified = observation.kind === 'found' && observation.match === 'exact';
  if (asVerified && effect.settlement !== 'failed') return undefined;
  const code = second === undefined ? 'effect_reversed' : 'effect_ambiguous';
  return {
    kind: 'commit',
    on: 'effect_reversed',
    facts: {
      observation: { kind: 'found', provider_ref: effect.provider_ref, body: { effects } },
      stop_reason: stopReason(code, `Its status is now ${effect.status}.`),
      parked_reason: code,
    },
    wake_in_ms: null,
  };
}

/** An effect behind a failed run that its outcome does not record. */
function lateEffectOf(manifest: Manifest, observation: Observation): StageDecision | undefined {
  const code = manifest.stop_reason?.code;
  const recorded = new Set(
    code === 'settled_with_difference' || code === 'settlement_failed'
      ? manifest.observations.map((seen) => seen.provider_ref)
      : [],
  );
  const effects = ourEffects(observation).filter(
    (effect) => effect.settlement !== 'failed' && !recorded.has(effect.provider_ref),
  );
  const [first] = effects;
  if (first === undefined) return undefined;
  return {
    kind: 'commit',
    on: 'late_effect_found',
    facts: {
      observation: { kind: 'found', provider_ref: first.provider_ref, body: { effects } },
      stop_reason: stopReason('late_effect_found', `Its status is ${first.status}.`),
      parked_reason: 'late_effect_found',
    },
    wake_in_ms: null,
  };
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
