import { type Context, move } from './database.ts';
import { TICKS } from './environments.ts';
import { appendEvidence, respond } from './executor.ts';
import { sweepDue } from './guards.ts';
import type { CellStep } from './model.ts';
import { ageAttempt, type Cell, type Effect, FAULTS, type Request, type Result, type World } from './state.ts';

/** Whether somebody must move before time goes on: a pause or a request has reached its bound. */
export function isUrgent({ env }: Context, world: World): boolean {
  const { networkMax, pauseMax } = env;
  return world.cells.some(
    ({ workers, requests }) =>
      (pauseMax !== null &&
        workers.some((worker) => worker.phase === 'dispatch.checked' && worker.paused >= pauseMax)) ||
      (networkMax !== null && requests.some((request) => request.age >= networkMax)),
  );
}

/** One tick for everything that has an age. */
export function tick({ env }: Context, world: World): void {
  for (const { row, workers, requests, effects, keys } of world.cells) {
    if (
      row.state === 'awaiting_approval' ||
      row.state === 'executing' ||
      row.state === 'verifying' ||
      row.state === 'needs_reconciliation'
    )
      row.approvalAge = Math.min(env.approvalLife, row.approvalAge + 1);
    for (const attempt of row.attempts) ageAttempt(row, attempt, env);
    for (const worker of workers) {
      if (worker.phase === 'dispatch.t0' || worker.phase === 'dispatch.acked' || worker.phase === 'dispatch.written')
        worker.clock = Math.min(TICKS.call + 1, worker.clock + 1);
      if (worker.phase === 'dispatch.checked' && env.pauseMax !== null) worker.paused += 1;
    }
    if (env.networkMax !== null) for (const request of requests) request.age += 1;
    for (const effect of effects) effect.age = Math.min(TICKS.visibility, effect.age + 1);
    for (const key of keys) if (key.known) key.age = Math.min(TICKS.retention, key.age + 1);
  }
}

/** People at the api before the dispatch, each a commit of its own. */
export function controlPlane(context: Context, { row }: Cell, step: CellStep): void {
  const { rules, env } = context;
  const expired = row.approvalAge >= env.approvalLife;
  if (row.state === 'awaiting_approval') {
    if (row.decision === 'none' && !expired) {
      step('approve', (cell) =>
        move(context, cell, 'awaiting_approval', 'decision_recorded', (row) => {
          row.decision = 'approved';
          row.approved = row.action;
        }),
      );
      step('reject', (cell) => move(context, cell, 'awaiting_approval', 'approval_rejected'));
    }
    if (env.cancels && row.decision === 'approved')
      step('cancel', (cell) => {
        if (rules['decision-is-a-commit']) move(context, cell, 'awaiting_approval', 'cancelled');
        else cell.row.decision = 'rejected';
      });
    if (env.amends && !row.amended)
      step('supersede-proposal', (cell) =>
        move(context, cell, 'awaiting_approval', 'proposal_superseded', (row) => {
          row.amended = true;
          row.decision = 'none';
        }),
      );
    if (rules.expirer && expired)
      step('expire', (cell) => move(context, cell, 'awaiting_approval', 'approval_expired'));
  }
  const afterApproval =
    row.state === 'awaiting_approval' || row.state === 'executing' || row.state === 'needs_reconciliation';
  if (env.alters && row.action === 0 && row.decision === 'approved' && afterApproval)
    step('stored-action-altered', (cell) => {
      cell.row.action = 1;
    });
}

/** What the database alone makes happen, and what happens to it. */
export function sweeper(context: Context, cell: Cell, step: CellStep): void {
  const { rules, env } = context;
  const { row } = cell;
  const open = row.attempts.at(-1);
  if (rules.sweeper && sweepDue(context, row))
    step('sweep', (cell) =>
      move(context, cell, 'executing', 'attempt_overdue', (row) => {
        const open = row.attempts.at(-1);
        if (open === undefined) return;
        const early = open.age < TICKS.call + TICKS.grace;
        open.status = early && !rules['early-sweep-proves-nothing'] ? 'not_sent' : 'uncertain';
      }),
    );
  const unrecorded = cell.effects.some((effect) => isLive(effect) && effect.age >= TICKS.visibility);
  if (rules['closure-audit'] && row.state === 'failed' && !row.recordsEffect && !row.lateEffect && unrecorded)
    step('closure-audit', (cell) => appendEvidence(context, cell));
  if (
    rules['reversal-audit'] &&
    row.state === 'completed' &&
    cell.effects.some((effect) => effect.status === 'reversed')
  )
    step('reversal-audit', (cell) =>
      move(context, cell, 'completed', 'effect_reversed', (row) => {
        row.parked = true;
      }),
    );
  if (env.leaseBreaks && row.state === 'executing' && open?.status === 'started' && !row.leaseLost)
    step('lease-breaks', (cell) => {
      cell.row.leaseLost = true;
    });
  if (!env.waiver && row.state === 'needs_reconciliation')
    row.attempts.forEach((attempt, i) => {
      // An end that is recorded is true: nobody can send this attempt any more.
      const gone = !cell.workers.some((worker) => worker.phase.startsWith('dispatch.') && worker.attempt === i + 1);
      if (attempt.status !== 'not_sent' && attempt.endedFor === null && gone)
        step(`instance-end-recorded:${i + 1}`, (cell) => {
          const ended = cell.row.attempts[i];
          if (ended !== undefined) ended.endedFor = 0;
        });
    });
  if (cell.lostCommitsLeft > 0 && row.state === 'executing' && open?.status === 'started' && row.attempts.length === 1)
    step('failover-loses-dispatch-commit', (cell) => {
      cell.lostCommitsLeft = 0;
      cell.row.state = 'awaiting_approval';
      cell.row.attempts = [];
      for (const worker of cell.workers) worker.fresh = false;
    });
}

/** Hints may be lost; the sweeper brings them back for whatever is due. */
export function queue(
  { rules, env }: Context,
  { row, hint, hintLossesLeft }: Cell,
  isClosed: boolean,
  step: CellStep,
): void {
  if (env.hintLosses === null) return;
  if (hint) {
    if (hintLossesLeft > 0)
      step('hint-lost', (cell) => {
        cell.hint = false;
        cell.hintLossesLeft -= 1;
      });
  } else if (rules.poller && !isClosed && !row.parked)
    step('poll', (cell) => {
      cell.hint = true;
    });
}

function isLive(effect: Effect): boolean {
  return effect.status === 'pending' || effect.status === 'final';
}

/** What the provider may do next, truthfully or not as the environment says. */
export function provider(context: Context, cell: Cell, step: CellStep): void {
  const { env } = context;
  const { row } = cell;
  if (env.lookalike && !cell.lookalike)
    step('lookalike-appears', (cell) => {
      cell.lookalike = true;
    });
  // A person had the action done by a successor run. Not after an outcome that records an effect: that is a new decision.
  if (
    env.verdicts &&
    row.state === 'failed' &&
    !cell.succeeded &&
    !row.recordsEffect &&
    row.attempts.length > 0 &&
    cell.effects.length < 2
  )
    step('successor-effect', (cell) => {
      cell.succeeded = true;
    });
  cell.effects.forEach((effect, i) => {
    const become = (label: string, status: Effect['status']) =>
      step(label, (cell) => {
        const effect = cell.effects[i];
        if (effect !== undefined) effect.status = status;
      });
    if (effect.status === 'pending') {
      become('provider-finalises', 'final');
      if (env.asyncFailure) become('provider-fails-later', 'failed');
    }
    if (env.reversal && effect.status === 'final' && row.state === 'completed') become('provider-reverses', 'reversed');
  });
  const seen = new Set<string>();
  cell.requests.forEach((request, i) => {
    const name = `${request.attempt}.${request.key}.${request.body}.${request.age}`;
    if (seen.has(name)) return;
    seen.add(name);
    receive(context, cell, request, i, step);
  });
}

function receive({ env }: Context, cell: Cell, request: Request, i: number, step: CellStep): void {
  const waits = cell.workers.some(({ phase, attempt }) => phase === 'dispatch.written' && attempt === request.attempt);
  const reply = (cell: Cell, result: Result) => {
    const worker = cell.workers.find(
      ({ phase, attempt }) => phase === 'dispatch.written' && attempt === request.attempt,
    );
    if (worker !== undefined) respond(worker, result);
  };
  /** Handled, with the reply reaching its worker or not. */
  const handle = (label: string, result: Result, change?: (cell: Cell) => void) => {
    const done = (cell: Cell) => {
      cell.requests.splice(i, 1);
      change?.(cell);
    };
    step(`${label}, reply lost`, done);
    if (waits)
      step(label, (cell) => {
        done(cell);
        reply(cell, result);
      });
  };
  step('request-lost', (cell) => {
    cell.requests.splice(i, 1);
  });
  if (env.retrySafe && waits) {
    step('provider-is-busy', (cell) => {
      cell.requests.splice(i, 1);
      reply(cell, 'retry_safe');
    });
    step('provider-is-busy-yet-queues', (cell) => reply(cell, 'retry_safe'));
  }
  const key = cell.keys[request.key];
  if (env.keys && key.known) {
    if (key.body !== request.body) handle('provider-refuses-other-body', 'conflict');
    else {
      handle('provider-replays', 'applied');
      if (request.attempt > 1) handle('provider-key-in-progress', 'conflict');
    }
    if (key.age < TICKS.retention) return; // afterwards the provider may have forgotten the key
  }
  if (cell.effects.length < 2)
    for (const asAsked of env.partial ? [true, false] : [true])
      handle(asAsked ? 'provider-applies' : 'provider-applies-something-else', 'applied', (cell) => {
        if (cell.row.attempts.length < request.attempt) cell.faults |= FAULTS.effectWithoutAttempt;
        cell.effects.push({ body: request.body, asAsked, status: env.asyncFailure ? 'pending' : 'final', age: 0 });
        if (env.keys) cell.keys[request.key] = { known: true, body: request.body, age: 0 };
      });
  if (env.rejects) handle('provider-rejects', 'rejected');
}
