import { type Context, commit } from './database.ts';
import { possibleLooks } from './guards.ts';
import type { Step } from './model.ts';
import { type Cell, idle, type Worker } from './state.ts';

export function pickUpVerification({ row }: Cell, step: Step): void {
  if (row.state === 'verifying')
    step('verify-load', ({ row }, worker) => {
      worker.phase = 'verify.loaded';
      worker.from = row.state;
      worker.fresh = true;
    });
}

/** An independent read decides; what is not visible or not final is a counted wait (rule 21). */
export function verify(context: Context, cell: Cell, worker: Worker, step: Step): void {
  if (worker.phase === 'verify.loaded') {
    for (const result of possibleLooks(context, cell))
      step(`read:${result}`, (_, worker) => {
        worker.phase = 'verify.read';
        worker.result = result;
      });
  } else if (worker.phase === 'verify.read')
    step('verify-commit', (cell, worker) => {
      verifyCommit(context, cell, worker);
      Object.assign(worker, idle());
    });
}

function verifyCommit(context: Context, cell: Cell, worker: Worker): void {
  const from = 'verifying';
  switch (worker.result) {
    case 'match':
      commit(context, cell, worker, from, 'effect_verified');
      break;
    case 'failed':
      commit(context, cell, worker, from, 'settlement_failed');
      break;
    case 'different':
    case 'multiple':
      commit(context, cell, worker, from, 'verification_failed', (row) => {
        row.parked = true;
      });
      break;
    default:
      if (!context.rules['bounded-verify']) commit(context, cell, worker, from, 'verification_pending');
      else if (cell.row.waitsLeft === 0) commit(context, cell, worker, from, 'verification_failed');
      else
        commit(context, cell, worker, from, 'verification_pending', (row) => {
          row.waitsLeft = Math.max(0, row.waitsLeft - 1);
        });
  }
}
