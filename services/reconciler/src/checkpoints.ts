import { appendFile } from 'node:fs/promises';
import { type Clock, Digest, type Durations, RunId } from '@counterstamp/manifest-core';
import type { CheckpointDue } from '@counterstamp/manifest-store';
import { type CheckpointLeaf, makeCheckpoint } from '@counterstamp/receipts';
import { Envelope } from '@counterstamp/signatures';
import type { Logger } from '@counterstamp/telemetry';
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
  clock: Clock;
  durations: Pick<Durations, 'checkpoint_ms'>;
  log: Logger;
}

/**
 * Signs where every history stands, at an interval, and exports it: from then on nobody rewrites or cuts a history up to there unseen, who
 * cannot also reach the copies. Any number of processes may run it; each number is taken once. Ends when the signal aborts.
 */
export async function keepCheckpoints(
  settings: CheckpointSettings,
  deps: CheckpointDeps,
  signal: AbortSignal,
): Promise<void> {
  const { clock, durations, log } = deps;
  while (!signal.aborted) {
    let full = false;
    try {
      full = await checkpointOnce(settings, deps);
    } catch (error) {
      log.warn(
        { reason: error instanceof Error ? error.message : String(error) },
        'no checkpoint was made; the next round tries again',
      );
    }
    if (!full) await clock.sleep(durations.checkpoint_ms, signal);
  }
}

/** One round. @returns whether it was full, so that the next follows at once. */
export async function checkpointOnce({ key, file }: CheckpointSettings, deps: CheckpointDeps): Promise<boolean> {
  const interval_ms = deps.durations.checkpoint_ms;
  const due = await deps.due({ interval_ms, heartbeat_ms: interval_ms * HEARTBEAT_INTERVALS, limit: LEAVES_MAX });
  if (due === undefined) return false;
  const previous = due.previous === null ? null : Envelope.parse(due.previous);
  const envelope = makeCheckpoint(previous, due.leaves.map(leafOf), due.at, key);
  if (!(await deps.commit(due, envelope))) return false;
  deps.log.info({ seq: due.seq, runs: due.leaves.length, key_id: key.key_id }, 'checkpoint signed');
  // After the commit: a line that the database does not have would look like a history cut off.
  if (file !== undefined) await exportTo(file, envelope, due.seq, deps.log);
  return due.leaves.length === LEAVES_MAX;
}

/** The checkpoint stands without its line, so that a full disk does not stop the next ones; but somebody has to add it. */
async function exportTo(file: string, envelope: Envelope, seq: number, log: Logger): Promise<void> {
  try {
    await appendFile(file, `${JSON.stringify(envelope)}\n`, { mode: 0o644 });
  } catch (error) {
    log.error(
      { seq, reason: error instanceof Error ? error.message : String(error) },
      'a checkpoint was signed and stored, but not exported to the file: add it from GET /v1/checkpoints',
    );
  }
}

function leafOf(head: CheckpointDue['leaves'][number]): CheckpointLeaf {
  return {
    run_id: RunId.parse(head.run_id),
    revision: head.revision,
    chain_head: Digest.parse(head.chain_head),
  };
}
