import {
  type CommitOutcome,
  type DueRun,
  type Failpoint,
  type Manifest,
  PROFILES,
  type Revision,
  type RunId,
  type StageCommit,
  type Store,
} from '@counterstamp/manifest-core';
import { StoreUnavailable } from '@counterstamp/manifest-store';
import { meteredStore, noFailpoints } from '@counterstamp/stage-runtime';
import { describe, expect, test } from 'vitest';
import { hotRow } from '../../../testing/manifest-builder.ts';
import { approvedRun } from '../../../testing/refund-case.ts';
import { handClock, metricsOf, recordedLog, recordingQueue, scriptedStore } from '../../../testing/worker-fakes.ts';
import { type SweeperDeps, sweep, sweepOnce } from './sweeper.ts';

const durations = PROFILES.fast;
const idOf = (n: number) => `run_00000000-0000-7000-8000-${String(n).padStart(12, '0')}` as RunId;

function due(
  n: number,
  change: Partial<Manifest>,
  overdue: DueRun['overdue'] = null,
  attempt_id: string | null = null,
): DueRun {
  return { row: hotRow(approvedRun({ run_id: idOf(n), ...change })), overdue, attempt_id };
}

/** A sweeper over one claim, with a store that commits whatever it is told unless the script says otherwise. */
function lab(claims: DueRun[][], script: Partial<Store> = {}, failpoint: Failpoint = noFailpoints) {
  const commits: StageCommit[] = [];
  const claimed: object[] = [];
  const rows = new Map(claims.flat().map((item) => [item.row.run_id, item.row]));
  const store = scriptedStore({
    claimDue: (claim) => {
      claimed.push(claim);
      return Promise.resolve({ due: claims.shift() ?? [], skipped: 0 });
    },
    commitStage: (commit): Promise<CommitOutcome> => {
      commits.push(commit);
      const row = rows.get(commit.run_id);
      if (row === undefined) throw new Error('unknown run');
      return Promise.resolve({
        kind: 'committed',
        row: {
          ...row,
          state: commit.to,
          revision: (commit.expected + 1) as Revision,
          wake_at: null,
          parked_reason: commit.facts.parked_reason ?? null,
        },
      });
    },
    ...script,
  });
  const queue = recordingQueue();
  const clock = handClock();
  const { log, lines } = recordedLog();
  const metrics = metricsOf('reconciler');
  const deps: SweeperDeps = { store: meteredStore(store, metrics), queue, clock, failpoint, durations, log, metrics };
  return { deps, commits, claimed, hints: queue.hints, clock, lines, metrics };
}

describe('one sweep', () => {
  test('hints the stage of every due run with the revision of its row, and commits nothing for it', async () => {
    const { deps, commits, hints } = lab([
      [
        due(1, { state: 'queued' }),
        due(2, { state: 'collecting', evidence_complete: false }),
        due(3, { state: 'proposed' }),
        due(4, { state: 'awaiting_approval' }),
        due(5, { state: 'verifying' }),
        due(6, { state: 'needs_reconciliation' }),
      ],
    ]);
    expect(await sweepOnce(deps)).toBe(6);
    expect(hints.map(({ stage, run_id }) => [stage, run_id])).toEqual([
      ['preflight', idOf(1)],
      ['collect', idOf(2)],
      ['propose', idOf(3)],
      ['execute', idOf(4)],
      ['verify', idOf(5)],
      ['reconcile', idOf(6)],
    ]);
    expect(new Set(hints.map((hint) => hint.revision))).toEqual(new Set([approvedRun().revision]));
    expect(commits).toEqual([]);
  });

  test('a started attempt is hinted to nobody: only its outcome or its deadline moves the run', async () => {
    const { deps, commits, hints } = lab([[due(1, { state: 'executing' })]]);
    await sweepOnce(deps);
    expect([commits, hints]).toEqual([[], []]);
  });

  test.each<[string, DueRun, Partial<StageCommit>, string[]]>([
    [
      'an overdue attempt becomes uncertain and is looked up at once',
      due(1, { state: 'executing' }, 'attempt', 'att_1'),
      { on: 'attempt_overdue', to: 'needs_reconciliation' },
      ['reconcile'],
    ],
    ['an overdue approval expires', due(1, {}, 'approval'), { on: 'approval_expired', to: 'expired' }, []],
    [
      'an overdue run before dispatch fails',
      due(1, { state: 'collecting' }, 'run'),
      { on: 'deadline_passed', to: 'failed' },
      [],
    ],
    [
      'an overdue run in verifying is looked up',
      due(1, { state: 'verifying' }, 'run'),
      { on: 'deadline_passed', to: 'needs_reconciliation' },
      ['reconcile'],
    ],
    [
      'an overdue run in doubt is parked: a deadline ends no effect',
      due(
        1,
        { state: 'needs_reconciliation', stop_reason: { code: 'external_result_uncertain', message: 'm' } },
        'run',
      ),
      { on: 'parked', to: 'needs_reconciliation' },
      [],
    ],
  ])('%s', async (_, item, expected, stages) => {
    const { deps, commits, hints, metrics } = lab([[item]]);
    await sweepOnce(deps);
    expect(commits).toMatchObject([
      { ...expected, run_id: idOf(1), expected: item.row.revision, from: item.row.state },
    ]);
    expect(hints).toEqual(stages.map((stage) => ({ stage, run_id: idOf(1), revision: item.row.revision + 1 })));
    expect(await metrics.text()).toContain(`trigger="${expected.on}"`);
  });

  test('a run that somebody committed meanwhile is left to that commit', async () => {
    const { deps, hints, metrics } = lab([[due(1, { state: 'executing' }, 'attempt', 'att_1')]], {
      commitStage: () => Promise.resolve({ kind: 'stale_revision' }),
    });
    expect(await sweepOnce(deps)).toBe(1);
    expect(hints).toEqual([]);
    expect(await metrics.text()).not.toContain('attempt_overdue');
  });

  test('one run that cannot be carried on does not hold up those behind it', async () => {
    const { deps, hints, lines } = lab([[due(1, {}, 'approval'), due(2, { state: 'verifying' })]], {
      commitStage: () => Promise.reject(new Error('approval_expired before its time')),
    });
    expect(await sweepOnce(deps)).toBe(2);
    expect(hints).toMatchObject([{ stage: 'verify', run_id: idOf(2) }]);
    expect(lines).toContainEqual(expect.objectContaining({ level: 'error', run_id: idOf(1) }));
  });

  test('goes on past one row that is locked, and ends after three in a row: then the database is away', async () => {
    let calls = 0;
    const { deps } = lab([[1, 2, 3, 4, 5].map((n) => due(n, {}, 'approval'))], {
      commitStage: () => {
        calls++;
        return Promise.reject(new StoreUnavailable('away'));
      },
    });
    await expect(sweepOnce(deps)).rejects.toThrow(StoreUnavailable);
    expect(calls).toBe(3);
  });

  test('claims with the bounds of the configuration', async () => {
    const { deps, claimed } = lab([[]]);
    await sweepOnce(deps);
    const { rehint_min_ms, rehint_max_ms, sweep_grace_ms, lease_loss_ms } = durations;
    expect(claimed).toEqual([
      { limit: expect.any(Number), rehint_min_ms, rehint_max_ms, sweep_grace_ms, lease_loss_ms },
    ]);
  });

  test('counts the due runs that somebody else holds: a stopped process shows as a number that stays', async () => {
    const { deps, lines, metrics } = lab([], { claimDue: () => Promise.resolve({ due: [], skipped: 3 }) });
    expect(await sweepOnce(deps)).toBe(0);
    await sweepOnce(deps);
    expect(await metrics.text()).toMatch(/^counterstamp_sweep_skipped_total.* 6$/m);
    expect(lines).toContainEqual(expect.objectContaining({ due: 0, skipped: 3 }));
  });

  test('commits before it hints, and claims before both', async () => {
    const order: string[] = [];
    const failpoint: Failpoint = {
      reach: (name, run_id) => Promise.resolve(void order.push(`${name} ${run_id?.slice(-1)}`)),
      reachSync: () => undefined,
    };
    const { deps, commits, hints } = lab([[due(1, { state: 'executing' }, 'attempt', 'att_1')]], {}, failpoint);
    await sweepOnce(deps);
    expect(order).toEqual(['sweep.selected.before-commit 1', 'sweep.wake-moved.before-hint 1']);
    expect([commits.length, hints.length]).toEqual([1, 1]);
  });
});

describe('the sweeper', () => {
  /** Ends the loop when the claims are used up. */
  function running(claims: (DueRun[] | Error)[]) {
    const stop = new AbortController();
    const { deps, clock, lines, hints } = lab([], {
      claimDue: () => {
        const claim = claims.shift();
        if (claims.length === 0) stop.abort();
        return claim instanceof Error ? Promise.reject(claim) : Promise.resolve({ due: claim ?? [], skipped: 0 });
      },
    });
    return { ended: sweep(deps, stop.signal), clock, lines, hints };
  }

  test('pauses for its interval after a claim that was not full', async () => {
    const { ended, clock } = running([[], [due(1, { state: 'verifying' })], []]);
    await ended;
    expect(clock.sleeps).toEqual([
      durations.sweep_interval_ms,
      durations.sweep_interval_ms,
      durations.sweep_interval_ms,
    ]);
  });

  test('goes on at once while its claims are full', async () => {
    const full = Array.from({ length: 200 }, (_, n) => due(n, { state: 'verifying' }));
    const { ended, clock, hints } = running([full, []]);
    await ended;
    expect(clock.sleeps).toEqual([durations.sweep_interval_ms]);
    expect(hints).toHaveLength(200);
  });

  test('outlives a database that is away, and says so', async () => {
    const { ended, clock, lines, hints } = running([new StoreUnavailable('away'), [due(1, { state: 'verifying' })]]);
    await ended;
    expect(lines).toContainEqual(expect.objectContaining({ level: 'warn', reason: 'away' }));
    expect(hints).toHaveLength(1);
    expect(clock.sleeps.length).toBeGreaterThan(0);
  });

  test('begins nothing once it was told to end', async () => {
    const { deps, claimed, lines } = lab([[due(1, { state: 'verifying' })]]);
    await sweep(deps, AbortSignal.abort());
    expect([claimed, lines]).toEqual([[], []]);
  });
});
