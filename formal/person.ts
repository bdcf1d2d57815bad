import { type Context, commit, swapWon } from './database.ts';
import { LIMITS } from './environments.ts';
import { closeAbsentRefusal, endedBeforeNow, evidenceStands, isSettled, possibleLooks } from './guards.ts';
import type { Step } from './model.ts';
import { type Cell, FAULTS, idle, type Worker } from './state.ts';

/** Opens the form of a verdict; it carries the revision. */
export function openForm(context: Context, { row }: Cell, step: Step): void {
  if (context.env.verdicts && row.state === 'needs_reconciliation')
    step('person-load', ({ row }, worker) => {
      worker.phase = 'person.loaded';
      worker.from = row.state;
      worker.fresh = true;
    });
}

/** A person looks for themselves, then gives a verdict or leaves (rule 20). */
export function giveVerdict(context: Context, cell: Cell, worker: Worker, step: Step): void {
  if (worker.phase === 'person.loaded') {
    for (const result of possibleLooks(context, cell))
      step(`person-read:${result}`, ({ row }, worker) => {
        worker.phase = 'person.read';
        // A person can tell somebody else's effect from ours.
        worker.result = result === 'lookalike' ? 'absent' : result;
        worker.attempt = row.attempts.length;
        worker.sawSettled = isSettled(row);
        worker.sawEnded = !context.env.waiver && endedBeforeNow(row);
      });
  } else if (worker.phase === 'person.read') {
    step(`person-verdict:${worker.result}`, (cell, worker) => {
      verdictCommit(context, cell, worker);
      Object.assign(worker, idle());
    });
    if (cell.row.parked)
      step('person-asks-to-look-again', (cell, worker) => {
        commit(context, cell, worker, 'needs_reconciliation', 'person_unsure', (row) => {
          row.parked = false;
        });
        Object.assign(worker, idle());
      });
  }
}

function verdictCommit(context: Context, cell: Cell, worker: Worker): void {
  const from = 'needs_reconciliation';
  switch (worker.result) {
    case 'match':
    case 'failed':
      // "It landed" is never completed at once: the verifier reads, with its waits anew.
      commit(context, cell, worker, from, 'person_landed', (row) => {
        row.waitsLeft = LIMITS.verificationWaits;
      });
      break;
    case 'different':
    case 'multiple':
      commit(context, cell, worker, from, 'person_settled_with_difference', (row) => {
        row.recordsEffect = true;
      });
      break;
    case 'absent':
      if (swapWon(context, cell, worker, from) && closeAbsentRefusal(context, cell.row, worker) === null)
        commit(context, cell, worker, from, 'person_absent', (row) => {
          if (evidenceStands(row)) cell.faults |= FAULTS.evidenceIgnored;
        });
      break;
  }
}
