import { expect, test } from 'vitest';
import { createReading } from './reading.ts';

/** A clock of the test's own: sleeps end when it is moved past them. */
function handClock() {
  let now = 0;
  const sleepers = new Set<{ until: number; wake: () => void }>();
  return {
    monotonicMs: () => now,
    wallMs: () => 1_000_000 + now,
    sleep: (ms: number, signal?: AbortSignal) =>
      new Promise<void>((resolve) => {
        const sleeper = { until: now + ms, wake: resolve };
        sleepers.add(sleeper);
        signal?.addEventListener('abort', () => resolve());
      }),
    async advance(ms: number) {
      now += ms;
      for (const sleeper of sleepers) if (sleeper.until <= now) sleeper.wake();
      await new Promise((resolve) => setImmediate(resolve));
    },
  };
}

function lab() {
  const clock = handClock();
  const reads: { resolve: (value: string) => void; reject: (error: Error) => void }[] = [];
  const reading = createReading(() => new Promise<string>((resolve, reject) => void reads.push({ resolve, reject })), {
    clock,
    fresh_ms: 5_000,
    wait_ms: 1_000,
  });
  return { clock, reads, reading };
}

test('ten scrapes at once cost one read, and what was read serves the next until it is old', async () => {
  const { clock, reads, reading } = lab();
  const asked = Array.from({ length: 10 }, () => reading.latest());
  expect(reads).toHaveLength(1);
  await clock.advance(20);
  reads[0]?.resolve('a');
  for (const latest of await Promise.all(asked))
    expect(latest).toEqual({ value: 'a', age_ms: 20, at_ms: 1_000_000, took_ms: 20, failures: 0 });
  await clock.advance(4_979);
  expect(await reading.latest()).toMatchObject({ value: 'a', age_ms: 4_999 });
  expect(reads).toHaveLength(1);
  await clock.advance(1);
  const anew = reading.latest();
  expect(reads).toHaveLength(2);
  reads[1]?.resolve('b');
  expect(await anew).toMatchObject({ value: 'b', age_ms: 0 });
});

test('a read that hangs holds up nobody for longer than the wait, is not asked again meanwhile, and the last value ages', async () => {
  const { clock, reads, reading } = lab();
  const first = reading.latest();
  reads[0]?.resolve('a');
  await first;
  await clock.advance(6_000);
  const waiting = reading.latest();
  await clock.advance(1_000);
  expect(await waiting).toMatchObject({ value: 'a', age_ms: 7_000, failures: 0 });
  // Whoever comes later does not even wait.
  await clock.advance(60_000);
  expect(await reading.latest()).toMatchObject({ value: 'a', age_ms: 67_000 });
  expect(reads).toHaveLength(2);
  reads[1]?.resolve('b');
  await clock.advance(0);
  // It counts from when it was asked: what it says may be as old as that.
  const late = reading.latest();
  await clock.advance(1_000);
  expect(await late).toMatchObject({ value: 'b', age_ms: 62_000 });
});

test('a read that fails is counted, leaves the last value, and is tried again only when the next is due', async () => {
  const { clock, reads, reading } = lab();
  const first = reading.latest();
  reads[0]?.reject(new Error('gone'));
  expect(await first).toEqual({ value: undefined, age_ms: 0, at_ms: 0, took_ms: 0, failures: 1 });
  await reading.latest();
  expect(reads).toHaveLength(1);
  await clock.advance(5_000);
  const again = reading.latest();
  reads[1]?.resolve('a');
  expect(await again).toMatchObject({ value: 'a', failures: 1 });
});
