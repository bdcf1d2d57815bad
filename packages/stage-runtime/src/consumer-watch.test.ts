import type { Consumer, ConsumerHealth } from '@counterstamp/stage-queue';
import { expect, test } from 'vitest';
import { handClock } from '../../../testing/worker-fakes.ts';
import { untilStuck } from './consumer-watch.ts';

const STUCK_MS = 60_000;
const TAKES: ConsumerHealth = { consuming: true };
const STUCK: ConsumerHealth = { consuming: false, why: 'the worker does not run' };

/** One look after the other, 5 s apart: what the consumer says, and whether the queue answers. After the last one the watch is ended. */
async function watched(looks: { health: ConsumerHealth; answers?: boolean }[]) {
  const ending = new AbortController();
  let look = -1;
  const consumer: Consumer = {
    stage: 'verify',
    health: () => {
      look += 1;
      if (look === looks.length - 1) ending.abort();
      return Promise.resolve(looks[look]?.health ?? TAKES);
    },
    drain: () => Promise.resolve({ drained: true }),
  };
  const ping = () =>
    Promise.resolve(
      looks[look]?.answers === false
        ? ({ kind: 'unavailable', reason: 'not connected' } as const)
        : ({ kind: 'ok', ms: 1 } as const),
    );
  const why = await untilStuck(
    { consumers: [consumer], queue: { ping }, clock: handClock(), stuckMs: STUCK_MS },
    ending.signal,
  );
  return { why, looks: look + 1 };
}
const times = <T>(n: number, one: T): T[] => Array.from({ length: n }, () => one);

test('a consumer that takes nothing for the stated time, while the queue answers, is stuck: stage and reason are told', async () => {
  // The first look only begins the time.
  expect(await watched(times(20, { health: STUCK }))).toEqual({ why: 'verify: the worker does not run', looks: 13 });
});

test('a consumer that takes hints is never stuck, however long it lives', async () => {
  expect(await watched(times(100, { health: TAKES }))).toEqual({ why: undefined, looks: 100 });
});

test('a consumer that recovers begins anew', async () => {
  const nearly = times(12, { health: STUCK });
  expect((await watched([...nearly, { health: TAKES }, ...nearly, { health: TAKES }])).why).toBeUndefined();
});

test('while the queue is away no time counts: a new process would find it away too', async () => {
  const away = times(100, { health: STUCK, answers: false });
  expect((await watched(away)).why).toBeUndefined();
  expect(await watched([...away, ...times(20, { health: STUCK })])).toMatchObject({ looks: 113 });
});
