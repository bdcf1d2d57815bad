import { randomUUID } from 'node:crypto';
import { Redis } from 'ioredis';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { redisUrl, testDatabase } from '../../../testing/services.ts';
import { type FaultProxy, startFaultProxy } from '../testing/fault-proxy.ts';
import { type OwnRedis, startOwnRedis } from '../testing/own-redis.ts';
import { type HintQueue, migrateQueue, openHintQueue, type QueueSettings } from './index.ts';

const newHint = () => ({ run_id: `run_${randomUUID()}`, revision: 1 });

/** Milliseconds that the work took and its value. */
async function timed<T>(work: Promise<T>): Promise<{ ms: number; value: T }> {
  const startedAt = performance.now();
  const value = await work;
  return { ms: performance.now() - startedAt, value };
}

/** A second and what a loaded machine adds to it. */
const ONE_SECOND_MS = 1_300;
/** "Within a few seconds". */
const RESUMED = { timeout: 8_000, interval: 100 };

function throughProxy(url: string, proxy: FaultProxy): string {
  const changed = new URL(url);
  changed.hostname = '127.0.0.1';
  changed.port = String(proxy.port);
  return changed.href;
}
function addressOf(url: string): { host: string; port: number } {
  const { hostname, port } = new URL(url);
  return { host: hostname, port: Number(port) };
}

const BACKENDS: [
  string,
  () => Promise<{ url: string; settings: (url: string) => QueueSettings; dispose: () => Promise<void> }>,
][] = [
  [
    'redis',
    async () => {
      const prefix = `test-${randomUUID()}`;
      return { url: await redisUrl(), settings: (url) => ({ backend: 'redis', url, prefix }), dispose: async () => {} };
    },
  ],
  [
    'postgres',
    async () => {
      const database = await testDatabase({
        version: 18,
        name: 'stage-queue',
        prepare: async (url) => {
          await migrateQueue(url, { grantTo: [] });
        },
      });
      return { url: database.url, settings: (url) => ({ backend: 'postgres', url }), dispose: database.drop };
    },
  ],
];

describe.each(BACKENDS)('an outage of %s', (_name, openBackend) => {
  let backend: Awaited<ReturnType<typeof openBackend>>;
  let proxy: FaultProxy;
  let queue: HintQueue;
  let reports: { message: string; where: string }[] = [];

  beforeEach(async () => {
    backend = await openBackend();
    proxy = await startFaultProxy(addressOf(backend.url));
    reports = [];
  });
  afterEach(async () => {
    await queue.close();
    await proxy.close();
    await backend.dispose();
  });
  const open = (): HintQueue =>
    openHintQueue(backend.settings(throughProxy(backend.url, proxy)), {
      onError: (error, where) => reports.push({ message: error.message, where }),
    });

  /** Sends fresh hints until one is taken: some are lost while connections come back, which is normal. */
  async function expectConsumed(taken: Set<string>): Promise<void> {
    await expect
      .poll(async () => {
        const hint = newHint();
        if ((await queue.hint('verify', hint)) !== 'queued') return false;
        await new Promise((resolve) => setTimeout(resolve, 100));
        return taken.has(hint.run_id);
      }, RESUMED)
      .toBe(true);
  }

  test('that refuses: hints fail within a second, health says so, and consumption resumes by itself', async () => {
    queue = open();
    const taken = new Set<string>();
    const consumer = queue.consume('verify', async ({ run_id }) => void taken.add(run_id), { concurrency: 2 });
    await expectConsumed(taken);
    await proxy.cut();
    for (let i = 0; i < 3; i++) {
      const { ms, value } = await timed(queue.hint('verify', newHint()));
      expect(value).toMatchObject({ kind: 'unavailable' });
      expect(ms).toBeLessThan(ONE_SECOND_MS);
    }
    const health = await timed(consumer.health());
    expect(health.value).toMatchObject({ consuming: false });
    expect(health.ms).toBeLessThan(ONE_SECOND_MS);
    expect((await timed(queue.ping())).value).toMatchObject({ kind: 'unavailable' });
    await new Promise((resolve) => setTimeout(resolve, 3_000));
    // Equal errors of many loops are held back.
    expect(reports.length).toBeLessThan(15);
    await proxy.restore();
    await expectConsumed(taken);
    await expect.poll(async () => (await consumer.health()).consuming, RESUMED).toBe(true);
  });

  test('that swallows everything: every call is bounded, hints do not pile up, and consumption resumes by itself', async () => {
    queue = open();
    const taken = new Set<string>();
    const consumer = queue.consume('verify', async ({ run_id }) => void taken.add(run_id), { concurrency: 2 });
    await expectConsumed(taken);
    proxy.freeze();
    const burst = await Promise.all(Array.from({ length: 500 }, () => timed(queue.hint('verify', newHint()))));
    for (const { ms, value } of burst) {
      expect(value).toMatchObject({ kind: 'unavailable' });
      expect(ms).toBeLessThan(ONE_SECOND_MS);
    }
    expect(burst.filter(({ value }) => value !== 'queued' && value.reason === 'backlog').length).toBe(244);
    const next = await timed(queue.hint('verify', newHint()));
    expect(next.ms).toBeLessThan(ONE_SECOND_MS);
    const health = await timed(consumer.health());
    expect(health.value).toMatchObject({ consuming: false });
    expect(health.ms).toBeLessThan(ONE_SECOND_MS);
    const ping = await timed(queue.ping());
    expect(ping.value).toMatchObject({ kind: 'unavailable' });
    expect(ping.ms).toBeLessThan(ONE_SECOND_MS);
    await proxy.restore();
    await expectConsumed(taken);
  });

  test('at the start: opening returns at once, and everything works when the server comes', async () => {
    await proxy.cut();
    queue = open();
    const taken = new Set<string>();
    const consumer = queue.consume('verify', async ({ run_id }) => void taken.add(run_id), { concurrency: 1 });
    const first = await timed(queue.hint('verify', newHint()));
    expect(first.value).toMatchObject({ kind: 'unavailable' });
    expect(first.ms).toBeLessThan(ONE_SECOND_MS);
    expect(await consumer.health()).toMatchObject({ consuming: false });
    await new Promise((resolve) => setTimeout(resolve, 1_000));
    await proxy.restore();
    await expectConsumed(taken);
    await expect.poll(async () => (await consumer.health()).consuming, RESUMED).toBe(true);
  });

  test.each(['cut', 'freeze'] as const)('of kind %s: draining waits for the handler and is bounded', async (kind) => {
    queue = open();
    let started = 0;
    let release = (): void => {};
    const consumer = queue.consume(
      'verify',
      () =>
        new Promise((resolve) => {
          started += 1;
          release = resolve;
        }),
      { concurrency: 1 },
    );
    expect(await queue.hint('verify', newHint())).toBe('queued');
    await expect.poll(() => started, RESUMED).toBe(1);
    await proxy[kind]();
    setTimeout(() => release(), 500);
    const { ms, value } = await timed(consumer.drain(5_000));
    expect(value).toEqual({ drained: true });
    expect(ms).toBeGreaterThan(450);
    expect(ms).toBeLessThan(4_500);
  });

  test.each(['cut', 'freeze'] as const)('of kind %s: closing is bounded', async (kind) => {
    queue = open();
    queue.consume('verify', async () => {}, { concurrency: 1 });
    expect(await queue.hint('verify', newHint())).toBe('queued');
    await proxy[kind]();
    expect((await timed(queue.close())).ms).toBeLessThan(6_500);
  });

  test.each(['cut', 'freeze'] as const)(
    'of kind %s: an idle consumer drains without waiting out its grace',
    async (kind) => {
      queue = open();
      const consumer = queue.consume('verify', async () => {}, { concurrency: 1 });
      await expect.poll(async () => (await consumer.health()).consuming, RESUMED).toBe(true);
      await proxy[kind]();
      const { ms, value } = await timed(consumer.drain(20_000));
      expect(value).toEqual({ drained: true });
      expect(ms).toBeLessThan(4_500);
    },
  );
});

describe('Redis itself', () => {
  let redis: OwnRedis;
  let queue: HintQueue;
  beforeEach(async () => {
    redis = await startOwnRedis();
    queue = openHintQueue({ backend: 'redis', url: redis.url }, { onError: () => {} });
  });
  afterEach(async () => {
    redis.thaw();
    await queue.close();
    await redis.dispose();
  });

  async function expectResumed(taken: Set<string>): Promise<number> {
    const startedAt = performance.now();
    const hint = newHint();
    await expect.poll(async () => await queue.hint('execute', hint), { timeout: 5_000, interval: 20 }).toBe('queued');
    await expect.poll(() => taken.has(hint.run_id), { timeout: 8_000, interval: 20 }).toBe(true);
    return performance.now() - startedAt;
  }

  test('restarted empty while consuming: consumption resumes by itself within a few seconds', async () => {
    const taken = new Set<string>();
    const consumer = queue.consume('execute', async ({ run_id }) => void taken.add(run_id), { concurrency: 2 });
    await expectResumed(taken);
    await redis.kill();
    expect((await timed(queue.hint('execute', newHint()))).ms).toBeLessThan(50);
    await redis.start();
    expect(await expectResumed(taken)).toBeLessThan(5_000);
    await expect.poll(async () => (await consumer.health()).consuming, RESUMED).toBe(true);
  });

  test('flushed while consuming: the next hint is taken at once', async () => {
    const taken = new Set<string>();
    const consumer = queue.consume('execute', async ({ run_id }) => void taken.add(run_id), { concurrency: 2 });
    await expectResumed(taken);
    const client = new Redis(redis.url);
    for (let i = 0; i < 5; i++) {
      await client.flushall();
      expect(await expectResumed(taken)).toBeLessThan(5_500);
    }
    expect(await consumer.health()).toEqual({ consuming: true });
    client.disconnect();
  });

  test('flushed while a handler runs: the handler ends, and the next hint is taken', async () => {
    const taken = new Set<string>();
    let release = (): void => {};
    queue.consume(
      'execute',
      async ({ run_id }) => {
        taken.add(run_id);
        if (taken.size === 1) {
          await new Promise<void>((resolve) => {
            release = resolve;
          });
        }
      },
      { concurrency: 1 },
    );
    await queue.hint('execute', newHint());
    await expect.poll(() => taken.size, RESUMED).toBe(1);
    const client = new Redis(redis.url);
    await client.flushall();
    client.disconnect();
    release();
    expect(await expectResumed(taken)).toBeLessThan(6_000);
  });

  test('turned into a read-only replica: it is asked about once a second, not in a loop, and consumption resumes', async () => {
    const taken = new Set<string>();
    let release = (): void => {};
    queue.consume(
      'execute',
      async ({ run_id }) => {
        taken.add(run_id);
        if (taken.size > 1) return;
        await new Promise<void>((resolve) => {
          release = resolve;
        });
      },
      { concurrency: 1 },
    );
    await expect.poll(() => queue.hint('execute', newHint()), RESUMED).toBe('queued');
    await expect.poll(() => taken.size, RESUMED).toBe(1);
    const client = new Redis(redis.url);
    await client.replicaof('127.0.0.1', 1);
    expect(await queue.hint('execute', newHint())).toEqual({ kind: 'unavailable', reason: 'refused' });
    // A worker that has just worked fetches at once instead of waiting for a wake-up.
    release();
    await new Promise((resolve) => setTimeout(resolve, 500));
    await client.config('RESETSTAT');
    await new Promise((resolve) => setTimeout(resolve, 3_000));
    const stats = await client.info('commandstats');
    const asked = [...stats.matchAll(/cmdstat_(?:evalsha|bzpopmin):calls=(\d+),.*?rejected_calls=(\d+)/g)]
      .map(([, calls, rejected]) => Number(calls) + Number(rejected))
      .reduce((sum, n) => sum + n, 0);
    expect(asked).toBeGreaterThan(0);
    expect(asked).toBeLessThan(10);
    await client.replicaof('NO', 'ONE');
    expect(await expectResumed(taken)).toBeLessThan(8_000);
    client.disconnect();
  });

  test('stopped for a while (SIGSTOP): no storm of late hints afterwards', async () => {
    const taken = new Set<string>();
    queue.consume('execute', async ({ run_id }) => void taken.add(run_id), { concurrency: 2 });
    await expectResumed(taken);
    taken.clear();
    redis.freeze();
    for (let round = 0; round < 3; round++) {
      const results = await Promise.all(Array.from({ length: 1_000 }, () => timed(queue.hint('execute', newHint()))));
      for (const { ms, value } of results) {
        expect(value).not.toBe('queued');
        expect(ms).toBeLessThan(ONE_SECOND_MS);
      }
    }
    redis.thaw();
    await expectResumed(taken);
    await new Promise((resolve) => setTimeout(resolve, 1_000));
    // Only what had been written before the first deadline passed can still arrive.
    expect(taken.size).toBeLessThanOrEqual(257);
  });
});
