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
} from '@counterstamp/manifest-core';
import type { Context } from './database.ts';
import { TICKS } from './environments.ts';
import { type Bytes, type Cell, type Effect, type Result, type Row, SETTLE, sends, type Worker, type World } from './state.ts';

/*
 * The model asks the product's own guards. Here its state becomes their facts; a rule that is taken away falsifies a fact or leaves out a
 * question.
 */

/** One question to a guard: on which row, with which facts, and what it said. */
export type Judgement = { row: Row } & (
  | { guard: 'dispatch'; facts: DispatchFacts; verdict: DispatchRefusal | null }
  | { guard: 'retry'; facts: RetryFacts; verdict: ReturnType<typeof mayRetry> }
  | { guard: 'look'; facts: NextLookFacts; verdict: NextLook }
  | { guard: 'absent'; facts: CloseAbsentFacts; verdict: CloseAbsentRefusal | null }
);

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

/** Why this may not be dispatched; `null`: it may. `load` is the worker's early look, `commit` the one under the row lock. */
export function dispatchRefusal(
  context: Context,
  world: World,
  cell: Cell,
  bytes: Bytes,
  at: 'load' | 'commit',
): DispatchRefusal | null {
  const { rules, env } = context;
  const { row } = cell;
  const retry = row.state === 'needs_reconciliation';
  const approvalChecked = !retry || rules['retry-rechecks-approval'];
  const expiryChecked = retry ? rules['retry-rechecks-approval'] : at === 'load' || rules['expiry-in-commit'];
  const decisionChecked = rules['decision-in-commit'] && approvalChecked;
  const facts: DispatchFacts = {
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
  const verdict = mayDispatch(facts);
  if (at === 'commit') context.onJudgement?.({ row, guard: 'dispatch', facts, verdict });
  return verdict;
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

/** Why a retry that was recorded may not be dispatched (rule 19); `null`: it may. */
export function retryRefusal(context: Context, cell: Cell, worker: Worker): string | null {
  const { row } = cell;
  const evidence = context.rules['evidence-in-commit'] ? evidenceStands(row) : worker.sawEvidence;
  const facts = retryFacts(context, row, SETTLED, evidence);
  // The look that recorded it was judged then, and counted.
  const recorded = { ...facts, not_sent_retries: facts.not_sent_retries - 1 };
  const verdict = mayRetry(recorded);
  context.onJudgement?.({ row, guard: 'retry', facts: recorded, verdict });
  return verdict.startsWith('after_') ? null : verdict;
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
  context.onJudgement?.({ row, guard: 'look', facts, verdict });
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
  context.onJudgement?.({ row, guard: 'absent', facts, verdict });
  return verdict;
}

/** Whether every instance that could still send ended so long ago that a read beginning now would see what it sent last. */
export function endedBeforeNow(row: Row): boolean {
  return sends(row).every((attempt) => (attempt.endedFor ?? -1) >= TICKS.provider + TICKS.visibility);
}

/** Whether the sweeper takes the open attempt over from its worker (rule 15). */
export function sweepDue({ rules }: Context, row: Row): boolean {
  const open = row.attempts.at(-1);
  if (row.state !== 'executing' || open?.status !== 'started') return false;
  const since_deadline = open.age - TICKS.call;
  return attemptOverdue({
    since_deadline,
    grace: rules['sweep-grace'] ? TICKS.grace : since_deadline,
    lease_lost: row.leaseLost,
  });
}

/** Everything that an independent look may show at this moment. */
export function possibleLooks({ rules, env }: Context, cell: Cell): Set<Result> {
  const seen = new Set<Result>();
  const certain = cell.effects.filter((effect) => !(env.eventual && effect.age < TICKS.visibility));
  const fresh = cell.effects.filter((effect) => !certain.includes(effect));
  for (let shown = 0; shown < 2 ** fresh.length; shown++) {
    const visible = [...certain, ...fresh.filter((_, i) => (shown >> i) % 2 === 1)];
    const [effect, second] = visible;
    if (effect !== undefined) seen.add(second === undefined ? compareEffect(seenEffect(rules, cell.row, effect)) : 'multiple');
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

