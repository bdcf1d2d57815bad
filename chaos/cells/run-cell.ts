import type { RunView } from '@counterstamp/api-contract';
import type { RunId, Stage } from '@counterstamp/manifest-core';
import { poll, type ServiceProcess } from '../../testing/fleet.ts';
import { type Aftermath, judge } from '../codes.ts';
import type { Deed } from '../failpoint-folder.ts';
import { type ChaosFleet, isStopped, linesOf } from '../harness.ts';
import { checkHistories } from '../histories.ts';
import { type Action, type Cell, cellName } from '../matrix.ts';
import { booksOf } from './books.ts';
import { verdictAtPoint } from './verdict.ts';
import { type AtPoint, bringToPoint, isSettled, workflowOf } from './ways.ts';

/** What came of a cell. `faults`: everything that is not as it must be. */
export interface CellResult {
  name: string;
  code: string;
  faults: string[];
  ms: number;
  /** K: milliseconds from the kill to the run's next commit, and to its end; null when there was none to come. */
  moving_again_ms: number | null;
  right_ms: number | null;
}

const DEEDS: Readonly<Record<Action, Deed>> = { K: 'kill', Z: 'stop', Q: 'hold', P: 'hold', D: 'hold' };

/** Milliseconds for a run to end or be parked, whatever was done to it: two attempts with their settling, and a queue's lock. */
const SETTLE_MS = 60_000;
/** Milliseconds that a second worker gets to answer to the doubled hint before the first goes on: within D − ε of the fast profile. */
const SECOND_MS = 1_200;
/** Milliseconds for a cell, and for the fleet to heal after it. */
const CELL_MS = 150_000;
/** Milliseconds by which a settled run's audit may be late. */
const OVERDUE_MS = 15_000;
/** Milliseconds for a process that was let go to say what it found, on a machine that does much else. */
const SAID_MS = 15_000;
/** Milliseconds that a process gets to act wrongly after it went on. */
const AFTERWARDS_MS = 1_500;

/** Runs one cell on a fleet whose services have two processes each, and leaves it so. Bounded in time. */
export async function runCell(chaos: ChaosFleet, cell: Cell): Promise<CellResult> {
  const startedAt = performance.now();
  const result: CellResult = {
    name: cellName(cell),
    code: cell.code,
    faults: [],
    ms: 0,
    moving_again_ms: null,
    right_ms: null,
  };
  const brought: { at?: AtPoint } = {};
  try {
    await within(CELL_MS, play(chaos, cell, result, brought));
  } catch (error) {
    result.faults.push(error instanceof Error ? error.message : String(error));
  }
  try {
    await within(CELL_MS, heal(chaos, brought.at));
  } catch (error) {
    result.faults.push(`not healed: ${error instanceof Error ? error.message : String(error)}`);
  }
  result.faults.push(...chaos.crashes());
  return { ...result, ms: Math.round(performance.now() - startedAt) };
}

async function play(chaos: ChaosFleet, cell: Cell, result: CellResult, brought: { at?: AtPoint }): Promise<void> {
  const deed = DEEDS[cell.action];
  const at =
    cell.row.way === 'verdict' ? await verdictAtPoint(chaos, cell, deed) : await bringToPoint(chaos, cell, deed);
  brought.at = at;
  const reachedAt = Date.now();
  const before = chaos.log(at.victim).length;
  await act(chaos, cell, at);
  const settled = await untilSettled(chaos, cell, at.run_id);
  if (cell.action === 'K') Object.assign(result, await recoveryOf(chaos, at.run_id, reachedAt));
  if (cell.action === 'Z') await goOn(chaos, cell, at);
  await at.release();
  await at.answered?.();
  result.faults.push(...(await judgeOnceSaid(cell, () => aftermath(chaos, cell, at, settled, before))));
  const lateSend = cell.code === 'late send' ? 'must' : cell.code === 'X or replay' ? 'may' : 'no';
  result.faults.push(...(await checkHistories(chaos, { only: [at.run_id], lateSend, overdue_ms: OVERDUE_MS })));
}

async function within<T>(ms: number, work: Promise<T>): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(`the cell did not end within ${ms} ms`)), ms);
  });
  try {
    return await Promise.race([work, late]);
  } finally {
    clearTimeout(timer);
  }
}

/** What the action is, beyond what the process did to itself at the point. */
async function act(chaos: ChaosFleet, cell: Cell, at: AtPoint): Promise<void> {
  const { victim } = at;
  switch (cell.action) {
    case 'K':
      if ((await victim.ended) !== 'SIGKILL') throw new Error('the process did not end by SIGKILL');
      chaos.kills.count += 1;
      return;
    case 'Z':
      await poll(async () => isStopped(victim.child.pid ?? 0), 5_000, 'the process is not stopped');
      await at.meanwhile?.();
      return;
    case 'Q':
      await chaos.wipeQueue();
      await at.release();
      return;
    case 'P':
      // Let go while the database is away, so that what follows meets it so. What waits inside the database goes with it.
      await chaos.restartPostgres({
        whileAway: () => (cell.row.point === 'dispatch.row-locked' ? Promise.resolve() : at.release()),
      });
      await at.release();
      return;
    case 'D':
      if (at.meanwhile === undefined) await hintAgain(chaos, cell, at);
      else await at.meanwhile();
      await at.release();
      return;
  }
}

/** The stage whose hint leads to the point, or follows from it. */
function stageAt({ row }: Cell): Stage {
  switch (row.way) {
    case 'create':
    case 'lost_hint':
      return 'preflight';
    case 'preflight':
      return 'preflight';
    case 'verdict':
    case 'doubt':
      return row.point === 'stage.committed.before-hint' ? 'verify' : 'reconcile';
    case 'expiry':
      return 'reconcile';
    default:
      return row.service === 'verifier' || row.point === 'outcome.committed.before-hint' ? 'verify' : 'execute';
  }
}

/** Delivers the same hint once more and gives a second worker the time to take it. */
async function hintAgain(chaos: ChaosFleet, cell: Cell, { run_id, victim }: AtPoint): Promise<void> {
  const { fleet } = chaos;
  const [row] = await chaos.sql()<
    { revision: number }[]
  >`select revision from cs.run where 'run_' || run_id = ${run_id}`;
  const revision = row?.revision ?? 0;
  if (cell.row.way === 'expiry') {
    // Sweepers take no hints: the run is due again.
    await chaos.sql()`update cs.run set wake_at = clock_timestamp() where 'run_' || run_id = ${run_id}`;
  } else await fleet.hintAgain(stageAt(cell), { run_id, revision });
  const others = chaos
    .living(cell.row.service === 'api' ? 'preflight' : cell.row.service)
    .filter((each) => each !== victim);
  const linesBefore = new Map(others.map((each) => [each, linesOf(chaos, each, run_id).length]));
  await poll(
    async () => others.some((each) => linesOf(chaos, each, run_id).length > (linesBefore.get(each) ?? 0)),
    SECOND_MS,
    '',
  ).catch(() => undefined); // The held process may have been given the hint itself: it finds the same.
}

/** Approves where that is what the run waits for, and waits until it has ended or is parked. */
async function untilSettled(chaos: ChaosFleet, cell: Cell, run_id: RunId): Promise<RunView> {
  const { fleet } = chaos;
  const judged = cell.row.way === 'verdict';
  return await fleet.until(
    run_id,
    (run) => {
      if (run.state === 'awaiting_approval' && !run.decisions_sufficient && cell.row.way !== 'expiry')
        void fleet.approve(run_id).catch(() => undefined);
      return judged || isSettled(run);
    },
    SETTLE_MS,
  );
}

/** The stopped process goes on, and gets the time to do what it should not. */
async function goOn(chaos: ChaosFleet, cell: Cell, { run_id, victim }: AtPoint): Promise<void> {
  const lines = linesOf(chaos, victim, run_id).length;
  victim.child.kill('SIGCONT');
  if (cell.row.service !== 'api')
    await poll(async () => linesOf(chaos, victim, run_id).length > lines, AFTERWARDS_MS, '').catch(() => undefined);
  await new Promise((resolve) =>
    setTimeout(resolve, cell.row.service === 'executor' ? AFTERWARDS_MS : AFTERWARDS_MS / 3),
  );
}

/**
 * The run may have ended before the process that was let go has found that out, said so and kept what it knows. What must not happen stays
 * seen once it did, so looking again hides nothing.
 */
async function judgeOnceSaid(cell: Cell, look: () => Promise<Aftermath>): Promise<string[]> {
  let faults: string[] = [];
  await poll(
    async () => {
      faults = judge(cell, await look());
      return faults.length === 0;
    },
    SAID_MS,
    '',
  ).catch(() => undefined);
  return faults;
}

async function evidenceOf({ sql }: ChaosFleet, run_id: RunId): Promise<number> {
  const [row] = await sql()<{ n: number }[]>`
    select count(*)::int as n from cs.evidence where 'run_' || run_id = ${run_id} and source_ref like 'attempt:%'`;
  return row?.n ?? 0;
}

async function recoveryOf(
  { fleet }: ChaosFleet,
  run_id: RunId,
  sinceMs: number,
): Promise<Pick<CellResult, 'moving_again_ms' | 'right_ms'>> {
  const { events } = await fleet.requester.runEvents(run_id);
  const after = events.map((event) => Date.parse(event.at) - sinceMs).filter((ms) => ms > 0);
  return { moving_again_ms: after[0] ?? null, right_ms: after.at(-1) ?? null };
}

async function aftermath(
  chaos: ChaosFleet,
  cell: Cell,
  at: AtPoint,
  settled: RunView,
  before: number,
): Promise<Aftermath> {
  const { fleet } = chaos;
  const { run_id, seeded, victim } = at;
  const [run, { events }, attempts] = await Promise.all([
    fleet.requester.getRun(run_id),
    fleet.requester.runEvents(run_id),
    chaos.sql()<{ n: number; status: string; instance_id: string }[]>`
      select n, status, instance_id from cs.attempt where 'run_' || run_id = ${run_id} order by n`,
  ]);
  const books = await booksOf(chaos, workflowOf(cell), seeded, run_id);
  const after = chaos
    .log(victim)
    .slice(before)
    .filter((line) => line.run_id === run_id);
  const messages = (process: ServiceProcess) => linesOf(chaos, process, run_id).flatMap((line) => line.message ?? []);
  const answered = after.find((line) => line.message === 'answered');
  return {
    end: run.parked_reason !== null ? 'parked' : isSettled(run) ? (run.state as 'completed') : 'open',
    reason: run.parked_reason ?? run.stop_reason?.code ?? null,
    events,
    attempts: [...attempts],
    ...books,
    late_evidence: await evidenceOf(chaos, run_id),
    victim: chaos.log(victim).find((line) => line.instance_id !== undefined)?.instance_id ?? null,
    victim_said: after.flatMap((line) => line.message ?? []),
    victim_outcome: typeof answered?.outcome === 'string' ? answered.outcome : null,
    service_said: fleet.processes.filter((each) => each.service === cell.row.service).flatMap(messages),
    revision_settled: settled.revision,
    revision_last: run.revision,
    forms: at.forms,
  };
}

/** Whatever came of the cell: nothing is armed, held, cut or stopped, and every service has two processes. */
async function heal(chaos: ChaosFleet, at: AtPoint | undefined): Promise<void> {
  await at?.release().catch(() => undefined);
  await chaos.points.clear();
  for (const { child } of chaos.fleet.processes)
    if (child.exitCode === null && child.signalCode === null) child.kill('SIGCONT');
  await Promise.all([chaos.provider.heal(), chaos.executorDb.heal()]);
  await chaos.refill();
}
