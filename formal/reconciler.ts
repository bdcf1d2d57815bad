import { type Context, commit, swapWon } from './database.ts';
import { LIMITS } from './environments.ts';
import { isSettled, judgeLook, possibleLooks } from './guards.ts';
import type { Step } from './model.ts';
import { type Cell, idle, type Row, type Worker } from './state.ts';

/** Looks at once; a recorded retry is the executor's. */
export function pickUpLook({ row }: Cell, step: Step): void {
  if (row.state === 'needs_reconciliation' && !row.parked && !row.retryAllowed)
    step('look-load', ({ row }, worker) => {
      worker.phase = 'look.loaded';
      worker.from = row.state;
      worker.fresh = true;
    });
}

export function reconcile(context: Context, cell: Cell, worker: Worker, step: Step): void {
  if (worker.phase === 'look.loaded') {
    for (const result of possibleLooks(context, cell))
      step(`read:${result}`, ({ row }, worker) => {
        worker.phase = 'look.read';
        worker.result = result;
        worker.attempt = row.attempts.length;
        worker.sawSettled = isSettled(row);
      });
  } else if (worker.phase === 'look.read')
    step('look-commit', (cell, worker) => {
      lookCommit(context, cell, worker);
      Object.assign(worker, idle());
    });
}

function lookCommit(context: Context, cell: Cell, worker: Worker): void {
  const from = 'needs_reconciliation';
  const park = (row: Row) => {
    row.parked = true;
    row.retryAllowed = false;
  };
  const parkCommit = () => {
    if (context.rules.park) commit(context, cell, worker, from, 'parked', park);
  };
  if (!swapWon(context, cell, worker, from)) return;
  const next = judgeLook(context, cell.row, worker);
  const { looksLeft } = cell.row;
  switch (next.to) {
    case 'verifying':
      if (looksLeft === 0) parkCommit();
      else commit(context, cell, worker, from, 'effect_found', countLook);
      break;
    case 'not_sent':
      commit(context, cell, worker, from, 'never_sent');
      break;
    case 'retry':
      commit(
        context,
        cell,
        worker,
        from,
        next.kind === 'after_not_sent' ? 'resend_recorded' : 'retry_recorded',
        (row) => {
          row.retryAllowed = true;
          if (next.kind === 'after_not_sent') row.notSentRetries += 1;
        },
      );
      break;
    case 'wait':
      // A wait for settle ends by itself, so the model does not count it; the product counts every look.
      if (worker.result === 'absent') break;
      if (context.rules['bounded-looks'] && looksLeft <= LIMITS.lookUps) parkCommit();
      else
        commit(context, cell, worker, from, 'look_inconclusive', (row) => {
          if (context.rules['bounded-looks']) countLook(row);
        });
      break;
    case 'park':
      parkCommit();
      break;
  }
}

function countLook(row: Row): void {
  row.looksLeft = Math.max(0, row.looksLeft - 1);
}
