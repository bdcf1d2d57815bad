import type { Clock } from '@counterstamp/manifest-core';
import type { Consumer, HintQueue } from '@counterstamp/stage-queue';

/** Between two looks at the consumers, in milliseconds: what is stuck was so at each of several looks, not at one. */
const LOOK_EVERY_MS = 5_000;

/**
 * Looks at the consumers until one takes no hints for `stuckMs` although the queue answers: a state that this process does not leave by itself, and a
 * new one may. The time counts only while the queue answers: when it is away a new process would find it away too, and the old one comes
 * back by itself.
 * @returns the stage and why, for the last words of the process; `undefined` when the signal aborted.
 */
export async function untilStuck(
  {
    consumers,
    queue,
    clock,
    stuckMs,
  }: { consumers: readonly Consumer[]; queue: Pick<HintQueue, 'ping'>; clock: Clock; stuckMs: number },
  signal: AbortSignal,
): Promise<string | undefined> {
  const since = new Map<Consumer, number>();
  while (!signal.aborted) {
    await clock.sleep(LOOK_EVERY_MS, signal);
    const looks = await Promise.all(consumers.map(async (consumer) => ({ consumer, health: await consumer.health() })));
    const answers = looks.every(({ health }) => health.consuming) || (await queue.ping()).kind === 'ok';
    const now = clock.monotonicMs();
    for (const { consumer, health } of looks) {
      if (health.consuming || !answers) {
        since.delete(consumer);
        continue;
      }
      const from = since.get(consumer) ?? now;
      since.set(consumer, from);
      if (now - from >= stuckMs && !signal.aborted) return `${consumer.stage}: ${health.why ?? 'not consuming'}`;
    }
  }
  return undefined;
}
