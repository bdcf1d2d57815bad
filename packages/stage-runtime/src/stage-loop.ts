import {
  type Clock,
  type CommitFacts,
  epochMs,
  type Failpoint,
  type HotRow,
  isClosed,
  type LoadedRun,
  laneOf,
  type Queue,
  type RunId,
  type Stage,
  type Store,
  stageOf,
  type Trigger,
  transitionRule,
} from '@counterstamp/manifest-core';
import {
  type DeferralCode,
  inCommitSpan,
  inRunSpan,
  type Logger,
  type Metrics,
  traceFieldsOf,
} from '@counterstamp/telemetry';

/** What a stage makes of a run: one move, a wait on the same revision, or nothing. */
export type StageDecision =
  | { kind: 'commit'; on: Trigger; facts: CommitFacts; wake_in_ms: number | null }
  | { kind: 'defer'; wake_in_ms: number | null; code: DeferralCode; reason: string }
  /** The stage committed by itself (a dispatch); `row` is what it left. */
  | { kind: 'committed'; row: HotRow }
  /** Somebody else changed the run meanwhile: look again. */
  | { kind: 'reload' }
  | { kind: 'nothing'; reason: string };

/** Gathers facts and decides. Everything it needs to know of the run is in `run`. */
export type Judge = (run: LoadedRun) => Promise<StageDecision>;

export interface StageLoopDeps {
  store: Store;
  queue: Queue;
  clock: Clock;
  failpoint: Failpoint;
  log: Logger;
  metrics: Metrics;
  /** The stages that this process serves. A run that stays among them is carried on in the same job. */
  judges: Partial<Record<Stage, Judge>>;
}

/** Moves that one hint may lead to, and swaps that it may lose, before the run is left to the next hint or sweep. */
const MOVES_MAX = 16;
const LOST_MAX = 8;

/**
 * The one loop: take a hint → reload the run → gather facts → decide → commit by compare-and-swap → hint the next stage.
 * A lost swap reloads and decides again, a bounded number of times; the sweeper brings back what is left over.
 */
export function createStageLoop(
  deps: StageLoopDeps,
): (stage: Stage, hint: { run_id: RunId; revision: number }) => Promise<void> {
  const { store, queue, clock, failpoint, metrics, judges } = deps;

  return async (hinted, { run_id, revision }) => {
    const startedMs = clock.monotonicMs();
    let log = deps.log.child({ run_id, stage: hinted });
    let lost = 0;
    try {
      for (let moves = 0; moves < MOVES_MAX; moves++) {
        const run = await store.load(run_id);
        await failpoint.reach('stage.loaded', run_id);
        if (run === undefined) {
          log.warn({ revision }, 'hint for a run that does not exist; dropped');
          return;
        }
        const stage = stageOf(run.manifest);
        const judge = stage === null ? undefined : judges[stage];
        if (stage === null || judge === undefined) {
          // A late hint is normal: whoever moved the run on hinted its next stage.
          log.debug({ revision: run.manifest.revision, state: run.manifest.state }, 'nothing to do here for this run');
          return;
        }
        const { manifest } = run;
        log = deps.log.child({ run_id, stage, revision: manifest.revision, ...traceFieldsOf(manifest) });
        const goesOn = await inRunSpan(
          manifest,
          `stage ${stage}`,
          { stage, revision: manifest.revision },
          async (span) => {
            const decision = await judge(run);
            const row = await settle(decision, run, stage, log);
            span.set({
              result: row === 'lost' ? 'lost' : RESULTS[decision.kind],
              deferral: decision.kind === 'defer' ? decision.code : undefined,
            });
            if (row === 'lost') {
              metrics.swapLost(stage);
              log.info({ lost: lost + 1 }, 'another worker committed first; looking again');
              return ++lost < LOST_MAX;
            }
            if (row === null) return false;
            if (row.state !== manifest.state)
              metrics.stateLeft(manifest.state, run.nowMs - epochMs(manifest.state_since));
            const next = stageOf(row);
            // What a closed run still waits for is a clock: the sweeper's to end.
            if (next === null || isClosed(row.state)) return false;
            if (judges[next] === undefined) {
              await failpoint.reach(
                hinted === 'execute' ? 'outcome.committed.before-hint' : 'stage.committed.before-hint',
                run_id,
              );
              await queue.hint(next, { run_id, revision: row.revision }, laneOf(row.tenant_in_line));
              return false;
            }
            // A wait that was just set (a look-up backed off, a read to be repeated) is the sweeper's to end.
            return row.state !== manifest.state || !waits(decision);
          },
        );
        if (!goesOn) return;
      }
      log.warn({ moves: MOVES_MAX }, 'left to the sweeper after too many moves in one go');
    } finally {
      metrics.stageDone(hinted, clock.monotonicMs() - startedMs);
    }
  };

  async function settle(
    decision: StageDecision,
    run: LoadedRun,
    stage: Stage,
    log: Logger,
  ): Promise<HotRow | 'lost' | null> {
    const { run_id, revision, state } = run.manifest;
    switch (decision.kind) {
      case 'commit': {
        const rule = transitionRule(state, decision.on);
        if (rule === undefined) throw new Error(`${stage} decided on an illegal move: ${state} on ${decision.on}`);
        await failpoint.reach('stage.before-commit', run_id);
        const outcome = await inCommitSpan(
          { from: state, to: rule.to, trigger: decision.on, facts: decision.facts },
          () =>
            store.commitStage({
              run_id,
              expected: revision,
              from: state,
              on: decision.on,
              to: rule.to,
              facts: decision.facts,
              wake_in_ms: decision.wake_in_ms,
            }),
        );
        if (outcome.kind === 'stale_revision') return 'lost';
        const code = decision.facts.stop_reason?.code;
        log.info(
          {
            revision: outcome.row.revision,
            from: state,
            to: rule.to,
            trigger: decision.on,
            ...(code === undefined ? {} : { code }),
          },
          'committed',
        );
        return outcome.row;
      }
      case 'committed':
        return decision.row;
      case 'reload':
        return 'lost';
      case 'defer': {
        const moved = await store.defer(run_id, revision, decision.wake_in_ms);
        if (moved) metrics.deferred(stage, decision.code);
        log.info({ wake_in_ms: decision.wake_in_ms, code: decision.code, reason: decision.reason }, 'deferred');
        return moved ? null : 'lost';
      }
      case 'nothing':
        log.debug({ reason: decision.reason }, 'nothing to do');
        return null;
    }
  }
}

/** What a decision came to, in a span. */
const RESULTS = {
  commit: 'committed',
  committed: 'committed',
  defer: 'deferred',
  nothing: 'nothing',
  reload: 'lost',
} as const satisfies Record<StageDecision['kind'], string>;

/** Triggers that keep the state in order to try again later. */
const WAITS: ReadonlySet<Trigger> = new Set<Trigger>([
  'read_failed',
  'proposal_asked_again',
  'verification_pending',
  'look_inconclusive',
]);

function waits(decision: StageDecision): boolean {
  return decision.kind === 'commit' && WAITS.has(decision.on);
}
