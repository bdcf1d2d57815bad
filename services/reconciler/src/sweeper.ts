import {
  type Clock,
  type DueRun,
  type Durations,
  type Failpoint,
  laneOf,
  type Queue,
  type RunId,
  type Store,
  stageOf,
} from '@counterstamp/manifest-core';
import { StoreUnavailable } from '@counterstamp/manifest-store';
import {
  inRunSpan,
  isTracing,
  type Logger,
  type Metrics,
  moveAttributes,
  type TracedRun,
} from '@counterstamp/telemetry';
import { decideOverdue } from './decide.ts';

/** Due runs that one sweep claims; the next follows at once while it fills. */
const CLAIM_MAX = 200;

export interface SweeperDeps {
  store: Store;
  queue: Queue;
  clock: Clock;
  failpoint: Failpoint;
  durations: Durations;
  log: Logger;
  metrics: Metrics;
}

/** Runs that may fail one after the other for want of the database before a sweep is given up. */
const UNAVAILABLE_MAX = 3;

/**
 * Brings back every run that the fleet or a clock must come back to, from Postgres alone: claims due runs (their `wake_at` moves on in the
 * claim), commits what is overdue, and hints the rest. Any number of sweepers may run. Ends when the signal aborts.
 */
export async function sweep(deps: SweeperDeps, signal: AbortSignal): Promise<void> {
  const { clock, durations, log } = deps;
  while (!signal.aborted) {
    let claimed = 0;
    try {
      claimed = await sweepOnce(deps);
    } catch (error) {
      deps.metrics.sweep('failed');
      log.warn(
        { reason: error instanceof Error ? error.message : String(error) },
        'sweep failed; the next one tries again',
      );
    }
    if (claimed < CLAIM_MAX) await clock.sleep(durations.sweep_interval_ms, signal);
  }
}

/** One sweep. @returns how many runs were due. */
export async function sweepOnce(deps: SweeperDeps): Promise<number> {
  const { store, durations, log } = deps;
  const { rehint_min_ms, rehint_max_ms, sweep_grace_ms, lease_loss_ms } = durations;
  const { due, skipped } = await store.claimDue({
    limit: CLAIM_MAX,
    rehint_min_ms,
    rehint_max_ms,
    sweep_grace_ms,
    lease_loss_ms,
  });
  // Somebody works on them, or a stopped process holds their rows: the second is what an operator should see.
  const hints: Promise<void>[] = [];
  let unavailable = 0;
  for (const item of due) {
    try {
      const hint = await carryOn(item, deps);
      if (hint !== undefined) hints.push(hint.sent);
      unavailable = 0;
    } catch (error) {
      // One row may be locked by somebody; several in a row mean that the database is away, and the others would fail as well.
      if (error instanceof StoreUnavailable && ++unavailable >= UNAVAILABLE_MAX) throw error;
      // One run that cannot be carried on must not hold up those behind it.
      log.error({ err: error, run_id: item.row.run_id }, 'a due run was not carried on; a later sweep tries again');
    }
  }
  await Promise.all(hints);
  deps.metrics.sweep('ok', { claimed: due.length, skipped });
  if (due.length > 0 || skipped > 0) log.debug({ due: due.length, skipped }, 'swept');
  return due.length;
}

/** Commits what is overdue about a run, and hints its stage. `undefined`: nothing is to be hinted. */
async function carryOn(
  item: DueRun,
  { store, queue, failpoint, durations, log, metrics }: SweeperDeps,
): Promise<{ sent: Promise<void> } | undefined> {
  let { row } = item;
  const commit = decideOverdue(item, durations);
  if (commit !== undefined) {
    await failpoint.reach('sweep.selected.before-commit', row.run_id);
    const { from, to, on: trigger, facts } = commit;
    const traced = await tracedRun(row.run_id, store);
    const outcome = await inRunSpan(
      traced,
      'sweep commit',
      moveAttributes({ from, to, trigger, facts }),
      async (span) => {
        const committed = await store.commitStage(commit);
        span.set({ result: committed.kind });
        return committed;
      },
    );
    // Somebody committed between claim and commit: that commit set a new wake-up.
    if (outcome.kind === 'stale_revision') return undefined;
    log.info(
      {
        run_id: row.run_id,
        revision: outcome.row.revision,
        from: commit.from,
        to: commit.to,
        trigger: commit.on,
        code: commit.facts.stop_reason?.code,
      },
      'committed',
    );
    row = outcome.row;
  }
  const stage = stageOf(row);
  if (stage === null) return undefined;
  await failpoint.reach('sweep.wake-moved.before-hint', row.run_id);
  metrics.hintResent(stage);
  const { run_id, revision, tenant_in_line } = row;
  return { sent: queue.hint(stage, { run_id, revision }, laneOf(tenant_in_line)) };
}

/** By what the run is traced: read only where somebody traces, and a run that cannot be read is moved all the same. */
async function tracedRun(run_id: RunId, store: Store): Promise<TracedRun> {
  const run = isTracing() ? await store.load(run_id).catch(() => undefined) : undefined;
  return { run_id, trace_context: run?.manifest.trace_context ?? null };
}
