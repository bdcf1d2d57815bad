import type { Queue } from 'bullmq';
import type { StageBacklog } from './backend.ts';
import type { Timers } from './ports/timers.ts';

/** What waits on a queue and what is worked on. */
export async function backlogOf(
  queue: Pick<Queue, 'getJobCounts' | 'getJobs'>,
  timers: Pick<Timers, 'wallMs'>,
): Promise<StageBacklog> {
  const [counts, oldest] = await Promise.all([
    queue.getJobCounts('waiting', 'prioritized', 'active'),
    queue.getJobs(['waiting', 'prioritized'], 0, 0, true),
  ]);
  return {
    waiting: (counts.waiting ?? 0) + (counts.prioritized ?? 0),
    active: counts.active ?? 0,
    oldest_age_ms: Math.max(0, ...oldest.map((job) => timers.wallMs() - job.timestamp)),
  };
}
