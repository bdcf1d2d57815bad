import { STATES, type State } from '@counterstamp/manifest-core';
import { type Environment, LIMITS, TICKS } from './environments.ts';

/*
 * A state of the model. All times are ages in ticks that stop at the last value that matters, so time is unbounded and the states are
 * finite. A revision is not stored: each worker knows whether the one it loaded is still the current one.
 */

/** 0: the action that was approved first; 1: any other. */
export type Bytes = 0 | 1;

const ATTEMPT_STATUSES = ['started', 'succeeded', 'rejected', 'not_sent', 'uncertain'] as const;
export interface Attempt {
  status: (typeof ATTEMPT_STATUSES)[number];
  /** Since its dispatch. */
  age: number;
  /** Until the answer “retry_safe” permits the same request; `null` without such an answer. */
  retrySafeIn: number | null;
  /** Since the end of its instance was recorded; `null` while the instance may live. */
  endedFor: number | null;
}

/** The run's row and what belongs to it in the database. */
export interface Row {
  state: State;
  decision: 'none' | 'approved' | 'rejected';
  /** The approved digest, the stored action, the bytes of the first attempt. */
  approved: Bytes;
  action: Bytes;
  body: Bytes;
  /** Since the approval was asked. */
  approvalAge: number;
  amended: boolean;
  attempts: Attempt[];
  /** Evidence of an effect was appended (rule 14). */
  lateEffect: boolean;
  /** The outcome of a failed run records the effect that was seen. */
  recordsEffect: boolean;
  parked: boolean;
  retryAllowed: boolean;
  retryRefused: boolean;
  notSentRetries: number;
  waitsLeft: number;
  /** Until finds are parked too; inconclusive looks are parked at half of it. */
  looksLeft: number;
  /** The instance of the open attempt has lost its session lease. */
  leaseLost: boolean;
}

export const PHASES = [
  'idle',
  'stage.loaded',
  'dispatch.loaded',
  'dispatch.t0',
  'dispatch.acked',
  'dispatch.checked',
  'dispatch.written',
  'dispatch.response',
  'dispatch.refused',
  'dispatch.without-attempt',
  'look.loaded',
  'look.read',
  'verify.loaded',
  'verify.read',
  'person.loaded',
  'person.read',
] as const;
export type Phase = (typeof PHASES)[number];

/** What a call or a read came to. */
export const RESULTS = [
  'none',
  'applied',
  'rejected',
  'conflict',
  'unclear',
  'not_sent',
  'retry_safe',
  'match',
  'different',
  'pending',
  'failed',
  'multiple',
  'lookalike',
  'absent',
  'unknown',
] as const;
export type Result = (typeof RESULTS)[number];

/** A process in the middle of one piece of work. */
export interface Worker {
  phase: Phase;
  /** The state that it loaded. */
  from: State;
  /** The revision that it loaded is still the current one. */
  fresh: boolean;
  /** The attempt that it made, or how many it saw. */
  attempt: number;
  /** The bytes that it is about to send. */
  bytes: Bytes;
  /** Ticks on its own clock since t0. */
  clock: number;
  /** Ticks since its deadline check. */
  paused: number;
  result: Result;
  resent: boolean;
  /** Before its read: settle had passed; every instance had ended P + V ago; evidence stood (kept by a mutation only). */
  sawSettled: boolean;
  sawEnded: boolean;
  sawEvidence: boolean;
}

/** A request under way. */
export interface Request {
  attempt: number;
  /** Which of the provider's keys it carries. */
  key: 0 | 1;
  body: Bytes;
  age: number;
}

const EFFECT_STATUSES = ['pending', 'final', 'failed', 'reversed'] as const;
export interface Effect {
  body: Bytes;
  /** Performed as asked, not something else. */
  asAsked: boolean;
  status: (typeof EFFECT_STATUSES)[number];
  age: number;
}

/** What the provider remembers of a key. */
export interface Key {
  known: boolean;
  body: Bytes;
  age: number;
}

/** What went wrong on the way and cannot be read from a single state. */
export const FAULTS = {
  invalidDispatch: 1,
  leftClosed: 2,
  revisionStep: 4,
  effectWithoutAttempt: 8,
  evidenceIgnored: 16,
  resourceShared: 32,
  holdIgnored: 64,
} as const;

/** One run with its workers and its records at the provider. */
export interface Cell {
  row: Row;
  workers: Worker[];
  requests: Request[];
  effects: Effect[];
  keys: [Key, Key];
  /** Somebody else's effect like ours is there. */
  lookalike: boolean;
  /** A successor run had the effect. */
  succeeded: boolean;
  hint: boolean;
  crashesLeft: number;
  hintLossesLeft: number;
  lostCommitsLeft: number;
  faults: number;
}

export interface World {
  cells: Cell[];
  hold: boolean;
}

export const SETTLE = TICKS.pause + TICKS.provider + TICKS.visibility;
/** From here on an attempt's age makes no difference; the first one's matters as long as its key is known. */
const ATTEMPT_AGE_MAX = TICKS.call + SETTLE;

export function idle(): Worker {
  return {
    phase: 'idle',
    from: 'queued',
    fresh: false,
    attempt: 0,
    bytes: 0,
    clock: 0,
    paused: 0,
    result: 'none',
    resent: false,
    sawSettled: false,
    sawEnded: false,
    sawEvidence: false,
  };
}

export function initialWorld(env: Environment): World {
  const cell = (): Cell => ({
    row: {
      state: env.fromQueued ? 'queued' : 'awaiting_approval',
      decision: env.decides ? 'none' : 'approved',
      approved: 0,
      action: 0,
      body: 0,
      approvalAge: 0,
      amended: false,
      attempts: [],
      lateEffect: false,
      recordsEffect: false,
      parked: false,
      retryAllowed: false,
      retryRefused: false,
      notSentRetries: 0,
      waitsLeft: LIMITS.verificationWaits,
      looksLeft: 2 * LIMITS.lookUps,
      leaseLost: false,
    },
    workers: Array.from({ length: env.workers }, idle),
    requests: [],
    effects: [],
    keys: [
      { known: false, body: 0, age: 0 },
      { known: false, body: 0, age: 0 },
    ],
    lookalike: false,
    succeeded: false,
    hint: env.hintLosses !== null,
    crashesLeft: env.crashes,
    hintLossesLeft: env.hintLosses ?? 0,
    lostCommitsLeft: env.lostCommits,
    faults: 0,
  });
  return { cells: Array.from({ length: env.runs }, cell), hold: false };
}

export function cloneCell(cell: Cell): Cell {
  return {
    ...cell,
    row: { ...cell.row, attempts: cell.row.attempts.map((attempt) => ({ ...attempt })) },
    workers: cell.workers.map((worker) => ({ ...worker })),
    requests: cell.requests.map((request) => ({ ...request })),
    effects: cell.effects.map((effect) => ({ ...effect })),
    keys: [{ ...cell.keys[0] }, { ...cell.keys[1] }],
  };
}

/** Attempts that may have left. */
export function sends(row: Row): Attempt[] {
  return row.attempts.filter((attempt) => attempt.status !== 'not_sent');
}

/** Ages an attempt by a tick, up to the last age that makes a difference. */
export function ageAttempt(row: Row, attempt: Attempt, env: Environment): void {
  const max =
    attempt.status === 'not_sent' ? 0 : env.keys && sends(row)[0] === attempt ? TICKS.retention : ATTEMPT_AGE_MAX;
  attempt.age = Math.min(max, attempt.age + 1);
  if (attempt.retrySafeIn !== null) attempt.retrySafeIn = Math.max(0, attempt.retrySafeIn - 1);
  if (attempt.endedFor !== null) attempt.endedFor = Math.min(TICKS.provider + TICKS.visibility, attempt.endedFor + 1);
}

const numbered = (names: readonly string[]): Readonly<Record<string, number>> =>
  Object.fromEntries(names.map((name, i) => [name, i]));
const STATE_NUMBER = numbered(STATES);
const PHASE_NUMBER = numbered(PHASES);
const RESULT_NUMBER = numbered(RESULTS);
const STATUS_NUMBER = numbered(ATTEMPT_STATUSES);
const EFFECT_NUMBER = numbered(EFFECT_STATUSES);
const DECISION_NUMBER = numbered(['none', 'approved', 'rejected']);
const char = String.fromCharCode;

const bit = Number;

/** Two workers with the same key are interchangeable. */
export function workerKey(worker: Worker): string {
  return (
    char(
      ((PHASE_NUMBER[worker.phase] ?? 0) << 8) |
        ((STATE_NUMBER[worker.from] ?? 0) << 4) |
        (worker.attempt << 1) |
        bit(worker.fresh),
    ) +
    char(
      ((RESULT_NUMBER[worker.result] ?? 0) << 12) |
        (worker.clock << 9) |
        (worker.paused << 5) |
        (worker.bytes << 4) |
        (bit(worker.resent) << 3) |
        (bit(worker.sawSettled) << 2) |
        (bit(worker.sawEnded) << 1) |
        bit(worker.sawEvidence),
    )
  );
}

function attemptKey(attempt: Attempt): string {
  return char(
    ((STATUS_NUMBER[attempt.status] ?? 0) << 8) |
      (attempt.age << 4) |
      ((attempt.endedFor === null ? 0 : attempt.endedFor + 1) << 2) |
      (attempt.retrySafeIn === null ? 0 : attempt.retrySafeIn + 1),
  );
}

function cellKey(cell: Cell, symmetric: boolean): string {
  const { row } = cell;
  const workers = cell.workers.map(workerKey);
  const requests = cell.requests.map((r) => char((r.attempt << 6) | (r.key << 5) | (r.body << 4) | r.age));
  if (symmetric) {
    workers.sort();
    requests.sort();
  }
  return (
    char(
      ((STATE_NUMBER[row.state] ?? 0) << 12) |
        ((DECISION_NUMBER[row.decision] ?? 0) << 10) |
        (row.approved << 9) |
        (row.action << 8) |
        (row.body << 7) |
        (bit(row.amended) << 6) |
        (bit(row.lateEffect) << 5) |
        (bit(row.recordsEffect) << 4) |
        (bit(row.parked) << 3) |
        (bit(row.retryAllowed) << 2) |
        (bit(row.retryRefused) << 1) |
        bit(row.leaseLost),
    ) +
    char(
      (row.approvalAge << 10) |
        (row.notSentRetries << 8) |
        (row.waitsLeft << 6) |
        (row.looksLeft << 4) |
        (bit(cell.lookalike) << 3) |
        (bit(cell.succeeded) << 2) |
        (bit(cell.hint) << 1) |
        cell.lostCommitsLeft,
    ) +
    char((cell.faults << 4) | ((cell.crashesLeft + 1) << 2) | cell.hintLossesLeft) +
    char((row.attempts.length << 6) | (requests.length << 2) | cell.effects.length) +
    row.attempts.map(attemptKey).join('') +
    workers.join('') +
    requests.join('') +
    cell.effects
      .map((e) => char((e.body << 6) | (bit(e.asAsked) << 5) | ((EFFECT_NUMBER[e.status] ?? 0) << 3) | e.age))
      .join('') +
    cell.keys.map((k) => char((bit(k.known) << 5) | (k.body << 4) | k.age)).join('')
  );
}

/** Equal keys mean equal states. `symmetric`: also up to the names of workers and runs, which liveness must tell apart. */
export function worldKey(world: World, symmetric: boolean): string {
  const [first] = world.cells;
  if (first !== undefined && world.cells.length === 1) return cellKey(first, symmetric);
  const cells = world.cells.map((cell) => cellKey(cell, symmetric));
  if (symmetric) cells.sort();
  return cells.join('|') + (world.hold ? 'H' : '');
}

/** One line for a person. */
export function showWorld(world: World): string {
  return world.cells.map(showCell).join('  //  ') + (world.hold ? '  HOLD' : '');
}

function showCell({ row, workers, requests, effects, succeeded, lookalike }: Cell): string {
  const flags = [
    row.parked && 'parked',
    row.retryAllowed && 'retry-allowed',
    row.lateEffect && 'late-effect',
    row.leaseLost && 'lease-lost',
    row.decision === 'none' && 'undecided',
    row.approved !== row.action && 'other-action',
    lookalike && 'lookalike',
    succeeded && 'successor',
  ].filter((flag) => flag !== false);
  const attempts = row.attempts.map((attempt, i) => `${i + 1}:${attempt.status}@${attempt.age}`).join(' ') || '-';
  const seen = effects.map((effect) => effect.status + (effect.asAsked ? '' : '(other)')).join(',') || '-';
  const working = workers.map((worker) =>
    worker.phase === 'idle'
      ? 'idle'
      : worker.phase + (worker.result === 'none' ? '' : `=${worker.result}`) + (worker.fresh ? '' : ' STALE'),
  );
  return `${row.state}${flags.length > 0 ? ` (${flags.join(', ')})` : ''} approval@${row.approvalAge} attempts ${attempts} in flight ${requests.length} effects ${seen} | ${working.join(' | ')}`;
}
