import { type Clock, Digest, type Durations, RunId } from '@counterstamp/manifest-core';
import type { CheckpointDue } from '@counterstamp/manifest-store';
import { type CheckpointLeaf, makeCheckpoint } from '@counterstamp/receipts';
import { Envelope, type SigningKey } from '@counterstamp/signatures';
import type { Logger } from '@counterstamp/telemetry';
import { checkpointFile } from './checkpoint-file.ts';
import type { CheckpointSettings } from './config.ts';

/** Leaves of one checkpoint at most: a proof carries the logarithm of it, its making the whole. */
const LEAVES_MAX = 5_000;
/** While nothing moves, a checkpoint every so many intervals says just that. */
const HEARTBEAT_INTERVALS = 60;

export interface CheckpointDeps {
  /** What is due, or nothing; see `checkpointDue`. */
  due(wanted: { interval_ms: number; heartbeat_ms: number; limit: number }): Promise<CheckpointDue | undefined>;
  /** False: another reconciler was first. */
  commit(due: CheckpointDue, envelope: Envelope): Promise<boolean>;
  /** Stored checkpoints in the order of their numbers, after one of them. */
  stored(after: number, limit: number): Promise<{ seq: number; envelope: object }[]>;
  clock: Clock;
  durations: Pick<Durations, 'checkpoint_ms'>;
  log: Logger;
}

/**
 * Signs where every history stands, at an interval, and exports it: from then on nobody rewrites or cuts a history up to there unseen, who
 * cannot also reach the copies. Any number of processes may run it; each number is taken once, and each one's file gets all of them. Ends
 * when the signal aborts.
 */
export async function keepCheckpoints(
  { key, file }: CheckpointSettings,
  deps: CheckpointDeps,
  signal: AbortSignal,
): Promise<void> {
  const { clock, durations, log } = deps;
  const exported = file === undefined ? undefined : checkpointFile(file);
  while (!signal.aborted) {
    let isBehind = false;
    try {
      isBehind = await checkpointOnce(key, deps);
      await exported?.bringUpToDate(deps);
    } catch (error) {
      log.warn(
        { reason: error instanceof Error ? error.message : String(error) },
        'a checkpoint was not made or not exported; the next round tries again',
      );
    }
    if (!isBehind) await clock.sleep(durations.checkpoint_ms, signal);
  }
}

/** One round. @returns whether more has moved than this checkpoint covers, so that the next follows at once. */
export async function checkpointOnce(key: SigningKey, deps: CheckpointDeps): Promise<boolean> {
  const interval_ms = deps.durations.checkpoint_ms;
  const due = await deps.due({ interval_ms, heartbeat_ms: interval_ms * HEARTBEAT_INTERVALS, limit: LEAVES_MAX });
  if (due === undefined) return false;
  const previous = due.previous === null ? null : Envelope.parse(due.previous);
  const envelope = makeCheckpoint(previous, due.leaves.map(leafOf), due.at, key);
  if (!(await deps.commit(due, envelope))) return false;
  deps.log.info({ seq: due.seq, runs: due.leaves.length, key_id: key.key_id }, 'checkpoint signed');
  return due.covered_until < due.at;
}

function leafOf(head: CheckpointDue['leaves'][number]): CheckpointLeaf {
  return {
    run_id: RunId.parse(head.run_id),
    revision: head.revision,
    chain_head: Digest.parse(head.chain_head),
  };
}
