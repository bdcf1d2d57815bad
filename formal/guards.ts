import {
  type AbsenceFacts,
  type AttemptFact,
  absenceCounts,
  attemptOverdue,
  type CloseAbsentFacts,
  type CloseAbsentRefusal,
  compareEffect,
  type DispatchFacts,
  type DispatchRefusal,
  type Look,
  mayCloseAbsent,
  mayDispatch,
  mayRetry,
  type NextLook,
  type NextLookFacts,
  nextLook,
  type RetryFacts,
  type SeenEffect,
  type State,
  type Trigger,
} from '@counterstamp/manifest-core';
import type { Context } from './database.ts';
import { TICKS } from './environments.ts';
import {
  type Bytes,
  type Cell,
  type Effect,
  type Result,
  type Row,
  SETTLE,
  sends,
  type Worker,
  type World,
} from './state.ts';

/*
 * The model asks the product's own guards. Here its state becomes their facts; a rule that is taken away falsifies a fact or leaves out a
 * question.
 */

type OverdueFacts = Parameters<typeof attemptOverdue>[0];

/** One question to a guard, with its facts and what it said; or a move that was made. */
export type Judgement =
  | {
      guard: 'dispatch';
      facts: DispatchFacts;
      /** The facts of a recorded retry; `null`: the first dispatch. */
      retry: RetryFacts | null;
      verdict: DispatchRefusal | null;
    }
  | { guard: 'look'; facts: NextLookFacts; verdict: NextLook }
  /** `covered`: the instances ended before the read, or need not have. */
  | {
      guard: 'absent';
      facts: CloseAbsentFacts;
      covered: boolean;
      attempts: readonly AttemptFact[];
      verdict: CloseAbsentRefusal | null;
    }
  | { guard: 'overdue'; facts: OverdueFacts; verdict: boolean }
  | { guard: 'rejection'; others: readonly AttemptFact[]; verdict: boolean }
  | { guard: 'evidence'; state: State; parked: boolean; recordsEffect: boolean; verdict: boolean }
  | { guard: 'move'; from: State; on: Trigger };

/** An absence that was judged before and needs no second look. */
const SETTLED: AbsenceFacts = { since_deadline: SETTLE, settle: SETTLE };
const NOT_SETTLED: AbsenceFacts = { since_deadline: SETTLE - 1, settle: SETTLE };
/** D + Z + P: how long a retry begun now may still reach the provider. */
const RESERVE = TICKS.call + TICKS.pause + TICKS.provider;

/** Whether the provider has said that it applied the action (rule 14). */
export function evidenceStands(row: Row): boolean {
  return row.lateEffect || row.attempts.some((attempt) => attempt.status === 'succeeded');
}

/** Whether a read that began now and found nothing would prove that nothing can come (rule 17). */
export function isSettled(row: Row): boolean {
  const last = sends(row).at(-1);
  return last === undefined || absenceCounts({ since_deadline: last.age - TICKS.call, settle: SETTLE });
}

/** What the guard of a dispatch is told. `load` is the worker's early look, `commit` the one under the row lock. */
function dispatchFacts(
  { rules, env }: Context,
  world: World,
  cell: Cell,
  bytes: Bytes,
  retry: boolean,
  at: 'load' | 'commit',
): DispatchFacts {
  const { row } = cell;
  const approvalChecked = !retry || rules['retry-rechecks-approval'];
  const expiryChecked = retry ? rules['retry-rechecks-approval'] : at === 'load' || rules['expiry-in-commit'];
  const decisionChecked = rules['decision-in-commit'] && approvalChecked;
  return {
    approval_bound: true,
    digest_matches:
      !approvalChecked ||
      ((!rules['digest-in-commit'] || row.approved === row.action) &&
        (!rules['sent-digest-in-commit'] || row.approved === bytes)),
    rejected: decisionChecked && row.decision === 'rejected',
    approvals: row.decision === 'approved' || !decisionChecked ? 1 : 0,
    approvals_required: 1,
    operation_allowed: true,
    until_expiry: expiryChecked ? env.approvalLife - row.approvalAge : Number.POSITIVE_INFINITY,
    until_run_deadline: Number.POSITIVE_INFINITY,
    expiry_margin: 0,
    other_generation_open: cell.succeeded,
    on_hold: world.hold && (at === 'load' || rules['hold-in-commit']),
    resource_busy: inDoubtElsewhere(world, cell) && (at === 'load' || rules['resource-free-in-commit']),
  };
}

/** Why a worker that only looked so far need not try; `null`: it may. */
export function earlyRefusal(context: Context, world: World, cell: Cell): DispatchRefusal | null {
  const { row } = cell;
  const retry = row.state === 'needs_reconciliation';
  return mayDispatch(dispatchFacts(context, world, cell, retry ? row.body : row.action, retry, 'load'));
}

/** Why the database refuses this dispatch (rule 5c), or this recorded retry (rule 19); `null`: it commits it. */
export function dispatchRefusal(context: Context, world: World, cell: Cell, worker: Worker): DispatchRefusal | null {
  const { row } = cell;
  const isRetry = worker.from === 'needs_reconciliation';
  const facts = dispatchFacts(context, world, cell, worker.bytes, isRetry, 'commit');
  const retry = isRetry ? recordedRetry(context, row, worker) : null;
  const again = retry === null ? 'after_absence' : mayRetry(retry);
  // An approval that expired is named as for every dispatch.
  const verdict = again.startsWith('after_') || again === 'approval_expired' ? mayDispatch(facts) : 'retry_invalid';
  context.onJudgement?.({ guard: 'dispatch', facts, retry, verdict });
  return verdict;
}

/** A refusal that time or an operator can lift: the worker only waits. */
export function onlyDefers(refusal: DispatchRefusal | null): boolean {
  return refusal === 'on_hold' || refusal === 'resource_busy';
}

/** Whether another run's effect is in doubt on the same resource. */
export function inDoubtElsewhere(world: World, cell: Cell): boolean {
  return world.cells.some(
    (other) => other !== cell && (other.row.state === 'executing' || other.row.state === 'needs_reconciliation'),
  );
}

function attemptFacts({ rules }: Context, row: Row): AttemptFact[] {
  const facts = row.attempts.map(
    ({ status, retrySafeIn }): AttemptFact =>
      status === 'uncertain' ? { status, retry_safe_in: retrySafeIn } : { status },
  );
  const notSent = facts.filter((fact) => fact.status === 'not_sent');
  return rules['not-sent-only-if-every-attempt'] || notSent.length === 0 ? facts : notSent;
}

function retryFacts(context: Context, row: Row, absence: AbsenceFacts | null, evidence: boolean): RetryFacts {
  const { rules, env } = context;
  const answeredSafe = sends(row).every((attempt) => attempt.retrySafeIn !== null);
  const keyCounts = env.keys || !rules['retry-only-idempotent'] || (answeredSafe && !rules['retry-safe-needs-key']);
  return {
    attempts: attemptFacts(context, row),
    evidence_of_effect: rules['evidence-blocks-retry'] && evidence,
    retries_refused: Number(row.retryRefused),
    until_expiry: rules['retry-rechecks-approval'] ? env.approvalLife - row.approvalAge : Number.POSITIVE_INFINITY,
    expiry_margin: 0,
    not_sent_retries: row.notSentRetries,
    not_sent_retries_max: env.notSentRetries,
    absence,
    key: keyCounts ? { retention: TICKS.retention } : null,
    since_first_send: sends(row)[0]?.age ?? 0,
    reserve: rules['retention-margin'] ? RESERVE : 0,
  };
}

/** The facts of a retry whose look was judged, and counted, when it was recorded (rule 19). */
function recordedRetry(context: Context, row: Row, worker: Worker): RetryFacts {
  const evidence = context.rules['evidence-in-commit'] ? evidenceStands(row) : worker.sawEvidence;
  const facts = retryFacts(context, row, SETTLED, evidence);
  return { ...facts, not_sent_retries: facts.not_sent_retries - 1 };
}

/** What the absence that a worker read is worth: its time is that before the read, and an attempt since then makes it worthless. */
function absenceRead({ rules }: Context, row: Row, worker: Worker): AbsenceFacts {
  const settled = rules['observed-at-before-read']
    ? worker.sawSettled && worker.attempt === row.attempts.length
    : isSettled(row);
  return settled ? SETTLED : NOT_SETTLED;
}

/** Where what a reconciler read leads (rules 16 to 18). */
export function judgeLook(context: Context, row: Row, worker: Worker): NextLook {
  const absence = context.rules['settle-before-retry'] ? absenceRead(context, row, worker) : SETTLED;
  const facts: NextLookFacts = {
    ...retryFacts(context, row, absence, evidenceStands(row)),
    look: lookOf(worker.result),
    verifier_gave_up: row.waitsLeft === 0,
  };
  const verdict = nextLook(facts);
  context.onJudgement?.({ guard: 'look', facts, verdict });
  return verdict;
}

/** Why a person may not close the run as absent (rule 20); `null`: they may. */
export function closeAbsentRefusal(context: Context, row: Row, worker: Worker): CloseAbsentRefusal | null {
  const { rules, env } = context;
  const fenceMatters = rules['person-absent-needs-fence'] && !env.waiver;
  const readCounts = !(fenceMatters && rules['end-before-absence-read']) || worker.sawEnded;
  const absence = rules['person-absent-needs-settle'] ? absenceRead(context, row, worker) : SETTLED;
  const facts: CloseAbsentFacts = {
    absence: readCounts ? absence : NOT_SETTLED,
    evidence_of_effect: rules['evidence-blocks-retry'] && evidenceStands(row),
    instances_fenced: !fenceMatters || sends(row).every((attempt) => attempt.endedFor !== null),
    fencing_waived: env.waiver,
  };
  const verdict = mayCloseAbsent(facts);
  context.onJudgement?.({ guard: 'absent', facts, covered: readCounts, attempts: attemptFacts(context, row), verdict });
  return verdict;
}

/** Whether every instance that could still send ended so long ago that a read beginning now would see what it sent last. */
export function endedBeforeNow(row: Row): boolean {
  return sends(row).every((attempt) => (attempt.endedFor ?? -1) >= TICKS.provider + TICKS.visibility);
}

/** Whether the sweeper takes the open attempt over from its worker (rule 15). */
export function sweepDue(context: Context, row: Row): boolean {
  const open = row.attempts.at(-1);
  if (row.state !== 'executing' || open?.status !== 'started') return false;
  const since_deadline = open.age - TICKS.call;
  const facts: OverdueFacts = {
    since_deadline,
    grace: context.rules['sweep-grace'] ? TICKS.grace : since_deadline,
    lease_lost: row.leaseLost,
  };
  const verdict = attemptOverdue(facts);
  context.onJudgement?.({ guard: 'overdue', facts, verdict });
  return verdict;
}

/** Whether a clear rejection of one attempt speaks for the run (rule 12). */
export function rejectionCounts(context: Context, row: Row, attempt: number): boolean {
  if (!context.rules['reject-only-if-first']) return true;
  const others = attemptFacts(context, row).filter((_, i) => i !== attempt - 1);
  const verdict = others.every((other) => other.status === 'not_sent');
  context.onJudgement?.({ guard: 'rejection', others, verdict });
  return verdict;
}

/** Whether evidence of an effect parks the run anew (rules 14 and 25): it was closed, or parked, without it. */
export function evidenceReopens(context: Context, { state, parked, recordsEffect }: Row): boolean {
  const verdict = (state === 'failed' && !recordsEffect) || (state === 'needs_reconciliation' && parked);
  context.onJudgement?.({ guard: 'evidence', state, parked, recordsEffect, verdict });
  return verdict && (state !== 'failed' || context.rules['reopen-on-evidence']);
}

/** Everything that an independent look may show at this moment. */
export function possibleLooks({ rules, env }: Context, cell: Cell): Set<Result> {
  const seen = new Set<Result>();
  const certain = cell.effects.filter((effect) => !(env.eventual && effect.age < TICKS.visibility));
  const fresh = cell.effects.filter((effect) => !certain.includes(effect));
  for (let shown = 0; shown < 2 ** fresh.length; shown++) {
    const visible = [...certain, ...fresh.filter((_, i) => (shown >> i) % 2 === 1)];
    const [effect, second] = visible;
    if (effect !== undefined)
      seen.add(second === undefined ? compareEffect(seenEffect(rules, cell.row, effect)) : 'multiple');
    else if (cell.lookalike) seen.add(rules['match-by-reference'] ? 'lookalike' : 'match');
    else seen.add('absent');
  }
  if (env.unreachable) seen.add('unknown');
  return seen;
}

function seenEffect(rules: Context['rules'], row: Row, effect: Effect): SeenEffect {
  const equal = effect.asAsked && effect.body === row.body;
  const settlement = {
    pending: rules['final-status-only'] ? 'pending' : 'final',
    final: 'final',
    failed: 'failed',
    reversed: 'failed',
  } as const;
  return {
    settlement: settlement[effect.status],
    differing: equal || !rules['full-compare'] ? [] : ['amount_minor'],
  };
}

const OURS: Partial<Record<Result, readonly SeenEffect[]>> = {
  match: [{ settlement: 'final', differing: [] }],
  pending: [{ settlement: 'pending', differing: [] }],
  failed: [{ settlement: 'failed', differing: [] }],
  different: [{ settlement: 'final', differing: ['amount_minor'] }],
  multiple: [
    { settlement: 'final', differing: [] },
    { settlement: 'final', differing: [] },
  ],
};

/** A result of `possibleLooks` in the product's words. */
function lookOf(result: Result): Look {
  const effects = OURS[result];
  if (effects !== undefined) return { seen: 'ours', effects };
  return { seen: result === 'lookalike' || result === 'absent' ? result : 'unknown' };
}
