import { type Context, commit, move, swapWon } from './database.ts';
import { TICKS } from './environments.ts';
import {
  dispatchRefusal,
  earlyRefusal,
  evidenceReopens,
  evidenceStands,
  inDoubtElsewhere,
  onlyDefers,
  rejectionCounts,
} from './guards.ts';
import type { Step } from './model.ts';
import { type Cell, FAULTS, idle, type Row, type Worker, type World } from './state.ts';

/** A worker that starts to execute: a dispatch, a recorded retry, or (a mutation) somebody else's attempt. */
export function pickUpExecution(context: Context, world: World, cell: Cell, step: Step): void {
  const { rules } = context;
  const { row } = cell;
  if (row.state === 'awaiting_approval' && row.decision === 'approved') {
    const refusal = earlyRefusal(context, world, cell);
    if (refusal === null || refusal === 'digest_mismatch')
      step('exec-load', ({ row }, worker) => load(worker, row, row.action));
  }
  if (row.state === 'needs_reconciliation' && row.retryAllowed && !row.parked) {
    if (!onlyDefers(earlyRefusal(context, world, cell)))
      step('retry-load', ({ row }, worker) => {
        load(worker, row, rules['frozen-bytes'] ? row.body : row.action);
        worker.sawEvidence = !rules['evidence-in-commit'] && evidenceStands(row);
      });
  }
  if (row.state === 'executing' && !rules['foreign-attempt-never-sends'])
    step('redelivered-load', ({ row }, worker) => {
      load(worker, row, row.body);
      worker.phase = 'dispatch.checked';
      worker.attempt = row.attempts.length;
    });
}

function load(worker: Worker, row: Row, bytes: Worker['bytes']): void {
  worker.phase = 'dispatch.loaded';
  worker.from = row.state;
  worker.fresh = true;
  worker.bytes = bytes;
}

/** The dispatch in the order of rule 5, and what becomes of it. */
export function execute(context: Context, worker: Worker, step: Step): void {
  const { rules } = context;
  switch (worker.phase) {
    case 'dispatch.loaded':
      if (rules['commit-before-send'] || worker.from === 'needs_reconciliation')
        step('connect-and-take-t0', (_, worker) => {
          worker.phase = 'dispatch.t0';
        });
      else
        step('arm-before-commit', ({ row }, worker) => {
          worker.phase = 'dispatch.checked';
          worker.attempt = row.attempts.length + 1;
        });
      break;
    case 'dispatch.t0':
      step(worker.from === 'awaiting_approval' ? 'dispatch-commit' : 'retry-commit', (cell, worker, world) =>
        dispatchCommit(context, world, cell, worker),
      );
      break;
    case 'dispatch.refused':
      step('refusal-commit', (cell, worker, world) => {
        refusalCommit(context, world, cell, worker);
        Object.assign(worker, idle());
      });
      break;
    case 'dispatch.without-attempt':
      step('attempt-row-commit', (cell, worker) => {
        // A transaction of its own: it swaps as every other.
        if (!worker.fresh || cell.row.state !== 'executing') Object.assign(worker, idle());
        else {
          insertAttempt(cell.row, worker);
          worker.phase = 'dispatch.acked';
        }
      });
      break;
    case 'dispatch.acked':
      if (!rules['deadline-check-before-send'] || !rules['t0-before-begin'] || worker.clock <= TICKS.call)
        step('deadline-check-passes', (_, worker) => {
          worker.phase = 'dispatch.checked';
          worker.clock = 0;
        });
      else step('deadline-check-fails', (_, worker) => respond(worker, 'not_sent'));
      if (context.env.connectionBreaks && worker.clock <= TICKS.call)
        step('connection-gone-before-write', (_, worker) => respond(worker, 'not_sent'));
      break;
    case 'dispatch.checked':
      step('write', (cell, worker) => {
        const body = rules['frozen-bytes'] ? worker.bytes : cell.row.action;
        const key = rules['same-key-on-retry'] || worker.attempt === 1 ? 0 : 1;
        cell.requests.push({ attempt: worker.attempt, key, body, age: 0 });
        worker.phase = 'dispatch.written';
        worker.clock = 0;
        worker.paused = 0;
      });
      break;
    case 'dispatch.written':
      if (worker.clock >= TICKS.call)
        step('call-times-out', (_, worker) =>
          respond(worker, rules['not-sent-means-no-byte'] ? 'unclear' : 'not_sent'),
        );
      if (!rules['no-transport-retry'] && !worker.resent)
        step('http-client-resends', (cell, worker) => {
          worker.resent = true;
          cell.requests.push({ attempt: worker.attempt, key: 0, body: worker.bytes, age: 0 });
        });
      break;
    case 'dispatch.response':
      step(`outcome-commit:${worker.result}`, (cell, worker, world) => {
        if (!rules['commit-before-send'] && cell.row.state === 'awaiting_approval')
          dispatchCommit(context, world, cell, worker);
        outcomeCommit(context, cell, worker);
        Object.assign(worker, idle());
      });
      break;
  }
}

/** The worker knows what its call came to. */
export function respond(worker: Worker, result: Worker['result']): void {
  worker.phase = 'dispatch.response';
  worker.result = result;
  worker.clock = 0;
}

/** Rules 5c, 5d and 19: every check and the attempt in one commit. */
function dispatchCommit(context: Context, world: World, cell: Cell, worker: Worker): void {
  const { rules, env } = context;
  const { row } = cell;
  const { from } = worker;
  const early = worker.phase !== 'dispatch.t0';
  const retry = from === 'needs_reconciliation';
  const refusal = swapWon(context, cell, worker, from) ? dispatchRefusal(context, world, cell, worker) : null;
  const valid = row.decision === 'approved' && row.approved === worker.bytes && row.approvalAge < env.approvalLife;
  const evidence = evidenceStands(row);
  const won =
    refusal === null &&
    commit(context, cell, worker, from, retry ? 'retry_dispatched' : 'dispatched', (row) => {
      if (!valid) cell.faults |= FAULTS.invalidDispatch;
      if (evidence) cell.faults |= FAULTS.evidenceIgnored;
      if (inDoubtElsewhere(world, cell)) cell.faults |= FAULTS.resourceShared;
      if (world.hold) cell.faults |= FAULTS.holdIgnored;
      if (rules['attempt-in-same-transaction']) insertAttempt(row, worker);
    });
  if (early) return;
  if (won) worker.phase = rules['attempt-in-same-transaction'] ? 'dispatch.acked' : 'dispatch.without-attempt';
  else if (!rules['only-winner-sends']) {
    worker.phase = 'dispatch.acked';
    worker.attempt = Math.max(1, row.attempts.length);
  } else if (refusal !== null) {
    worker.phase = 'dispatch.refused';
    worker.clock = 0;
  } else Object.assign(worker, idle());
}

function insertAttempt(row: Row, worker: Worker): void {
  if (row.attempts.length === 0) row.body = worker.bytes;
  row.attempts.push({ status: 'started', age: 0, retrySafeIn: null, endedFor: null });
  row.leaseLost = false;
  worker.attempt = row.attempts.length;
}

/** What the executor commits instead of a dispatch that was refused for good; for the rest it only defers. */
function refusalCommit(context: Context, world: World, cell: Cell, worker: Worker): void {
  const { row } = cell;
  if (row.state !== worker.from) return;
  const refusal = dispatchRefusal(context, world, cell, worker);
  if (refusal === null || onlyDefers(refusal)) return;
  if (row.state === 'needs_reconciliation') {
    if (context.rules['retry-refused-recorded'])
      commit(context, cell, worker, row.state, 'retry_refused', (row) => {
        row.retryAllowed = false;
        row.retryRefused = true;
      });
  } else if (refusal === 'approval_expired') commit(context, cell, worker, 'awaiting_approval', 'approval_expired');
  else commit(context, cell, worker, 'awaiting_approval', 'dispatch_refused');
}

/** Rules 12 to 14. */
function outcomeCommit(context: Context, cell: Cell, worker: Worker): void {
  const { rules } = context;
  const { result } = worker;
  const attempt = cell.row.attempts[worker.attempt - 1];
  const rejected =
    (result === 'rejected' &&
      swapWon(context, cell, worker, 'executing') &&
      rejectionCounts(context, cell.row, worker.attempt)) ||
    (result === 'conflict' && !rules['conflict-is-uncertain']) ||
    (result === 'unclear' && !rules['timeout-is-uncertain']);
  const [on, status] =
    result === 'applied'
      ? (['effect_accepted', 'succeeded'] as const)
      : rejected
        ? (['effect_rejected', 'rejected'] as const)
        : result === 'not_sent'
          ? (['nothing_sent', 'not_sent'] as const)
          : (['outcome_uncertain', 'uncertain'] as const);
  const won = commit(context, cell, worker, 'executing', on, () => {
    if (attempt === undefined) return;
    attempt.status = status;
    if (status === 'not_sent') attempt.age = 0;
    attempt.retrySafeIn = result === 'retry_safe' ? 1 : null;
  });
  if (!won && result === 'applied' && attempt?.status !== 'succeeded' && rules['late-outcome-recorded'])
    appendEvidence(context, cell);
}

/** Rule 14: keeps what the provider said though the swap was lost; a run that was closed or parked without it is parked anew. */
export function appendEvidence(context: Context, cell: Cell): void {
  const { row } = cell;
  if (row.state === 'completed') return;
  row.lateEffect = true;
  if (evidenceReopens(context, row))
    move(context, cell, row.state, 'late_effect_found', (row) => {
      row.parked = true;
    });
}
