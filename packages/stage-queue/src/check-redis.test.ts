import { afterEach, expect, test } from 'vitest';
import { redisUrl } from '../../../testing/services.ts';
import { freePort, type OwnRedis, startOwnRedis } from '../testing/own-redis.ts';
import { judgeInfo } from './check-redis.ts';
import { checkRedis } from './index.ts';

let redis: OwnRedis | undefined;
afterEach(async () => {
  redis?.thaw();
  await redis?.dispose();
  redis = undefined;
});

test('a Redis that keeps everything is accepted', async () => {
  expect(await checkRedis(await redisUrl())).toMatchObject({ kind: 'ok', flavour: 'redis' });
});

test('a Redis that evicts is refused with the command that repairs it', async () => {
  redis = await startOwnRedis('--maxmemory-policy', 'allkeys-lru');
  const check = await checkRedis(redis.url);
  expect(check).toEqual({
    kind: 'refused',
    code: 'queue.redis_evicts',
    message:
      `Redis at 127.0.0.1:${redis.port} has maxmemory-policy allkeys-lru and may throw away parts of a queue. ` +
      'Run "redis-cli CONFIG SET maxmemory-policy noeviction" and put "maxmemory-policy noeviction" into redis.conf.',
  });
});

test('an unreachable Redis is refused quickly and by name', async () => {
  const port = await freePort();
  expect(await checkRedis(`redis://127.0.0.1:${port}`)).toEqual({
    kind: 'refused',
    code: 'queue.redis_unreachable',
    message: `Redis at 127.0.0.1:${port} cannot be used: connect ECONNREFUSED 127.0.0.1:${port}. Start it, or correct host, port and password in the Redis URL.`,
  });
});

test('a Redis that accepts and never answers is refused after 3 s', async () => {
  redis = await startOwnRedis();
  redis.freeze();
  const startedAt = performance.now();
  expect(await checkRedis(redis.url)).toMatchObject({ kind: 'refused', code: 'queue.redis_unreachable' });
  expect(performance.now() - startedAt).toBeLessThan(3_500);
});

test('a wrong password is named as such and not repeated', async () => {
  redis = await startOwnRedis('--requirepass', 'correct-horse');
  const wrong = await checkRedis(redis.url.replace('redis://', 'redis://:battery-staple@'));
  expect(wrong).toMatchObject({ kind: 'refused', code: 'queue.redis_unreachable' });
  expect(JSON.stringify(wrong)).toMatch(/WRONGPASS/);
  expect(JSON.stringify(wrong)).not.toContain('battery-staple');
  expect(await checkRedis(redis.url)).toMatchObject({ kind: 'refused', code: 'queue.redis_unreachable' });
  expect(await checkRedis(redis.url.replace('redis://', 'redis://:correct-horse@'))).toMatchObject({ kind: 'ok' });
});

test.each(['', 'http://localhost', 'redis://', 'localhost:6379'])(
  'a URL like %j is refused without a connection attempt to elsewhere',
  async (url) => {
    expect(await checkRedis(url)).toMatchObject({ kind: 'refused', code: 'queue.redis_unreachable' });
  },
);

test.each([
  ['6.0.16', 'queue.redis_too_old'],
  ['5.0.7', 'queue.redis_too_old'],
  ['6.2.0', 'ok'],
  ['7.0.15', 'ok'],
  ['10.1.0', 'ok'],
])('version %s is %s', (version, expected) => {
  const check = judgeInfo(`# Server\r\nredis_version:${version}\r\nmaxmemory_policy:noeviction\r\n`, 'here:6379');
  expect(check.kind === 'ok' ? 'ok' : check.code).toBe(expected);
});

test('Valkey is known by its own version', () => {
  expect(
    judgeInfo(
      'redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:8.1.0\r\nmaxmemory_policy:noeviction',
      'here:6379',
    ),
  ).toEqual({
    kind: 'ok',
    version: '8.1.0',
    flavour: 'valkey',
  });
});
