import { randomUUID } from 'node:crypto';
import { Queue } from 'bullmq';
import { Redis } from 'ioredis';
import { Client } from 'pg';
import { afterAll, afterEach, beforeAll, describe, expect, test, vi } from 'vitest';
import { redisUrl, type TestDatabase, testDatabase } from '../../../testing/services.ts';
import { type OwnRedis, startOwnRedis } from '../testing/own-redis.ts';
import { type Consumer, type HintQueue, migrateQueue, openHintQueue, type QueueSettings, STAGES } from './index.ts';
import { queuePrefix } from './redis-backend.ts';

/** Milliseconds within which a hint must arrive; it takes a few. */
const SOON = { timeout: 5_000, interval: 10 };

const NO_JSON = '{{{';

interface Lab {
  settings: QueueSettings;
  /** Puts a job on a queue that no `hint` would put there. */
  forge(stage: string, jobId: string, data: string): Promise<void>;
  /** Jobs that the backend keeps for a stage, in whatever state. */
  kept(stage: string): Promise<number>;
  /** Forgets every job. */
  clear(): Promise<void>;
  dispose(): Promise<void>;
}

async function redisLab(url: string): Promise<Lab> {
  const prefix = `test-${randomUUID()}`;
  const client = new Redis(url, { maxRetriesPerRequest: null });
  return {
    settings: { backend: 'redis', url, prefix },
    forge: async (stage, jobId, data) => {
      const queue = new Queue(stage, { connection: client, prefix: queuePrefix(prefix, stage) });
      await queue.pause();
      await queue.add(stage, {}, { jobId });
      await client.hset(`${queuePrefix(prefix, stage)}:${stage}:${jobId}`, 'data', data);
      await queue.resume();
      await queue.close();
    },
    kept: async (stage) => {
      const keys = await client.keys(`${queuePrefix(prefix, stage)}:${stage}:${stage}-*`);
      return keys.filter((key) => !key.endsWith(':lock')).length;
    },
    clear: async () => {
      const keys = await client.keys(`{${prefix}:*`);
      for (const key of keys) await client.del(key); // One at a time: a cluster refuses keys of two slots in one command.
    },
    dispose: async () => {
      client.disconnect();
    },
  };
}

/** A cluster of one node with every slot: it refuses a command or script whose keys lie in two slots (CROSSSLOT). */
async function startCluster(): Promise<OwnRedis> {
  const redis = await startOwnRedis('--cluster-enabled', 'yes');
  const client = new Redis(redis.url, { maxRetriesPerRequest: null });
  await client.cluster('ADDSLOTSRANGE', 0, 16_383);
  await vi.waitFor(async () => expect(await client.cluster('INFO')).toContain('cluster_state:ok'), SOON);
  client.disconnect();
  return redis;
}

async function clusterLab(): Promise<Lab> {
  const redis = await startCluster();
  const lab = await redisLab(redis.url);
  return {
    ...lab,
    dispose: async () => {
      await lab.dispose();
      await redis.dispose();
    },
  };
}

async function postgresLab(version: 18 | 15): Promise<Lab> {
  const database: TestDatabase = await testDatabase({
    version,
    name: 'stage-queue',
    prepare: async (url) => {
      await migrateQueue(url, { grantTo: [] });
    },
  });
  const client = new Client({ connectionString: database.url, options: '-c search_path=bullmq' });
  await client.connect();
  return {
    settings: { backend: 'postgres', url: database.url },
    forge: async (stage, jobId, data) => {
      // The column is jsonb: data that is not JSON cannot exist here, a JSON string stands for it.
      const json = data === NO_JSON ? JSON.stringify(data) : data;
      await client.query(
        `select add_job($1, $2, $1, $3::jsonb, '{}'::jsonb, 0, 0, $4, 1, null, null, null, null, null, false)`,
        [stage, jobId, json, Date.now()],
      );
    },
    kept: async (stage) => {
      const { rows } = await client.query<{ n: number }>('select count(*)::int as n from job where queue = $1', [
        stage,
      ]);
      return rows[0]?.n ?? 0;
    },
    clear: async () => {
      await client.query('delete from job');
    },
    dispose: async () => {
      await client.end();
      await database.drop();
    },
  };
}

const LABS: [string, () => Promise<Lab>][] = [
  ['redis', async () => redisLab(await redisUrl())],
  ['a redis cluster of one node', clusterLab],
  ['postgres 18', () => postgresLab(18)],
  ['postgres 15', () => postgresLab(15)],
];

describe.each(LABS)('hints on %s', (_name, openLab) => {
  let lab: Lab;
  let queues: HintQueue[] = [];
  let reports: { message: string; where: string }[] = [];

  beforeAll(async () => {
    lab = await openLab();
  });
  afterAll(() => lab.dispose());
  afterEach(async () => {
    await Promise.all(queues.map((queue) => queue.close()));
    queues = [];
    reports = [];
    await lab.clear();
  });

  function open(): HintQueue {
    const queue = openHintQueue(lab.settings, {
      onError: (error, where) => reports.push({ message: error.message, where }),
    });
    queues.push(queue);
    return queue;
  }
  const newHint = () => ({ run_id: `run_${randomUUID()}`, revision: 1 });

  test('a hint reaches the consumer of its stage and of no other', async () => {
    const queue = open();
    const taken: string[] = [];
    for (const stage of STAGES) {
      queue.consume(stage, async ({ run_id, revision }) => void taken.push(`${stage} ${run_id} ${revision}`), {
        concurrency: 1,
      });
    }
    const hints = STAGES.map((stage, i) => ({ stage, hint: { run_id: `run_${randomUUID()}`, revision: i + 1 } }));
    for (const { stage, hint } of hints) expect(await queue.hint(stage, hint)).toBe('queued');
    await expect
      .poll(() => taken.toSorted(), SOON)
      .toEqual(hints.map(({ stage, hint }) => `${stage} ${hint.run_id} ${hint.revision}`).toSorted());
    await expect.poll(() => lab.kept('execute'), SOON).toBe(0);
    expect(reports).toEqual([]);
  });

  test('a hint sent before anybody consumes is taken later', async () => {
    const hint = newHint();
    expect(await open().hint('verify', hint)).toBe('queued');
    const taken: unknown[] = [];
    open().consume('verify', async (got) => void taken.push(got), { concurrency: 1 });
    await expect.poll(() => taken, SOON).toEqual([hint]);
  });

  test('the same hint is one job while it waits, and can be sent again after it ended', async () => {
    const queue = open();
    const hint = newHint();
    for (let i = 0; i < 5; i++) expect(await queue.hint('collect', hint)).toBe('queued');
    const taken: unknown[] = [];
    queue.consume('collect', async (got) => void taken.push(got), { concurrency: 4 });
    await expect.poll(() => taken.length, SOON).toBe(1);
    await expect.poll(() => lab.kept('collect'), SOON).toBe(0);
    expect(await queue.hint('collect', hint)).toBe('queued');
    await expect.poll(() => taken.length, SOON).toBe(2);
  });

  test('the same run at another revision is another hint', async () => {
    const queue = open();
    const hint = newHint();
    const taken: number[] = [];
    queue.consume('propose', async ({ revision }) => void taken.push(revision), { concurrency: 1 });
    await queue.hint('propose', hint);
    await queue.hint('propose', { ...hint, revision: 2 });
    await expect.poll(() => taken.toSorted((a, b) => a - b), SOON).toEqual([1, 2]);
  });

  test('hints of a lower lane are taken before those of a higher one, and within a lane as they came', async () => {
    const queue = open();
    const { run_id } = newHint();
    const sent = ([4, 2, 0, 4, 1, 0, 3, 2] as const).map((lane, i) => ({ lane, revision: i + 1 }));
    for (const { lane, revision } of sent)
      expect(await queue.hint('verify', { run_id, revision }, lane)).toBe('queued');
    const taken: number[] = [];
    queue.consume('verify', async ({ revision }) => void taken.push(revision), { concurrency: 1 });
    await expect.poll(() => taken, SOON).toEqual([3, 6, 5, 2, 8, 7, 1, 4]);
    await expect.poll(() => lab.kept('verify'), SOON).toBe(0);
  });

  test('the backlog of a stage has what waits and what is worked on, and the age of the oldest hint whatever its lane', async () => {
    const queue = open();
    const begun = Date.now();
    expect(await queue.hint('verify', newHint(), 4)).toBe('queued');
    const oldestSent = Date.now();
    await expect.poll(() => Date.now() - oldestSent, SOON).toBeGreaterThan(200);
    for (const lane of [4, 1, 0, 2, 1] as const) expect(await queue.hint('verify', newHint(), lane)).toBe('queued');
    const all = await queue.backlog();
    const verify = all.find(({ stage }) => stage === 'verify');
    expect(verify).toMatchObject({ waiting: 6, active: 0 });
    expect(verify?.oldest_age_ms).toBeGreaterThan(200);
    expect(verify?.oldest_age_ms).toBeLessThanOrEqual(Date.now() - begun);
    expect(all.find(({ stage }) => stage === 'execute')).toEqual({
      stage: 'execute',
      waiting: 0,
      active: 0,
      oldest_age_ms: 0,
    });
    const ends: (() => void)[] = [];
    queue.consume('verify', () => new Promise((resolve) => void ends.push(resolve)), { concurrency: 1 });
    await expect
      .poll(async () => (await queue.backlog()).find(({ stage }) => stage === 'verify'), SOON)
      .toMatchObject({ waiting: 5, active: 1 });
    for (const end of ends) end();
  });

  test('the same hint in another lane is the job that waits already', async () => {
    const queue = open();
    const hint = newHint();
    expect(await queue.hint('collect', hint, 3)).toBe('queued');
    expect(await queue.hint('collect', hint, 0)).toBe('queued');
    expect(await lab.kept('collect')).toBe(1);
  });

  test('a handler that throws is reported, its job is removed and never retried', async () => {
    const queue = open();
    let calls = 0;
    queue.consume(
      'reconcile',
      async () => {
        calls += 1;
        throw new Error('the provider is on fire');
      },
      { concurrency: 1 },
    );
    const hint = newHint();
    await queue.hint('reconcile', hint);
    await expect
      .poll(() => reports, SOON)
      .toEqual([{ message: 'the provider is on fire', where: 'reconcile.handler' }]);
    await expect.poll(() => lab.kept('reconcile'), SOON).toBe(0);
    expect(calls).toBe(1);
    expect(await queue.hint('reconcile', hint)).toBe('queued');
    await expect.poll(() => calls, SOON).toBe(2);
  });

  test('no more handlers run at a time than the concurrency allows, and as many as it allows', async () => {
    const queue = open();
    let running = 0;
    let most = 0;
    let ended = 0;
    queue.consume(
      'preflight',
      async () => {
        running += 1;
        most = Math.max(most, running);
        await new Promise((resolve) => setTimeout(resolve, 50));
        running -= 1;
        ended += 1;
      },
      { concurrency: 3 },
    );
    for (let i = 0; i < 12; i++) await queue.hint('preflight', newHint());
    await expect.poll(() => ended, SOON).toBe(12);
    expect(most).toBe(3);
  });

  test.each([
    ['no JSON', 'execute-1', NO_JSON],
    ['null', 'execute-2', 'null'],
    ['a foreign field', 'execute-3', JSON.stringify({ ...newHint(), amount: 5 })],
    ['a revision of text', 'execute-4', JSON.stringify({ ...newHint(), revision: '1' })],
    ['a run id that is none', 'execute-5', JSON.stringify({ run_id: "run_'; drop table run", revision: 1 })],
  ])('a job with %s is reported and removed, and the handler not called', async (_what, jobId, data) => {
    await lab.forge('execute', jobId, data);
    const queue = open();
    let calls = 0;
    queue.consume(
      'execute',
      async () => {
        calls += 1;
      },
      { concurrency: 1 },
    );
    await expect.poll(() => reports.map(({ where }) => where), SOON).toEqual(['execute.malformed_hint']);
    await expect.poll(() => lab.kept('execute'), SOON).toBe(0);
    expect(calls).toBe(0);
    // The consumer is none the worse for it.
    await queue.hint('execute', newHint());
    await expect.poll(() => calls, SOON).toBe(1);
  });

  test('a malformed hint does not leave this process', async () => {
    const queue = open();
    expect(await queue.hint('execute', { run_id: 'run_1', revision: 1 })).toEqual({
      kind: 'unavailable',
      reason: 'malformed',
    });
    expect(await queue.hint('execute', { ...newHint(), revision: 0 })).toEqual({
      kind: 'unavailable',
      reason: 'malformed',
    });
    expect(await lab.kept('execute')).toBe(0);
  });

  test('draining lets the running handler end, takes nothing more and leaves the rest to others', async () => {
    const queue = open();
    const taken: number[] = [];
    let release = (): void => {};
    const consumer = queue.consume(
      'verify',
      async ({ revision }) => {
        taken.push(revision);
        await new Promise<void>((resolve) => {
          release = resolve;
        });
      },
      { concurrency: 1 },
    );
    const { run_id } = newHint();
    for (const revision of [1, 2, 3]) await queue.hint('verify', { run_id, revision });
    await expect.poll(() => taken, SOON).toEqual([1]);
    const draining = consumer.drain(10_000);
    expect(await consumer.health()).toMatchObject({ consuming: false });
    setTimeout(() => release(), 300);
    expect(await draining).toEqual({ drained: true });
    expect(taken).toEqual([1]);
    expect(await lab.kept('verify')).toBe(2);

    const rest: number[] = [];
    open().consume('verify', async ({ revision }) => void rest.push(revision), { concurrency: 1 });
    await expect.poll(() => rest, SOON).toEqual([2, 3]);
  });

  test('draining an idle consumer is quick', async () => {
    const queue = open();
    const consumer = queue.consume('verify', async () => {}, { concurrency: 1 });
    await expect.poll(async () => (await consumer.health()).consuming, SOON).toBe(true);
    const startedAt = performance.now();
    expect(await consumer.drain(20_000)).toEqual({ drained: true });
    expect(performance.now() - startedAt).toBeLessThan(1_500);
  });

  test('draining gives a handler that hangs no more than the grace', async () => {
    const queue = open();
    let taken = 0;
    const consumer = queue.consume(
      'verify',
      () =>
        new Promise(() => {
          taken += 1;
        }),
      { concurrency: 1 },
    );
    await queue.hint('verify', newHint());
    await expect.poll(() => taken, SOON).toBe(1);
    const startedAt = performance.now();
    expect(await consumer.drain(300)).toEqual({ drained: false });
    expect(performance.now() - startedAt).toBeLessThan(2_500);
    // Its job stalls and is given to another consumer, once the lock is over: here only the queue is cleared.
    await expect.poll(() => lab.kept('verify'), SOON).toBe(1);
  });

  test('a job whose process died is run again on other stages, and dropped without a call on execute', async () => {
    const dying = open();
    const consumers: Consumer[] = [];
    let taken = 0;
    for (const stage of ['verify', 'execute'] as const) {
      consumers.push(
        dying.consume(
          stage,
          () =>
            new Promise(() => {
              taken += 1;
            }),
          { concurrency: 2, lockMs: 500 },
        ),
      );
      await dying.hint(stage, newHint());
    }
    await expect.poll(() => taken, SOON).toBeGreaterThanOrEqual(2);
    await Promise.all(consumers.map((consumer) => consumer.drain(0)));

    const calls: string[] = [];
    const heir = open();
    heir.consume('verify', async () => void calls.push('verify'), { concurrency: 1, lockMs: 500 });
    heir.consume('execute', async () => void calls.push('execute'), { concurrency: 1, lockMs: 500 });
    await expect.poll(() => lab.kept('execute'), { timeout: 15_000 }).toBe(0);
    await expect.poll(() => lab.kept('verify'), { timeout: 15_000 }).toBe(0);
    expect(calls.filter((stage) => stage === 'execute')).toEqual([]);
    expect(calls).toContain('verify');
  });

  test('health tells consuming from waiting hints that nobody takes', async () => {
    let now = 0;
    const queue = openHintQueue(lab.settings, {
      onError: (error, where) => reports.push({ message: error.message, where }),
      timers: {
        monotonicMs: () => now,
        wallMs: () => now,
        after: (ms, task) => {
          const timer = setTimeout(task, ms);
          return () => clearTimeout(timer);
        },
      },
    });
    queues.push(queue);
    let release = (): void => {};
    let taken = 0;
    const consumer = queue.consume(
      'propose',
      () => {
        taken += 1;
        return new Promise((resolve) => {
          release = resolve;
        });
      },
      { concurrency: 1 },
    );
    await expect.poll(() => consumer.health(), SOON).toEqual({ consuming: true });
    await queue.hint('propose', newHint());
    await expect.poll(() => taken, SOON).toBe(1);
    now = 100_000;
    expect(await consumer.health()).toEqual({ consuming: true }); // Busy, and nothing waits.
    // In whatever lane it waits.
    await queue.hint('propose', newHint(), 2);
    expect(await consumer.health()).toEqual({ consuming: true });
    now += 59_000; // Its only slot may be at a long call.
    expect(await consumer.health()).toEqual({ consuming: true });
    now += 2_000;
    expect(await consumer.health()).toEqual({
      consuming: false,
      why: '1 hints wait and none was taken for 61 s, every slot is busy',
    });
    release();
    await expect.poll(() => taken, SOON).toBe(2);
    expect(await consumer.health()).toEqual({ consuming: true });
    release();
  });

  test('ping answers, and says so after closing', async () => {
    const queue = open();
    expect(await queue.ping()).toMatchObject({ kind: 'ok' });
    await queue.close();
    await queue.close();
    expect(await queue.ping()).toEqual({ kind: 'unavailable', reason: 'closed' });
    expect(await queue.hint('verify', newHint())).toEqual({ kind: 'unavailable', reason: 'closed' });
  });
});

test('the keys of one queue lie in one slot of a Redis Cluster, those of another queue in another', async () => {
  const redis = await startCluster();
  const client = new Redis(redis.url, { maxRetriesPerRequest: null });
  const prefix = 'shop-north';
  const queue = openHintQueue({ backend: 'redis', url: redis.url, prefix }, { onError: () => {} });
  try {
    // Work under way leaves the most kinds of keys: a lock, the job, the list of active ones, the ones that wait in either way.
    let taken = 0;
    for (const stage of STAGES) {
      const never = () =>
        new Promise<void>(() => {
          taken += 1;
        });
      queue.consume(stage, never, { concurrency: 1 });
      for (const lane of [0, 0, 1] as const)
        expect(await queue.hint(stage, { run_id: `run_${randomUUID()}`, revision: 1 }, lane)).toBe('queued');
    }
    await expect.poll(() => taken, SOON).toBe(STAGES.length);
    const slots = await Promise.all(
      STAGES.map(async (stage) => {
        const keys = await client.keys(`{${prefix}:${stage}}*`);
        expect(keys.map((key) => key.split(':')[3])).toEqual(
          expect.arrayContaining(['wait', 'prioritized', 'active', 'meta']),
        );
        return new Set(await Promise.all(keys.map((key) => client.cluster('KEYSLOT', key))));
      }),
    );
    expect(slots.map(({ size }) => size)).toEqual(STAGES.map(() => 1));
    expect(new Set(slots.flatMap((of) => [...of])).size).toBe(STAGES.length);
    // None is left out: every key of this installation is one of these.
    expect((await client.keys('*')).filter((key) => !key.startsWith(`{${prefix}:`))).toEqual([]);
  } finally {
    await queue.close();
    client.disconnect();
    await redis.dispose();
  }
});
