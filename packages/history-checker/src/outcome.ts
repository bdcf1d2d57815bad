import type { Finding } from './checks.ts';
import { equalJson } from './equal-json.ts';
import { approvalOf, microseconds, positiveEvidence, type RunHistory, recordIn, sendable } from './history.ts';
import { type LedgerEffect, type LedgerShare, stands } from './ledger.ts';
import type { SettleTerms } from './sends.ts';

/**
 * H8: a run completed only by an own read that matched, made after an attempt had started; and while it is completed exactly what that read
 * named stands in the provider's books: final, with our tag, equal in every field that the books show. One that was undone since is right only
 * as long as a later look is still due. (That a final equal effect leaves no run closed without it is H9; that it leaves none stuck, H11.)
 * @param share the run's part of the ledger; null without one.
 */
export function completedMeansObserved(
  history: RunHistory,
  share: LedgerShare | null,
  terms: SettleTerms,
): Finding<'H8'>[] {
  const found: ReturnType<typeof completedMeansObserved> = [];
  const { run, events, observations } = history;
  const completions = events.filter((event) => event.to === 'completed');
  for (const { revision } of completions) {
    const read = observations.find((one) => one.revision === revision);
    if (read?.kind !== 'matched')
      found.push({ code: 'not_observed', message: `revision ${revision} completed the run without a matching read` });
    else if (!sendable(history).some((attempt) => microseconds(attempt.started_at) < microseconds(read.at)))
      found.push({ code: 'observed_too_early', message: `the read of revision ${revision} was before any attempt` });
  }
  if (run.state !== 'completed' || share === null) return found;
  const proof = observations.find((one) => one.revision === completions.at(-1)?.revision);
  const equal = share.effects.filter((effect) => differing(history, effect).length === 0);
  const final = equal.find((effect) => effect.settlement === 'final');
  if (final === undefined) {
    const [effect] = share.effects;
    if (effect === undefined)
      found.push({ code: 'no_effect', message: 'the run is completed, and the provider has no effect of it' });
    else if (!equal.some((one) => one.settlement === 'failed'))
      found.push({
        code: 'effect_differs',
        message: `the run is completed, but ${effect.ref} is ${effect.settlement}${differing(history, effect)
          .map((one) => `; ${one}`)
          .join('')}`,
      });
    else if (run.wake_at === null)
      found.push({ code: 'effect_undone', message: `${effect.ref} was undone, and nobody will look again` });
    return found;
  }
  if (proof !== undefined && proof.provider_ref !== final.ref)
    found.push({
      code: 'other_effect_observed',
      message: `the read that completed the run saw ${proof.provider_ref ?? 'no name'}, the effect is ${final.ref}`,
    });
  const made = share.requests.find(
    (request) => request.provider === final.provider && request.seq === final.request_seq,
  );
  const skewUs = (terms.skew_ms ?? 1) * 1_000;
  if (proof !== undefined && made !== undefined && microseconds(made.arrived_at) > microseconds(proof.at) + skewUs)
    found.push({
      code: 'observed_too_early',
      message: `the read that completed the run was at ${proof.at}, the request that made ${final.ref} arrived at ${made.arrived_at}`,
    });
  return found;
}

/** Fields of an effect that are not as the dispatched action has them, our tag included. */
function differing(history: RunHistory, effect: LedgerEffect): string[] {
  const attempt = history.attempts.at(-1);
  const revision = attempt === undefined ? undefined : approvalOf(history, attempt)?.action_revision;
  const action = recordIn(history.actions.find((one) => one.action_revision === revision)?.canonical ?? '');
  const faults = Object.entries(effect.fields)
    .filter(([name, value]) => !equalJson(action[name], value))
    .map(([name, value]) => `${name} is ${JSON.stringify(value)}, approved ${JSON.stringify(action[name])}`);
  if (effect.action_digest !== null && effect.action_digest !== attempt?.action_digest)
    faults.push(`its action is ${effect.action_digest}, approved ${attempt?.action_digest}`);
  if (effect.run_id !== history.run.run_id) faults.push(`its tag is ${effect.run_id ?? 'missing'}`);
  return faults;
}

/**
 * H9: behind a run that is rejected, expired or failed stands no effect, and nothing says that there is one. The exceptions are a person's
 * `settled_with_difference`, whose outcome names the effect, and `settlement_failed`, whose effect the provider itself ended. A clear rejection
 * speaks for the run only when every other attempt sent nothing (protocol rule 12).
 * @param effects those of the run; null without a ledger.
 */
export function noEffectBehindClosedRun(history: RunHistory, effects: readonly LedgerEffect[] | null): Finding<'H9'>[] {
  const found: ReturnType<typeof noEffectBehindClosedRun> = [];
  const { run, events, attempts, observations } = history;
  for (const event of events) {
    if (event.trigger !== 'effect_rejected') continue;
    const other = attempts.find(
      (attempt) => attempt.status !== 'not_sent' && attempt.status !== 'rejected' && attempt.revision < event.revision,
    );
    if (other !== undefined)
      found.push({
        code: 'rejection_not_alone',
        message: `revision ${event.revision} failed the run on a rejection, and attempt ${other.n} is ${other.status}`,
      });
  }
  if (run.state !== 'rejected' && run.state !== 'expired' && run.state !== 'failed') return found;
  const reason = run.stop_reason?.code;
  const settled = reason === 'settled_with_difference';
  if (run.state !== 'failed' && attempts.length > 0)
    found.push({ code: 'attempt_behind', message: `the run is ${run.state}, and it had an attempt` });
  const evidence = positiveEvidence(history);
  if (evidence !== undefined && !settled && reason !== 'settlement_failed')
    found.push({ code: 'evidence_behind', message: `the run is ${run.state} (${reason}) despite ${evidence}` });
  const recorded = observations.at(-1)?.provider_ref;
  for (const effect of effects ?? []) {
    if (!stands(effect) || (attempts.length === 0 && effect.request_seq === null)) continue;
    if (!settled)
      found.push({
        code: 'effect_behind',
        message: `the run is ${run.state} (${reason}), and ${effect.ref} stands (${effect.settlement})`,
      });
    else if (effect.ref !== recorded)
      found.push({
        code: 'unrecorded_effect',
        message: `the run was settled as ${recorded ?? 'an effect without a name'}, and ${effect.ref} stands`,
      });
  }
  return found;
}

const RETRIES = ['retry_recorded', 'resend_recorded', 'retry_dispatched'];
const CLOSED_AS_ABSENT = ['person_absent', 'never_sent', 'effect_rejected'];

/**
 * H10: once the provider had said that the effect happened (an attempt that succeeded, or `late_effect` evidence), nothing was sent again and
 * nobody concluded that it did not happen.
 */
export function evidenceHeeded(history: RunHistory): Finding<'H10'>[] {
  const found: ReturnType<typeof evidenceHeeded> = [];
  for (const { revision, trigger } of history.events) {
    const retry = RETRIES.includes(trigger);
    if (!retry && !CLOSED_AS_ABSENT.includes(trigger)) continue;
    const evidence = positiveEvidence(history, revision);
    if (evidence === undefined) continue;
    found.push({
      code: retry ? 'retry_after_evidence' : 'absent_after_evidence',
      message: `${trigger} at revision ${revision}, despite ${evidence}`,
    });
  }
  return found;
}
