import { isClosed } from '@counterstamp/manifest-core';
import { type Cell, type Effect, FAULTS, type World } from './state.ts';

/** Effects that moved something in the world and still stand. */
function standing(cell: Cell): Effect[] {
  return cell.effects.filter((effect) => effect.status === 'pending' || effect.status === 'final');
}

const free = (fault: number) => (cell: Cell) => (cell.faults & fault) === 0;

const OF_A_RUN = {
  'I1 at most one effect': (cell) => cell.effects.length <= 1 && !(cell.succeeded && standing(cell).length > 0),
  'I2 valid approval at dispatch, no effect without an attempt': free(
    FAULTS.invalidDispatch | FAULTS.effectWithoutAttempt,
  ),
  'I3 the effect’s body is the approved one': ({ row, effects }) =>
    effects.every((effect) => effect.body === row.approved),
  'I4 completed only with a matching final effect': ({ row, effects }) =>
    row.state !== 'completed' ||
    effects.some(
      (effect) =>
        effect.asAsked && effect.body === row.body && (effect.status === 'final' || effect.status === 'reversed'),
    ),
  'I5 a closed state is left only by reopening': free(FAULTS.leftClosed),
  'I6 revisions step by one': free(FAULTS.revisionStep),
  'I7 no effect after reject or expiry': ({ row, effects, requests }) =>
    (row.state !== 'rejected' && row.state !== 'expired') || effects.length + requests.length === 0,
  'I8 failed only without an effect that is not recorded': (cell) =>
    cell.row.state !== 'failed' || cell.row.recordsEffect || standing(cell).length === 0,
  'I9 evidence of an effect is never ignored': free(FAULTS.evidenceIgnored),
  'I10 one run in flight per resource': free(FAULTS.resourceShared),
  'I11 nothing is dispatched on hold': free(FAULTS.holdIgnored),
} satisfies Record<string, (cell: Cell) => boolean>;

export type InvariantText = keyof typeof OF_A_RUN;
/** `I1` … `I11`. */
export type Invariant = InvariantText extends `${infer Id} ${string}` ? Id : never;

/** What must hold in every state that can be reached. */
export const INVARIANTS = Object.entries(OF_A_RUN).map(([text, holds]) => ({
  id: text.split(' ')[0] as Invariant,
  text,
  holds: (world: World) => world.cells.every(holds),
}));

/** Where a run may rest: closed, or parked for a person. */
export function rests(world: World): boolean {
  return world.cells.every(({ row }) => isClosed(row.state) || (row.state === 'needs_reconciliation' && row.parked));
}

/** No closed run hides what it should show: an effect behind a failed one, an effect undone behind a completed one. */
export function surfaced(world: World): boolean {
  return world.cells.every((cell) => {
    if (cell.row.state === 'failed') return cell.row.recordsEffect || standing(cell).length === 0;
    return cell.row.state !== 'completed' || standing(cell).length > 0;
  });
}
