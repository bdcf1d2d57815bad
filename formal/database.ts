import { isClosed, type State, type Trigger, transitionRule } from '@counterstamp/manifest-core';
import type { Environment } from './environments.ts';
import type { Judgement } from './guards.ts';
import type { Rules } from './rules.ts';
import { type Cell, FAULTS, type Row, type Worker } from './state.ts';

/** What a move of the model may depend on beside the state. */
export interface Context {
  rules: Rules;
  env: Environment;
  /** Told of every question to one of the product's guards, with its facts and its answer. */
  onJudgement?: (judgement: Judgement) => void;
}

/** Whether a worker's commit finds the row that it loaded (rule 1). */
export function swapWon({ rules }: Context, { row }: Cell, worker: Worker, from: State): boolean {
  if (rules.swap && rules['swap-on-revision'])
    return worker.fresh && (row.state === from || !rules['expected-state-in-swap']);
  if (rules['closed-stays-closed'] && isClosed(row.state)) return false;
  return !rules.swap || row.state === from;
}

/** A worker's commit: one legal move, or a lost swap. */
export function commit(
  context: Context,
  cell: Cell,
  worker: Worker,
  from: State,
  on: Trigger,
  write?: (row: Row) => void,
): boolean {
  if (!swapWon(context, cell, worker, from)) return false;
  move(context, cell, from, on, write, worker);
  return true;
}

/**
 * One transaction that moves a run: by a worker that won its swap, or by somebody who loads and commits in one step.
 * @throws when the product's table has no such move: the model would check another protocol.
 */
export function move(
  { rules, env, onJudgement }: Context,
  cell: Cell,
  from: State,
  on: Trigger,
  write?: (row: Row) => void,
  by?: Worker,
): void {
  const rule = transitionRule(from, on);
  if (rule === undefined) throw new Error(`the model makes an illegal move: ${from} on ${on}`);
  onJudgement?.({ guard: 'move', from, on });
  const { row } = cell;
  const before = row.state;
  row.state = rule.to;
  if (rule.to !== 'needs_reconciliation') {
    row.parked = false;
    row.retryAllowed = false;
  }
  if (rule.to !== 'executing') row.leaseLost = false;
  write?.(row);
  if (rule.to === 'completed') row.lateEffect = false;
  if (rules['revision-bumped']) {
    for (const worker of cell.workers) worker.fresh = worker === by;
  } else cell.faults |= FAULTS.revisionStep;
  const reopens = on === 'late_effect_found' || on === 'effect_reversed';
  if (isClosed(before) && row.state !== before && !reopens) cell.faults |= FAULTS.leftClosed;
  if (env.hintLosses !== null && !isClosed(row.state) && !row.parked) cell.hint = true;
}
