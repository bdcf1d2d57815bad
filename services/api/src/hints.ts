import { type FailpointName, type HotRow, laneOf, stageOf } from '@counterstamp/manifest-core';
import type { ApiDeps } from './deps.ts';

/** Sends hints beside the answers: a queue that hangs or is away delays no caller, and the run's `wake_at` replaces a lost hint. */
export interface Hints {
  /** Hints the stage that the committed row names, if any. Returns at once and never throws. */
  send(row: HotRow, failpoint: FailpointName): void;
  /** Resolves when every hint given so far was sent or given up. Never rejects. */
  settled(): Promise<void>;
}

export function createHints({ queue, failpoint, log }: Pick<ApiDeps, 'queue' | 'failpoint' | 'log'>): Hints {
  const pending = new Set<Promise<void>>();

  async function hint(row: HotRow, at: FailpointName): Promise<void> {
    try {
      await failpoint.reach(at, row.run_id);
      const stage = stageOf(row);
      const { run_id, revision, tenant_in_line } = row;
      if (stage !== null) await queue.hint(stage, { run_id, revision }, laneOf(tenant_in_line));
    } catch (err) {
      log.error({ err, run_id: row.run_id, revision: row.revision }, 'a hint failed; the sweeper brings the run back');
    }
  }

  return {
    send(row, at) {
      const sent = hint(row, at).then(() => {
        pending.delete(sent);
      });
      pending.add(sent);
    },
    async settled() {
      while (pending.size > 0) await Promise.all(pending);
    },
  };
}
