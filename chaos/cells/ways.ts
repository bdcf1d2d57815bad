import { randomUUID } from 'node:crypto';
import type { RunView } from '@counterstamp/api-contract';
import type { FailpointName, RunId } from '@counterstamp/manifest-core';
import type { FaultInput } from '@counterstamp/sandbox';
import { type Fleet, poll, type ServiceProcess } from '../../testing/fleet.ts';
import type { Armed, Deed } from '../failpoint-folder.ts';
import { admin, type ChaosFleet, holdDispatchClock } from '../harness.ts';
import { KINDS } from '../kinds.ts';
import type { Cell } from '../matrix.ts';

export interface Case {
  request_id: string;
  order_id: string;
  payment_id: string;
}

/** A run that stands at its point. */
export interface AtPoint {
  run_id: RunId;
  seeded: Case;
  /** The process that met the point. */
  victim: ServiceProcess;
  /** Lets go whatever still holds a process: the point itself, and what brought it there. */
  release: () => Promise<void>;
  /** Answers to a person's forms so far. */
  forms: (number | 'lost')[];
  /** Somebody else does the same meanwhile: what a second hint is to a worker. */
  meanwhile?: () => Promise<void>;
  /** Waits until nothing is under way any more that was asked for. */
  answered?: () => Promise<void>;
}

/** Points that no line in the code can be: they are brought about from outside, with the victim stopped or held before. */
const OUTSIDE: readonly FailpointName[] = ['dispatch.row-locked', 'dispatch.commit-sent.before-ack'];

/** A case at the sandbox, with the faults of the cell's kind and way. */
export async function seedFor(chaos: ChaosFleet, { kind, row }: Cell): Promise<Case> {
  const { fleet } = chaos;
  const facts = KINDS[kind];
  const id = randomUUID().slice(0, 12);
  const seeded = await fleet.seed({ request_id: `case_${id}`, order_id: `order_${id}`, payment_id: `pay_${id}` });
  const faults: readonly FaultInput[] =
    row.way === 'retry'
      ? [{ kind: 'cut_before_accept' }, ...facts.faults]
      : row.way === 'doubt' && facts.faults.length === 0
        ? [{ kind: 'cut_after_accept' }]
        : row.way === 'verdict'
          ? [{ kind: 'cut_before_accept' }]
          : facts.faults;
  await admin(fleet, 'PUT', '/admin/settings', { credits_lag_ms: facts.lag_ms });
  if (faults.length > 0) {
    const at =
      workflowOf({ kind, row }) === 'credit'
        ? `/admin/credits/faults/cus_${seeded.order_id}`
        : `/admin/faults/${seeded.payment_id}`;
    await admin(fleet, 'PUT', at, faults);
  }
  return seeded;
}

/** A person is asked only where no retry is left: credits have none. */
export function workflowOf({ kind, row }: Pick<Cell, 'kind' | 'row'>): 'refund' | 'credit' {
  return row.way === 'verdict' ? 'credit' : KINDS[kind].workflow;
}

/** Asks for a run, through one api or another. */
export async function ask(
  through: Pick<Fleet, 'request'>,
  workflow: 'refund' | 'credit',
  seeded: Case,
  change: Record<string, unknown> = {},
): Promise<RunId> {
  if (workflow === 'refund') return await through.request(seeded, change);
  return await through.request(seeded, {
    ...change,
    workflow,
    input: {
      order_id: seeded.order_id,
      requested_amount_minor: 4200,
      currency: 'USD',
      reason: 'the parcel was late',
      memo: 'Sorry for the delay',
    },
  });
}

/** Asks for the run of a cell. */
export async function askFor(through: Pick<Fleet, 'request'>, cell: Cell, seeded: Case): Promise<RunId> {
  return await ask(through, workflowOf(cell), seeded, cell.row.way === 'expiry' ? { approval_life_ms: 2_000 } : {});
}

/** Brings a new run to the cell's point, where the process that meets it does the deed. */
export async function bringToPoint(chaos: ChaosFleet, cell: Cell, deed: Deed): Promise<AtPoint> {
  const { points } = chaos;
  const { row } = cell;
  const seeded = await seedFor(chaos, cell);
  const held: Armed[] = [];
  const at = async (armed: Armed, run_id: RunId): Promise<AtPoint> => {
    const pid = await armed.reached();
    held.push(armed);
    return {
      run_id,
      seeded,
      victim: chaos.byPid(pid),
      release: async () => {
        for (const each of held) await each.release();
      },
      forms: [],
    };
  };
  switch (row.way) {
    case 'create': {
      const armed = await points.arm(row.point, deed);
      // The answer may die with the process; the same request through the other api finds the run.
      const asked = askFor(chaos.fleet.through(chaos.victimApi()), cell, seeded).catch(() => undefined);
      await armed.reached();
      if (deed === 'hold') await asked;
      return await at(armed, await askFor(chaos.fleet, cell, seeded));
    }
    case 'preflight': {
      const { run_id, release } = await askHeld(chaos, cell, seeded);
      const armed = await points.arm(row.point, deed, run_id);
      await release();
      return await at(armed, run_id);
    }
    case 'lost_hint': {
      const { run_id, hold } = await askHeld(chaos, cell, seeded);
      const armed = await points.arm(row.point, deed, run_id);
      held.push(hold);
      return await at(armed, run_id);
    }
    case 'approve': {
      const run_id = await awaiting(chaos, cell, seeded);
      const armed = await points.arm(row.point, deed, run_id);
      void chaos.fleet
        .through(chaos.victimApi())
        .approve(run_id)
        .catch(() => undefined);
      return await at(armed, run_id);
    }
    case 'expiry': {
      const run_id = await awaiting(chaos, cell, seeded);
      return await at(await points.arm(row.point, deed, run_id), run_id);
    }
    case 'dispatch': {
      const run_id = await awaiting(chaos, cell, seeded);
      if (OUTSIDE.includes(row.point)) return await outside(chaos, cell, deed, run_id, seeded);
      // The check before the write is one for all: it does not know whose send it permits.
      const armed = await points.arm(
        row.point,
        deed,
        row.point === 'dispatch.checked.before-write' ? undefined : run_id,
      );
      await chaos.fleet.approve(run_id);
      return await at(armed, run_id);
    }
    case 'doubt': {
      const run_id = await awaiting(chaos, cell, seeded);
      // With a fault of its own in the way of the request, the answer is lost by holding its executor until it is swept.
      const holds = KINDS[cell.kind].faults.length > 0;
      const answered = holds ? await points.arm('dispatch.response.before-outcome', 'hold', run_id) : undefined;
      const armed = await points.arm(row.point, deed, run_id);
      await chaos.fleet.approve(run_id);
      if (answered !== undefined) {
        await answered.reached();
        held.push(answered);
      }
      return await at(armed, run_id);
    }
    case 'retry': {
      const run_id = await awaiting(chaos, cell, seeded);
      const armed = await points.arm(row.point, deed, run_id);
      await chaos.fleet.approve(run_id);
      return await at(armed, run_id);
    }
    case 'late_outcome': {
      const run_id = await awaiting(chaos, cell, seeded);
      const answered = await points.arm('dispatch.response.before-outcome', 'hold', run_id);
      await chaos.fleet.approve(run_id);
      await answered.reached();
      await chaos.fleet.until(run_id, (run) => run.state !== 'executing');
      const armed = await points.arm(row.point, deed, run_id);
      await answered.release();
      return await at(armed, run_id);
    }
    case 'verdict':
      throw new Error('brought about by verdict.ts');
  }
}

/** Asks with the hint of the first stage held back, so that a place in that stage can be armed for the run. */
async function askHeld(
  chaos: ChaosFleet,
  cell: Cell,
  seeded: Case,
): Promise<{ run_id: RunId; hold: Armed; release: () => Promise<void> }> {
  const hold = await chaos.points.arm('create.committed.before-hint', 'hold');
  const run_id = await askFor(chaos.fleet, cell, seeded);
  await hold.reached();
  return { run_id, hold, release: () => hold.release() };
}

async function awaiting(chaos: ChaosFleet, cell: Cell, seeded: Case): Promise<RunId> {
  const run_id = await askFor(chaos.fleet, cell, seeded);
  await chaos.fleet.until(run_id, ['awaiting_approval']);
  return run_id;
}

/** Whether the dispatch is committed, as the database says. */
async function isExecuting({ sql }: ChaosFleet, run_id: RunId): Promise<boolean> {
  const [row] = await sql()<{ state: string }[]>`select state from cs.run where 'run_' || run_id = ${run_id}`;
  return row?.state === 'executing';
}

/** The two points inside one call of the database. The victim is known first: it is held right before the call. */
async function outside(chaos: ChaosFleet, cell: Cell, deed: Deed, run_id: RunId, seeded: Case): Promise<AtPoint> {
  const { points, fleet } = chaos;
  const before = await points.arm('dispatch.t0.before-begin', 'hold', run_id);
  await fleet.approve(run_id);
  const victim = chaos.byPid(await before.reached());
  const at = (release: () => Promise<void>): AtPoint => ({ run_id, seeded, victim, release, forms: [] });

  if (cell.row.point === 'dispatch.row-locked') {
    const clock = await holdDispatchClock(chaos);
    await before.release();
    try {
      await clock.reached();
      if (deed === 'kill') victim.child.kill('SIGKILL');
      if (deed === 'stop') victim.child.kill('SIGSTOP');
      if (deed === 'kill') await victim.ended;
    } catch (error) {
      await clock.release();
      throw error;
    }
    // A dead or stopped client does not hold its call up: it goes on in the database without it.
    if (deed !== 'hold') await clock.release();
    return at(() => (deed === 'hold' ? clock.release() : Promise.resolve()));
  }

  if (cell.action === 'P') {
    // The server's answer is held on its way, so that the restart meets an acknowledgement that nobody got.
    chaos.executorDb.holdReplies({ after: '"idempotency_key"' });
    await before.release();
    await poll(() => isExecuting(chaos, run_id), 10_000, 'the dispatch was not committed');
    points.count(cell.row.point);
    return at(() => chaos.executorDb.heal());
  }
  const sent = await points.arm('dispatch.call-sent', 'stop', run_id);
  await before.release();
  await sent.reached();
  await poll(() => isExecuting(chaos, run_id), 10_000, 'the dispatch was not committed');
  points.count(cell.row.point);
  if (deed === 'kill') {
    victim.child.kill('SIGKILL');
    await victim.ended;
  }
  return at(async () => {
    if (deed === 'hold') victim.child.kill('SIGCONT');
  });
}

export function isSettled(run: RunView): boolean {
  return ['completed', 'failed', 'rejected', 'expired'].includes(run.state) || run.parked_reason !== null;
}
