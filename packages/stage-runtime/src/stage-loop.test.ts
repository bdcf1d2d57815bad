import {
  type CommitOutcome,
  type Failpoint,
  type LoadedRun,
  type Manifest,
  type Revision,
  type Stage,
  type StageCommit,
  type Store,
  stopReason,
  type Trigger,
  transitionRule,
} from '@counterstamp/manifest-core';
import { describe, expect, test } from 'vitest';
import { hotRow, loaded, manifest, RUN_ID } from '../../../testing/manifest-builder.ts';
import { handClock, metricsOf, recordedLog, recordingQueue, scriptedStore } from '../../../testing/worker-fakes.ts';
import { noFailpoints } from './ports/failpoint.ts';
import { createStageLoop, type Judge, type StageDecision } from './stage-loop.ts';

/** Moves that leave the run among the stages of one process. */
const commit = (on: Trigger, wake_in_ms: number | null = 1_000): StageDecision => ({
  kind: 'commit',
  on,
  facts: {},
  wake_in_ms,
});

/**
 * A loop over one run that is really kept: a commit changes it as the transition table says, unless `lose` says that somebody else was first.
 */
function lab(
  start: Manifest,
  judges: Partial<Record<Stage, Judge>>,
  options: {
    lose?: (commits: number) => boolean;
    store?: Partial<Store>;
    failpoint?: Failpoint;
    change?: (run: Manifest, on: Trigger) => Partial<Manifest>;
  } = {},
) {
  let run: Manifest | undefined = start;
  let loads = 0;
  const commits: StageCommit[] = [];
  const store = scriptedStore({
    load: () => {
      loads++;
      return Promise.resolve(run === undefined ? undefined : loaded(run));
    },
    commitStage: (move): Promise<CommitOutcome> => {
      commits.push(move);
      if (run === undefined) throw new Error('no run');
      if (move.expected !== run.revision || move.from !== run.state || options.lose?.(commits.length) === true) {
        if (options.lose !== undefined) run = { ...run, revision: (run.revision + 1) as Revision };
        return Promise.resolve({ kind: 'stale_revision' });
      }
      run = { ...run, state: move.to, revision: (run.revision + 1) as Revision, ...options.change?.(run, move.on) };
      return Promise.resolve({ kind: 'committed', row: hotRow(run) });
    },
    ...options.store,
  });
  const queue = recordingQueue();
  const { log, lines } = recordedLog();
  const metrics = metricsOf('preflight');
  const clock = handClock();
  const work = createStageLoop({
    store,
    queue,
    clock,
    failpoint: options.failpoint ?? noFailpoints,
    log,
    metrics,
    judges,
  });
  return {
    take: (stage: Stage, revision: number = start.revision) => work(stage, { run_id: RUN_ID, revision }),
    commits,
    hints: queue.hints,
    lines,
    metrics,
    clock,
    loads: () => loads,
    run: () => run,
    forget: () => {
      run = undefined;
    },
  };
}

const queued = manifest({ state: 'queued', evidence_complete: false });
const never: Judge = () => Promise.reject(new Error('nobody was to be asked'));

describe('a hint', () => {
  test('leads to one decision on the reloaded run, one commit on its revision, and a hint of the next stage', async () => {
    const seen: LoadedRun[] = [];
    const rig = lab(queued, {
      preflight: (run) => {
        seen.push(run);
        return Promise.resolve(run.manifest.state === 'queued' ? commit('request_loaded') : commit('checks_passed'));
      },
    });
    await rig.take('preflight');
    expect(rig.commits).toMatchObject([
      { run_id: RUN_ID, expected: 5, from: 'queued', on: 'request_loaded', to: 'preflight', wake_in_ms: 1_000 },
      { run_id: RUN_ID, expected: 6, from: 'preflight', on: 'checks_passed', to: 'collecting' },
    ]);
    expect(seen.map((run) => run.manifest.revision)).toEqual([5, 6]);
    expect(rig.hints).toEqual([{ stage: 'collect', run_id: RUN_ID, revision: 7 }]);
  });

  test('leaves lines that name the trace of a run that came with one, though nobody traces here', async () => {
    const traced = { ...queued, trace_context: '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01' };
    const rig = lab(traced, {
      preflight: (run) =>
        Promise.resolve(run.manifest.state === 'queued' ? commit('request_loaded') : commit('checks_passed')),
    });
    await rig.take('preflight');
    const committed = rig.lines.filter(({ message }) => message === 'committed');
    expect(committed[0]).toMatchObject({ run_id: RUN_ID, trace_id: '4bf92f3577b34da6a3ce929d0e0e4736' });
    expect(committed[0]).not.toHaveProperty('span_id');
  });

  test('carries the run on in the same job while its next stage is served here, without a hint', async () => {
    const rig = lab(
      queued,
      {
        preflight: (run) =>
          Promise.resolve(commit(run.manifest.state === 'queued' ? 'request_loaded' : 'checks_passed')),
        collect: () => Promise.resolve(commit('evidence_recorded')),
        propose: (run) =>
          Promise.resolve(commit(run.manifest.state === 'collecting' ? 'proposal_received' : 'action_fixed')),
      },
      { change: (_run, on) => (on === 'evidence_recorded' ? { evidence_complete: true } : {}) },
    );
    await rig.take('preflight');
    expect(rig.commits.map((move) => move.on)).toEqual([
      'request_loaded',
      'checks_passed',
      'evidence_recorded',
      'proposal_received',
      'action_fixed',
    ]);
    // awaiting_approval: nobody has work until a person decides.
    expect(rig.hints).toEqual([]);
    expect(rig.loads()).toBe(5);
  });

  test.each<[string, Manifest]>([
    ['another stage’s', manifest({ state: 'verifying' })],
    ['nobody’s: it is executing, and only who inserted the attempt may send', manifest({ state: 'executing' })],
    ['a person’s', manifest({ state: 'awaiting_approval' })],
    ['over', manifest({ state: 'rejected' })],
    ['parked', manifest({ state: 'needs_reconciliation', parked_reason: 'effect_differs' })],
  ])('that comes late, when the run is %s, does nothing', async (_, run) => {
    const rig = lab(run, { preflight: never, execute: never });
    await rig.take('preflight', 1);
    expect([rig.commits, rig.hints, rig.loads()]).toEqual([[], [], 1]);
  });

  test('decides on the run as it is, whatever revision the hint names', async () => {
    for (const revision of [1, 99]) {
      const rig = lab(queued, { preflight: () => Promise.resolve(commit('checks_failed', null)) });
      await rig.take('preflight', revision);
      expect(rig.commits).toMatchObject([{ expected: queued.revision }]);
    }
  });

  test('for a run that does not exist is dropped, and said so', async () => {
    const rig = lab(queued, { preflight: never });
    rig.forget();
    await rig.take('preflight', 7);
    expect(rig.lines).toContainEqual(expect.objectContaining({ level: 'warn', run_id: RUN_ID, revision: 7 }));
  });
});

describe('a lost swap', () => {
  test('is decided again on a fresh load, never repeated with what was read before', async () => {
    const revisions: number[] = [];
    const rig = lab(
      queued,
      {
        preflight: (run) => {
          revisions.push(run.manifest.revision);
          return Promise.resolve(commit('checks_failed', null));
        },
      },
      { lose: (commits) => commits <= 2 },
    );
    await rig.take('preflight');
    expect(revisions).toEqual([5, 6, 7]);
    expect(rig.commits.map((move) => move.expected)).toEqual([5, 6, 7]);
    expect(rig.run()?.state).toBe('failed');
    expect(await rig.metrics.text()).toMatch(/counterstamp_swaps_lost_total\{[^}]*stage="preflight"[^}]*\} 2/);
  });

  test.each<[string, Judge, Partial<Store>]>([
    [
      'commits',
      () => Promise.resolve(commit('request_loaded')),
      { commitStage: () => Promise.resolve({ kind: 'stale_revision' }) },
    ],
    ['dispatches', () => Promise.resolve({ kind: 'reload' }), {}],
    [
      'deferrals',
      () => Promise.resolve({ kind: 'defer', wake_in_ms: 1, code: 'on_hold', reason: 'x' }),
      { defer: () => Promise.resolve(false) },
    ],
  ])('is tried again a bounded number of times, then left to the sweeper: %s', async (_, judge, store) => {
    let asked = 0;
    const counting: Judge = (run) => {
      asked++;
      return judge(run);
    };
    const rig = lab(queued, { preflight: counting }, { store });
    await rig.take('preflight');
    expect(asked).toBe(8);
    expect(rig.loads()).toBe(8);
    expect(rig.hints).toEqual([]);
  });
});

describe('a decision', () => {
  test.each<[string, Trigger, Manifest]>([
    ['read_failed', 'read_failed', manifest({ state: 'preflight', evidence_complete: false })],
    ['proposal_asked_again', 'proposal_asked_again', manifest({ state: 'collecting' })],
    ['verification_pending', 'verification_pending', manifest({ state: 'verifying' })],
    [
      'look_inconclusive',
      'look_inconclusive',
      manifest({ state: 'needs_reconciliation', stop_reason: stopReason('external_result_uncertain') }),
    ],
  ])('to wait (%s) ends the job: its time is the sweeper’s to notice', async (_, on, run) => {
    let asked = 0;
    const judge: Judge = () => {
      asked++;
      return Promise.resolve(commit(on));
    };
    const rig = lab(run, { preflight: judge, propose: judge, verify: judge, reconcile: judge });
    await rig.take('preflight');
    expect([asked, rig.commits.length, rig.hints]).toEqual([1, 1, []]);
  });

  test('to defer moves the wake-up of this revision and ends the job without an event', async () => {
    const deferred: unknown[] = [];
    const rig = lab(
      queued,
      { preflight: () => Promise.resolve({ kind: 'defer', wake_in_ms: 250, code: 'on_hold', reason: 'held' }) },
      {
        store: {
          defer: (...call) => {
            deferred.push(call);
            return Promise.resolve(true);
          },
        },
      },
    );
    await rig.take('preflight');
    expect(deferred).toEqual([[RUN_ID, queued.revision, 250]]);
    expect([rig.commits, rig.hints, rig.loads()]).toEqual([[], [], 1]);
  });

  test('to do nothing ends the job', async () => {
    const rig = lab(queued, { preflight: () => Promise.resolve({ kind: 'nothing', reason: 'x' }) });
    await rig.take('preflight');
    expect([rig.commits, rig.hints, rig.loads()]).toEqual([[], [], 1]);
  });

  test('that the stage committed by itself is hinted on from the row that it left', async () => {
    const approved = manifest({ state: 'awaiting_approval', decisions_sufficient: true });
    const left = hotRow(manifest({ state: 'verifying', revision: 9 as Revision }));
    const rig = lab(approved, { execute: () => Promise.resolve({ kind: 'committed', row: left }) });
    await rig.take('execute');
    expect(rig.hints).toEqual([{ stage: 'verify', run_id: RUN_ID, revision: 9 }]);
    expect(rig.commits).toEqual([]);
  });

  test('on an illegal move throws and commits nothing', async () => {
    expect(transitionRule('queued', 'effect_verified')).toBeUndefined();
    const rig = lab(queued, { preflight: () => Promise.resolve(commit('effect_verified')) });
    await expect(rig.take('preflight')).rejects.toThrow('illegal move: queued on effect_verified');
    expect([rig.commits, rig.hints]).toEqual([[], []]);
  });

  test('that cannot be made, because a judge fails, passes its error on; the hint’s time is measured all the same', async () => {
    const rig = lab(queued, { preflight: () => Promise.reject(new Error('bug')) });
    await expect(rig.take('preflight')).rejects.toThrow('bug');
    expect(await rig.metrics.text()).toMatch(
      /counterstamp_stage_duration_seconds_count\{[^}]*stage="preflight"[^}]*\} 1/,
    );
  });

  test('that ends the run hints nobody', async () => {
    const rig = lab(
      queued,
      { preflight: () => Promise.resolve(commit('checks_failed', null)) },
      { change: () => ({ wake_at: null }) },
    );
    await rig.take('preflight');
    expect(rig.run()?.state).toBe('failed');
    expect(rig.hints).toEqual([]);
  });
});

test('a run that never comes to rest is left to the sweeper after a bounded number of moves', async () => {
  // Collected and judged over and over, as a run whose evidence never completes would be.
  const rig = lab(manifest({ state: 'collecting', evidence_complete: false }), {
    collect: () => Promise.resolve(commit('evidence_recorded')),
  });
  await rig.take('collect');
  expect(rig.commits).toHaveLength(16);
  expect(rig.lines).toContainEqual(expect.objectContaining({ level: 'warn', moves: 16 }));
});

test.each<[Stage, Manifest, StageDecision, string]>([
  [
    'preflight',
    manifest({ state: 'preflight', evidence_complete: false }),
    commit('checks_passed'),
    'stage.committed.before-hint',
  ],
  [
    'execute',
    manifest({ state: 'awaiting_approval', decisions_sufficient: true }),
    { kind: 'committed', row: hotRow(manifest({ state: 'verifying' })) },
    'outcome.committed.before-hint',
  ],
])('the failpoints of %s stand where their names say', async (stage, run, decision, last) => {
  const order: string[] = [];
  const failpoint: Failpoint = {
    reach: (name) => Promise.resolve(void order.push(name)),
    reachSync: () => undefined,
  };
  const rig = lab(run, { [stage]: () => Promise.resolve(decision) }, { failpoint });
  await rig.take(stage);
  expect(order).toEqual(['stage.loaded', ...(decision.kind === 'commit' ? ['stage.before-commit'] : []), last]);
  expect(rig.hints).toHaveLength(1);
});

describe('a run in doubt', () => {
  const doubted = manifest({
    state: 'needs_reconciliation',
    stop_reason: { code: 'external_result_uncertain', message: 'm' },
  });
  const once = (on: Trigger): Judge => {
    let asked = 0;
    return () => (asked++ === 0 ? Promise.resolve(commit(on)) : Promise.reject(new Error('asked twice')));
  };

  test('whose retry was recorded is handed to the executor: the reconciler never sends', async () => {
    const change = () => ({ retry_allowed: true });
    const rig = lab(doubted, { reconcile: once('retry_recorded') }, { change });
    await rig.take('reconcile');
    expect(rig.hints).toEqual([{ stage: 'execute', run_id: RUN_ID, revision: doubted.revision + 1 }]);
  });

  test('that was closed is left to a clock: nobody looks at it again in the same go, and nobody is hinted', async () => {
    const change = () => ({ stop_reason: { code: 'not_sent', message: 'm' } as const });
    const rig = lab(doubted, { reconcile: once('never_sent') }, { change });
    await rig.take('reconcile');
    expect(rig.run()).toMatchObject({ state: 'failed', wake_at: expect.any(String) });
    expect(rig.hints).toEqual([]);
    const elsewhere = lab(
      { ...doubted, retry_allowed: true },
      {
        execute: () => Promise.resolve({ kind: 'committed', row: hotRow({ ...doubted, state: 'failed' }) }),
      },
    );
    await elsewhere.take('execute');
    expect(elsewhere.hints).toEqual([]);
  });
});
