import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import { Queue } from 'bullmq';
import { Redis } from 'ioredis';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { type OwnRedis, startOwnRedis } from '../packages/stage-queue/testing/own-redis.ts';
import { type Fleet, poll } from '../testing/fleet.ts';
import { postgresUrl } from '../testing/services.ts';
import { FLEET_BACKENDS, testFleet } from '../testing/test-fleet.ts';
import { testInstallation } from '../testing/test-installation.ts';

describe('nothing-stuck when Redis is wiped or away', () => {
  let redis: OwnRedis;
  let fleet: Fleet;
  beforeAll(async () => {
    redis = await startOwnRedis();
    fleet = await testFleet('redis', redis.url);
  }, 90_000);
  afterAll(async () => {
    await fleet?.stop();
    await redis?.dispose();
  }, 30_000);

  test('flushing Redis again and again changes nothing but time: every run ends verified, once', async () => {
    const client = new Redis(redis.url, { maxRetriesPerRequest: null });
    let flushing = true;
    const flushes = (async () => {
      let count = 0;
      for (; flushing; count++) {
        await client.flushall();
        await new Promise((resolve) => setTimeout(resolve, 200));
      }
      return count;
    })();
    const runs = await Promise.all(
      Array.from({ length: 12 }, async () => {
        const seeded = await fleet.seed();
        const run_id = await fleet.request(seeded);
        await fleet.until(run_id, ['awaiting_approval'], 60_000);
        await fleet.approve(run_id);
        await fleet.until(run_id, ['completed'], 60_000);
        return seeded.payment_id;
      }),
    );
    flushing = false;
    expect(await flushes).toBeGreaterThan(2);
    await client.quit();
    for (const payment_id of runs) {
      expect(await fleet.effects(payment_id)).toHaveLength(1);
      expect(await fleet.ledger(payment_id)).toHaveLength(1);
    }
  }, 150_000);

  test('while Redis is down the api answers within its time, and the runs are carried on afterwards', async () => {
    const seeded = await fleet.seed();
    const waiting = await fleet.request(seeded);
    await fleet.until(waiting, ['awaiting_approval']);
    await redis.kill();
    const other = await fleet.seed();
    // The client itself gives up after 15 s; an answer at all is the point.
    const created = await fleet.request(other);
    await fleet.approve(waiting);
    expect((await fleet.requester.getRun(created)).state).toBe('queued');
    const ready = (await (await fetch(`${fleet.apiUrl}/readyz`)).json()) as { ready: boolean; queue: string };
    expect(ready).toMatchObject({ ready: true, queue: 'unavailable' });
    const executor = fleet.processes.find((started) => started.service === 'executor');
    await poll(
      async () => (await fetch(`http://127.0.0.1:${executor?.port}/readyz`)).status === 503,
      15_000,
      'a worker without its queue still calls itself ready',
    );
    await redis.start();
    await fleet.until(waiting, ['completed'], 60_000);
    await fleet.until(created, ['awaiting_approval'], 60_000);
    expect(await fleet.ledger(seeded.payment_id)).toHaveLength(1);
  }, 150_000);

  test('Redis killed under load and started again empty: every worker takes hints again within its bound, no process ended, every run ends verified, once', async () => {
    const workers = fleet.processes.filter((started) => started.service !== 'api');
    const takingHints = async () =>
      (await Promise.all(workers.map(({ port }) => fetch(`http://127.0.0.1:${port}/readyz`)))).every(({ ok }) => ok);
    const waiting = await Promise.all(
      Array.from({ length: 12 }, async () => {
        const seeded = await fleet.seed();
        const run_id = await fleet.request(seeded);
        await fleet.until(run_id, ['awaiting_approval'], 60_000);
        return { run_id, ...seeded };
      }),
    );
    // Half is on its way to its effect and half on its way to its approval when the queue and all that it held are gone.
    const others = await Promise.all(Array.from({ length: 12 }, () => fleet.seed()));
    const underWay = Promise.all([
      ...waiting.map(async ({ run_id }) => {
        await fleet.approve(run_id);
        return run_id;
      }),
      ...others.map(async (seeded) => {
        const run_id = await fleet.request(seeded);
        await fleet.approve(run_id);
        return run_id;
      }),
    ]);
    await redis.kill();
    await poll(async () => !(await takingHints()), 15_000, 'nobody noticed that Redis is gone');
    await redis.start();
    const backAt = performance.now();
    // The bound of docs/operations/recovery-times.md.
    await poll(takingHints, 10_000, 'not every worker takes hints again');
    console.log(`Redis back → every worker ready: ${Math.round(performance.now() - backAt)} ms`);
    const runs = await underWay;
    for (const run_id of runs) await fleet.until(run_id, ['completed'], 60_000);
    for (const { payment_id } of [...waiting, ...others]) {
      expect(await fleet.effects(payment_id)).toHaveLength(1);
      expect(await fleet.ledger(payment_id)).toHaveLength(1);
    }
    expect(fleet.processes.map(({ child }) => child.exitCode ?? child.signalCode)).toEqual(
      fleet.processes.map(() => null),
    );
  }, 150_000);

  test('a worker that takes no hints although Redis answers ends with 75 and says why; the next one goes on with its run', async () => {
    const verifier = fleet.processes.find((started) => started.service === 'verifier');
    if (verifier === undefined) throw new Error('no verifier');
    await fleet.end(verifier, 'SIGTERM');
    const doomed = await fleet.start('verifier', { COUNTERSTAMP_STUCK_MS: '1000' });
    // Somebody pauses the queue with a tool of BullMQ: it answers, and gives nothing to anybody.
    const client = new Redis(redis.url, { maxRetriesPerRequest: null });
    const [meta = ''] = await client.keys('*:verify:meta');
    const queue = new Queue('verify', { connection: client, prefix: meta.replace(/:verify:meta$/, '') });
    await queue.pause();
    const run_id = await fleet.request(await fleet.seed());
    await fleet.approve(run_id);
    await fleet.until(run_id, ['verifying']);
    expect(await doomed.ended).toBe(75);
    expect(await readFile(doomed.log, 'utf8')).toMatch(/verify: 1 hints wait and none was taken for \d+ s/);
    await queue.resume();
    await queue.close();
    client.disconnect();
    await fleet.start('verifier');
    await fleet.until(run_id, ['completed'], 60_000);
  }, 120_000);
});

describe.each(FLEET_BACKENDS)('ending a process, on the %s queue', (backend) => {
  let fleet: Fleet;
  beforeAll(async () => {
    fleet = await testFleet(backend);
  }, 90_000);
  afterAll(() => fleet?.stop(), 30_000);

  test.each(['SIGTERM', 'SIGINT'] as const)(
    '%s drains: the send under way ends with its outcome recorded, exit 0',
    async (signal) => {
      const seeded = await fleet.seed();
      await fleet.fault(seeded.payment_id, { kind: 'hang_after_accept', hold_ms: 1_000 });
      const run_id = await fleet.request(seeded);
      await fleet.approve(run_id);
      await fleet.until(run_id, ['executing']);
      const executor = fleet.processes.findLast((started) => started.service === 'executor');
      if (executor === undefined) throw new Error('no executor');
      expect(await fleet.end(executor, signal)).toBe(0);
      const run = await fleet.until(run_id, ['verifying', 'completed']);
      expect(run.attempts).toMatchObject([{ status: 'succeeded' }]);
      await fleet.start('executor');
    },
  );

  test('every service ends with exit 0 and frees its port', async () => {
    const ports = fleet.processes.filter((started) => started.child.exitCode === null).map((started) => started.port);
    const codes = await Promise.all(
      fleet.processes
        .filter((started) => started.child.exitCode === null)
        .map((started) => fleet.end(started, 'SIGTERM')),
    );
    expect(codes).toEqual(codes.map(() => 0));
    for (const port of ports) await expect(fetch(`http://127.0.0.1:${port}/healthz`)).rejects.toThrow();
  });
});

/** Runs a service that should refuse to start. @returns its exit code and all it said. */
async function refusedStart(service: string, env: Record<string, string>): Promise<{ code: number; text: string }> {
  const child = spawn(process.execPath, ['apps/cli/dist/main.js', 'service', service], {
    env: { PATH: process.env.PATH ?? '', ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let text = '';
  for (const stream of [child.stdout, child.stderr]) {
    stream.on('data', (data: Buffer) => {
      text += data.toString('utf8');
    });
  }
  const [code] = (await once(child, 'exit')) as [number];
  return { code, text };
}

test('a Redis that evicts, and a database that was not migrated, are refused with what to do', async () => {
  const systems = {
    COUNTERSTAMP_SHOP_URL: 'http://127.0.0.1:1',
    COUNTERSTAMP_PAYMENTS_URL: 'http://127.0.0.1:1',
    COUNTERSTAMP_PAYMENTS_READ_KEY: 'rk',
  };
  const own = {
    COUNTERSTAMP_VERIFIER_DATABASE_URL: await postgresUrl(18),
    COUNTERSTAMP_HTTP_PORT: '0',
    ...systems,
    ...testInstallation().env,
  };
  const evicting = await startOwnRedis('--maxmemory-policy', 'allkeys-lru');
  try {
    expect(await refusedStart('verifier', { ...own, REDIS_URL: evicting.url })).toMatchObject({
      code: 78,
      text: expect.stringContaining('noeviction'),
    });
  } finally {
    await evicting.dispose();
  }
  expect(await refusedStart('verifier', own)).toMatchObject({
    code: 78,
    text: expect.stringContaining('counterstamp migrate'),
  });
});

test('a wrong configuration: every problem at once, exit 78, no stack trace', async () => {
  const { code, text } = await refusedStart('executor', {
    REDIS_URL: 'http://nowhere',
    COUNTERSTAMP_CALL_DEADLINE_MS: '1000',
    COUNTERSTAMP_FAILPOINTS: 'stage.loaded=kill',
    LOG_LEVEL: 'loud',
  });
  expect(code).toBe(78);
  for (const name of [
    'REDIS_URL',
    'LOG_LEVEL',
    'COUNTERSTAMP_EXECUTOR_DATABASE_URL',
    'COUNTERSTAMP_PAYMENTS_WRITE_KEY',
    'COUNTERSTAMP_SHOP_URL',
    'epsilon_ms',
  ]) {
    expect(text, name).toContain(name);
  }
  expect(text).not.toMatch(/^\s+at /m);
});
