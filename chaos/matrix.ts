import type { FailpointName, Service } from '@counterstamp/manifest-core';
import { BACKENDS, type Backend } from './backends.ts';
import type { CellCode } from './codes.ts';
import { PROVIDER_KINDS, type ProviderKind } from './kinds.ts';

/**
 * K: SIGKILL at the point. Z: SIGSTOP until another worker settled it, then SIGCONT. Q: the queue is wiped and Redis started anew.
 * P: Postgres is restarted at once. D: the same hint is delivered to a second worker meanwhile.
 */
export const ACTIONS = ['K', 'Z', 'Q', 'P', 'D'] as const;
export type Action = (typeof ACTIONS)[number];

/** How a run is brought to a point. */
export type Way =
  /** The point is met right after the request, before the hint of the first stage. */
  | 'create'
  /** In the first stage. */
  | 'preflight'
  /** By a person's click. */
  | 'approve'
  /** From the approval on. */
  | 'dispatch'
  /** The answer of the provider is lost first, with its effect there. */
  | 'doubt'
  /** The request itself is lost first: absent once settled, then retried. */
  | 'retry'
  /** The approval is left to expire. */
  | 'expiry'
  /** The hint of the first stage is lost first. */
  | 'lost_hint'
  /** The outcome comes when the sweeper has taken the attempt over already. */
  | 'late_outcome'
  /** A person judges a parked run. */
  | 'verdict';

export interface PointRow {
  point: FailpointName;
  service: Service;
  way: Way;
  /** Whether the kind of provider matters here. */
  kinds: boolean;
  codes: Readonly<Record<Action, CellCode>>;
}

/** protocol.md section 5, row by row: what must come of each action at each point. */
// biome-ignore format: a table reads best as a table
export const MATRIX: readonly PointRow[] = [
  { point: 'create.committed.before-hint', service: 'api', way: 'create', kinds: false, codes: { K: 'A', Z: 'A', Q: 'A', P: 'A', D: 'S' } },
  { point: 'stage.loaded', service: 'preflight', way: 'preflight', kinds: false, codes: { K: 'A', Z: 'L', Q: 'A', P: 'A', D: 'A+L' } },
  { point: 'stage.before-commit', service: 'preflight', way: 'preflight', kinds: false, codes: { K: 'A', Z: 'L', Q: 'S', P: 'A', D: 'A+L' } },
  { point: 'stage.committed.before-hint', service: 'reconciler', way: 'doubt', kinds: false, codes: { K: 'A', Z: 'S', Q: 'A', P: 'A', D: 'S' } },
  { point: 'decision.committed.before-hint', service: 'api', way: 'approve', kinds: false, codes: { K: 'A', Z: 'S', Q: 'A', P: 'A', D: 'S' } },
  { point: 'dispatch.loaded', service: 'executor', way: 'dispatch', kinds: true, codes: { K: 'W by other', Z: 'L', Q: 'S', P: 'W', D: 'one W, one L' } },
  { point: 'dispatch.t0.before-begin', service: 'executor', way: 'dispatch', kinds: true, codes: { K: 'W by other', Z: 'L', Q: 'S', P: 'W', D: 'one W, one L' } },
  { point: 'dispatch.row-locked', service: 'executor', way: 'dispatch', kinds: true, codes: { K: 'O, 0 sends', Z: 'X', Q: 'S', P: 'W', D: 'second waits, L' } },
  { point: 'dispatch.call-sent', service: 'executor', way: 'dispatch', kinds: true, codes: { K: 'O, 0 sends', Z: 'X', Q: 'S', P: 'W or O, 0 sends', D: 'returns' } },
  { point: 'dispatch.commit-sent.before-ack', service: 'executor', way: 'dispatch', kinds: true, codes: { K: 'O, 0 sends', Z: 'X', Q: 'S', P: 'W or O, 0 sends', D: 'returns' } },
  { point: 'dispatch.acked.before-check', service: 'executor', way: 'dispatch', kinds: true, codes: { K: 'O, 0 sends', Z: 'X', Q: 'S', P: 'W, outcome retried', D: 'returns' } },
  { point: 'dispatch.checked.before-write', service: 'executor', way: 'dispatch', kinds: true, codes: { K: 'O, 0 sends', Z: 'late send', Q: 'S', P: 'W, outcome retried', D: 'returns' } },
  { point: 'dispatch.written.before-response', service: 'executor', way: 'dispatch', kinds: true, codes: { K: 'O', Z: 'E', Q: 'S', P: 'W, outcome retried', D: 'returns' } },
  { point: 'dispatch.response.before-outcome', service: 'executor', way: 'dispatch', kinds: true, codes: { K: 'O', Z: 'E', Q: 'S', P: 'W, outcome retried', D: 'returns' } },
  { point: 'outcome.committed.before-hint', service: 'executor', way: 'dispatch', kinds: false, codes: { K: 'A', Z: 'S', Q: 'A', P: 'A', D: 'S' } },
  { point: 'sweep.selected.before-commit', service: 'reconciler', way: 'expiry', kinds: false, codes: { K: 'A', Z: 'L', Q: 'S', P: 'A', D: 'A+L' } },
  { point: 'reconcile.observed-at.before-read', service: 'reconciler', way: 'doubt', kinds: true, codes: { K: 'A', Z: 'L', Q: 'A', P: 'A', D: 'A+L' } },
  { point: 'reconcile.read.before-commit', service: 'reconciler', way: 'doubt', kinds: true, codes: { K: 'A', Z: 'L', Q: 'S', P: 'A', D: 'A+L' } },
  { point: 'retry.committed.before-write', service: 'executor', way: 'retry', kinds: true, codes: { K: 'O, n = 2', Z: 'X or replay', Q: 'S', P: 'W', D: 'returns' } },
  { point: 'verify.read.before-commit', service: 'verifier', way: 'dispatch', kinds: true, codes: { K: 'A', Z: 'L', Q: 'A', P: 'A', D: 'A+L' } },
  { point: 'person.read.before-commit', service: 'api', way: 'verdict', kinds: false, codes: { K: 'form lost', Z: '409', Q: 'S', P: 'clear error', D: 'one wins, one 409' } },
  { point: 'sweep.wake-moved.before-hint', service: 'reconciler', way: 'lost_hint', kinds: false, codes: { K: 'A', Z: 'S', Q: 'A', P: 'A', D: 'S' } },
  { point: 'evidence.before-insert', service: 'executor', way: 'late_outcome', kinds: false, codes: { K: 'O', Z: 'E', Q: 'S', P: 'O', D: 'one row' } },
];

export interface Cell {
  row: PointRow;
  action: Action;
  kind: ProviderKind;
  code: CellCode;
}

/** Name of a cell, as the report and `--only` say it. */
export function cellName({ row, action, kind }: Cell): string {
  return `${row.point} ${action}${row.kinds ? ` ${kind}` : ''}`;
}

/** Whether a kind can be brought to a point at all, and says something there that the others do not. */
function applies(row: PointRow, action: Action, kind: ProviderKind): boolean {
  if (kind === 'key_with_retention') return true;
  if (!row.kinds) return false;
  const hasKey = kind !== 'strong_without_key' && kind !== 'eventual_without_key';
  if (row.way === 'retry') return hasKey && (kind === 'pending_then_failed' || kind === 'partial_effect');
  // The queue and a second hint never reach the provider: one kind says it for all.
  if (action === 'Q' || action === 'D') return false;
  if (row.way === 'doubt') return kind !== 'key_forgotten' && kind !== 'slower_than_declared';
  if (kind === 'key_forgotten' || kind === 'slower_than_declared')
    // A late send beside a forgotten key breaks A1 and A4 at once: two effects, by assumption. Verifying knows neither.
    return (
      row.service === 'executor' &&
      action === 'K' &&
      !['dispatch.loaded', 'dispatch.t0.before-begin'].includes(row.point)
    );
  return true;
}

/** Every cell of the matrix, in the order of the table. */
export function allCells(): Cell[] {
  return MATRIX.flatMap((row) =>
    PROVIDER_KINDS.flatMap((kind) =>
      ACTIONS.filter((action) => applies(row, action, kind)).map((action) => ({
        row,
        action,
        kind,
        code: row.codes[action],
      })),
    ),
  );
}

/** Beside a kill at every point: what of the other actions and kinds a test run can afford. */
// biome-ignore format: a table reads best as a table
const QUICK: readonly (readonly [FailpointName, Action, ProviderKind])[] = [
  ['stage.before-commit', 'Z', 'key_with_retention'],
  ['stage.loaded', 'Q', 'key_with_retention'],
  ['stage.loaded', 'D', 'key_with_retention'],
  ['dispatch.t0.before-begin', 'Z', 'key_with_retention'],
  ['dispatch.t0.before-begin', 'P', 'key_with_retention'],
  ['dispatch.t0.before-begin', 'D', 'key_with_retention'],
  ['dispatch.row-locked', 'Z', 'strong_without_key'],
  ['dispatch.row-locked', 'P', 'key_with_retention'],
  ['dispatch.commit-sent.before-ack', 'Z', 'key_with_retention'],
  ['dispatch.commit-sent.before-ack', 'P', 'strong_without_key'],
  ['dispatch.acked.before-check', 'K', 'eventual_without_key'],
  ['dispatch.acked.before-check', 'Z', 'key_with_retention'],
  ['dispatch.checked.before-write', 'Z', 'key_with_retention'],
  ['dispatch.checked.before-write', 'Z', 'strong_without_key'],
  ['dispatch.written.before-response', 'K', 'eventual_without_key'],
  ['dispatch.written.before-response', 'K', 'key_forgotten'],
  ['dispatch.written.before-response', 'K', 'slower_than_declared'],
  ['dispatch.written.before-response', 'Z', 'key_with_retention'],
  ['dispatch.written.before-response', 'P', 'key_with_retention'],
  ['dispatch.written.before-response', 'D', 'key_with_retention'],
  ['dispatch.response.before-outcome', 'Z', 'pending_then_failed'],
  ['sweep.selected.before-commit', 'D', 'key_with_retention'],
  ['reconcile.read.before-commit', 'Z', 'key_with_retention'],
  ['reconcile.read.before-commit', 'K', 'partial_effect'],
  ['retry.committed.before-write', 'Z', 'key_with_retention'],
  ['verify.read.before-commit', 'Z', 'key_with_retention'],
  ['verify.read.before-commit', 'D', 'key_with_retention'],
  ['person.read.before-commit', 'Z', 'key_with_retention'],
  ['person.read.before-commit', 'D', 'key_with_retention'],
  ['evidence.before-insert', 'Z', 'key_with_retention'],
];

/** A representative part: on each backend a kill at every point, and every second cell of `QUICK`. */
export function quickCells(backend: Backend): Cell[] {
  const own = QUICK.filter((_, i) => i % BACKENDS.length === BACKENDS.indexOf(backend));
  return allCells().filter(
    ({ row, action, kind }) =>
      (action === 'K' && kind === 'key_with_retention') ||
      own.some((one) => one[0] === row.point && one[1] === action && one[2] === kind),
  );
}
