import { isClosed, type Trigger } from '@counterstamp/manifest-core';
import { type Context, commit } from './database.ts';
import type { Step } from './model.ts';
import { type Cell, idle, type Worker } from './state.ts';

/** The one way forward before an approval is asked; reads, checks and their failures are not part of this model. */
const FORWARD: Readonly<Record<string, Trigger>> = {
  queued: 'request_loaded',
  preflight: 'checks_passed',
  collecting: 'proposal_received',
  proposed: 'action_fixed',
};

export function pickUpStage({ row }: Cell, step: Step): void {
  if (!isClosed(row.state) && FORWARD[row.state] !== undefined)
    step('stage-load', ({ row }, worker) => {
      worker.phase = 'stage.loaded';
      worker.from = row.state;
      worker.fresh = true;
    });
}

export function prepare(context: Context, worker: Worker, step: Step): void {
  if (worker.phase !== 'stage.loaded') return;
  step('stage-commit', (cell, worker) => {
    const on = FORWARD[worker.from];
    if (on !== undefined)
      commit(context, cell, worker, worker.from, on, (row) => {
        if (row.state !== 'awaiting_approval') return;
        row.approvalAge = 0;
        row.action = row.amended ? 1 : 0;
      });
    Object.assign(worker, idle());
  });
}
