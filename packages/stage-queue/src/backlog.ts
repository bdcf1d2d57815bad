import type { Queue } from 'bullmq';
import { type StageBacklog, WAITING } from './backend.ts';
import type { Timers } from './ports/timers.ts';

/** Lanes beyond the plain list. */
const LANES = [1, 2, 3, 4] as const;

/** What waits on a queue, in whatever lane, and what is worked on. */
export async function backlogOf(
  queue: Pick<Queue, 'getJobCounts' | 'getJobs' | 'getCountsPerPriority'>,
  timers: Pick<Timers, 'wallMs'>,
): Promise<StageBacklog> {
  const [counts, perLane, plain] = await Promise.all([
    queue.getJobCounts(...WAITING, 'active'),
    queue.getCountsPerPriority([...LANES]),
    queue.getJobs(['waiting'], 0, 0, true),
  ]);
  // Lanes lie one behind the other, each in the order of its hints: its oldest is its first.
  let before = 0;
  const firsts: Promise<typeof plain>[] = [];
  for (const lane of LANES) {
    const waiting = perLane[lane] ?? 0;
    if (waiting > 0) firsts.push(queue.getJobs(['prioritized'], before, before, true));
    before += waiting;
  }
  const oldest = [plain, ...(await Promise.all(firsts))].flat();
  return {
    waiting: (counts.waiting ?? 0) + (counts.prioritized ?? 0),
    active: counts.active ?? 0,
    oldest_age_ms: Math.max(0, ...oldest.map((job) => timers.wallMs() - job.timestamp)),
  };
}
