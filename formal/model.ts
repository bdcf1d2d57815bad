import { isClosed } from '@counterstamp/manifest-core';
import type { Context } from './database.ts';
import { execute, pickUpExecution } from './executor.ts';
import { giveVerdict, openForm } from './person.ts';
import { pickUpStage, prepare } from './preflight.ts';
import { pickUpLook, reconcile } from './reconciler.ts';
import { type Cell, cloneCell, idle, initialWorld, type Worker, type World, workerKey } from './state.ts';
import { controlPlane, isUrgent, provider, queue, sweeper, tick } from './surroundings.ts';
import { pickUpVerification, verify } from './verifier.ts';

/** One thing that may happen next, and what the world is like then. */
export type Move = readonly [label: string, world: World];
export type CellStep = (label: string, change: (cell: Cell, world: World) => void) => void;
export type Step = (label: string, change: (cell: Cell, worker: Worker, world: World) => void) => void;

export interface Model {
  initial: World;
  /** Everything that may happen in a state; the order is fixed, so that a trace is a list of choices. */
  moves(world: World): Move[];
}

/**
 * The protocol: per run one row, interchangeable workers, one provider, people. Between any two steps anything else may happen; a step is
 * one transaction, one read, one write, or one thing that the surroundings do.
 */
export function protocolModel(context: Context): Model {
  const { env } = context;
  return {
    initial: initialWorld(env),
    moves(world) {
      const found: Move[] = [];
      if (!isUrgent(context, world)) {
        const later = { ...world, cells: world.cells.map(cloneCell) };
        tick(context, later);
        found.push(['tick', later]);
      }
      if (env.holds) found.push([world.hold ? 'operator-releases' : 'operator-holds', { ...world, hold: !world.hold }]);
      world.cells.forEach((cell, c) => {
        const prefix = env.runs === 1 ? '' : `run${c + 1} `;
        const step: CellStep = (label, change) => {
          const changed = cloneCell(cell);
          const next = { ...world, cells: world.cells.map((other, i) => (i === c ? changed : other)) };
          change(changed, next);
          found.push([prefix + label, next]);
        };
        controlPlane(context, cell, step);
        sweeper(context, cell, step);
        queue(context, cell, isClosed(cell.row.state), step);
        provider(context, cell, step);
        workerMoves(context, world, cell, step);
      });
      return found;
    },
  };
}

function workerMoves(context: Context, world: World, cell: Cell, cellStep: CellStep): void {
  const { env } = context;
  const seen = new Set<string>();
  cell.workers.forEach((worker, w) => {
    // Workers in the same position are interchangeable; with hints modelled each must be able to make progress.
    const position = workerKey(worker);
    if (env.hintLosses === null && seen.has(position)) return;
    seen.add(position);
    const step: Step = (label, change) =>
      cellStep(`worker${w + 1} ${label}`, (cell, world) => {
        const worker = cell.workers[w];
        if (worker !== undefined) change(cell, worker, world);
      });
    if (worker.phase === 'idle') {
      if (env.hintLosses === null || cell.hint) {
        pickUpStage(cell, step);
        pickUpExecution(context, world, cell, step);
        pickUpLook(cell, step);
        pickUpVerification(cell, step);
      }
      openForm(context, cell, step);
      return;
    }
    if (cell.crashesLeft !== 0) step('crash', crash);
    prepare(context, worker, step);
    execute(context, worker, step);
    reconcile(context, cell, worker, step);
    verify(context, cell, worker, step);
    giveVerdict(context, cell, worker, step);
  });
}

/** kill -9: nothing of the process is left, and its session lease is free at once. */
function crash(cell: Cell, worker: Worker): void {
  const { row } = cell;
  const ownsOpenAttempt = worker.phase.startsWith('dispatch.') && worker.attempt === row.attempts.length;
  if (row.state === 'executing' && ownsOpenAttempt && row.attempts.at(-1)?.status === 'started') row.leaseLost = true;
  Object.assign(worker, idle());
  if (cell.crashesLeft > 0) cell.crashesLeft -= 1;
}
