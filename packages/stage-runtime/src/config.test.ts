import { PROFILES } from '@counterstamp/manifest-core';
import { describe, expect, test } from 'vitest';
import { z } from 'zod';
import { type Environment, parseServiceConfig } from './config.ts';
import { variable } from './variable.ts';

const OWN = z.object({ COUNTERSTAMP_SHOP_URL: variable.url('http:', 'https:'), COUNTERSTAMP_KEY: z.string().min(1) });
const SECRET = 'a-secret-of-at-least-16';
const BASE: Environment = {
  DATABASE_URL: 'postgres://owner:pw@db.test:5432/cs',
  COUNTERSTAMP_SECRET: SECRET,
  COUNTERSTAMP_SHOP_URL: 'http://shop.test',
  COUNTERSTAMP_KEY: 'rk_1',
  COUNTERSTAMP_DATA_KEY: Buffer.alloc(32, 1).toString('base64url'),
};
const parse = (change: Environment = {}) =>
  parseServiceConfig('executor', { ...BASE, ...change }, OWN, { http_port: 9465 });
function configOf(change: Environment = {}) {
  const result = parse(change);
  if (!result.ok) throw new Error(result.faults.join('\n'));
  return result.config;
}
function faultsOf(change: Environment) {
  const result = parse(change);
  if (result.ok) throw new Error('no fault');
  return result.faults;
}

describe('a correct environment', () => {
  test('gives the production profile and the service’s defaults', () => {
    expect(configOf()).toMatchObject({
      service: 'executor',
      profile: 'production',
      durations: PROFILES.production,
      development: false,
      http_host: '127.0.0.1',
      http_port: 9465,
      concurrency: { execute: 16 },
      database_connections: 5,
      log_level: 'info',
      own: { COUNTERSTAMP_SHOP_URL: 'http://shop.test', COUNTERSTAMP_KEY: 'rk_1' },
    });
    expect(configOf().failpoints.size).toBe(0);
  });

  test('derives the service’s own login from DATABASE_URL and the secret, the same every time, and shows neither', () => {
    const { database_url } = configOf();
    const url = new URL(database_url);
    expect([url.username, url.host, url.pathname]).toEqual(['cs_executor', 'db.test:5432', '/cs']);
    expect(database_url).toBe(configOf().database_url);
    expect(url.password.length).toBeGreaterThanOrEqual(32);
    expect(database_url).not.toContain(SECRET);
    expect(new URL(configOf({ COUNTERSTAMP_ROLE_PREFIX: 'other_' }).database_url).username).toBe('other_executor');
    expect(new URL(configOf({ COUNTERSTAMP_SECRET: `${SECRET}!` }).database_url).password).not.toBe(url.password);
  });

  test('takes the service’s own login when it is given', () => {
    const own = 'postgresql://me:pw@elsewhere.test/cs';
    expect(configOf({ COUNTERSTAMP_EXECUTOR_DATABASE_URL: own }).database_url).toBe(own);
    expect(
      configOf({ COUNTERSTAMP_EXECUTOR_DATABASE_URL: own, DATABASE_URL: undefined, COUNTERSTAMP_SECRET: '' })
        .database_url,
    ).toBe(own);
  });

  test('queues on Postgres under the service’s own login, or on Redis when one is named', () => {
    const config = configOf();
    expect(config.queue).toEqual({ backend: 'postgres', url: config.database_url });
    expect(configOf({ REDIS_URL: 'redis://r.test' }).queue).toEqual({ backend: 'redis', url: 'redis://r.test' });
    expect(configOf({ REDIS_URL: 'rediss://r.test', COUNTERSTAMP_QUEUE_PREFIX: 'a-b_1' }).queue).toEqual({
      backend: 'redis',
      url: 'rediss://r.test',
      prefix: 'a-b_1',
    });
  });

  test('works on as many hints of a stage as that stage’s variable says, else the common one; of its own stages only', () => {
    const preflight = (change: Environment) => {
      const result = parseServiceConfig('preflight', { ...BASE, ...change }, OWN, { http_port: 9464 });
      if (!result.ok) throw new Error(result.faults.join('\n'));
      return result.config.concurrency;
    };
    expect(preflight({ COUNTERSTAMP_CONCURRENCY: '4', COUNTERSTAMP_CONCURRENCY_COLLECT: '8' })).toEqual({
      preflight: 4,
      collect: 8,
      propose: 4,
    });
    // One environment for all services is common: what is another's is not read, wrong or not.
    expect(configOf({ COUNTERSTAMP_CONCURRENCY_VERIFY: 'many', COUNTERSTAMP_CONCURRENCY_EXECUTE: '2' })).toMatchObject({
      concurrency: { execute: 2 },
    });
  });

  test.each([
    ['1', 5],
    ['51', 6],
    ['100', 10],
    ['1000', 20],
  ])('has connections to the database for its concurrency: with %s hints at a time, %i', (hints, connections) => {
    expect(configOf({ COUNTERSTAMP_CONCURRENCY_EXECUTE: hints }).database_connections).toBe(connections);
  });

  test('may change single durations of its profile', () => {
    const { durations, profile } = configOf({ COUNTERSTAMP_PROFILE: 'fast', COUNTERSTAMP_CALL_DEADLINE_MS: '1500' });
    expect(profile).toBe('fast');
    expect(durations).toEqual({ ...PROFILES.fast, call_deadline_ms: 1_500 });
    expect(PROFILES.fast.call_deadline_ms).toBe(2_000);
  });

  test('takes an empty variable for none', () => {
    expect(configOf({ REDIS_URL: '', LOG_LEVEL: '', COUNTERSTAMP_HTTP_PORT: '' })).toMatchObject({
      http_port: 9465,
      log_level: 'info',
    });
  });

  test('seals personal data under the first of its data keys, and only in development under none', () => {
    const [first, second] = [1, 2].map((byte) => Buffer.alloc(32, byte).toString('base64url'));
    const both = configOf({ COUNTERSTAMP_DATA_KEY: `${second},${first}` }).sealing?.key_ids ?? [];
    expect(both).toHaveLength(2);
    expect(configOf().sealing?.key_ids).toEqual([both[1]]);
    expect(configOf({ COUNTERSTAMP_DATA_KEY: '', COUNTERSTAMP_DEV: '1' })).not.toHaveProperty('sealing');
  });

  test('may arm failpoints in development', () => {
    const config = configOf({ COUNTERSTAMP_DEV: '1', COUNTERSTAMP_FAILPOINTS: 'stage.loaded=kill' });
    expect(config.development).toBe(true);
    expect([...config.failpoints]).toEqual([['stage.loaded', { kind: 'kill' }]]);
  });
});

describe('a fault', () => {
  test.each<[string, Environment, string]>([
    ['a database of another kind', { DATABASE_URL: 'mysql://x' }, 'DATABASE_URL: must be a URL'],
    ['no database', { DATABASE_URL: undefined }, 'COUNTERSTAMP_EXECUTOR_DATABASE_URL: is required'],
    [
      'no secret to derive a login from',
      { COUNTERSTAMP_SECRET: undefined },
      'COUNTERSTAMP_EXECUTOR_DATABASE_URL: is required',
    ],
    [
      'a login that is no URL',
      { COUNTERSTAMP_EXECUTOR_DATABASE_URL: 'x' },
      'COUNTERSTAMP_EXECUTOR_DATABASE_URL: must be a URL',
    ],
    ['no data key', { COUNTERSTAMP_DATA_KEY: undefined }, 'COUNTERSTAMP_DATA_KEY: is required'],
    ['a data key of another length', { COUNTERSTAMP_DATA_KEY: 'c2hvcnQ' }, 'COUNTERSTAMP_DATA_KEY: must be 32 random'],
    ['a short secret', { COUNTERSTAMP_SECRET: 'short' }, 'COUNTERSTAMP_SECRET: must have at least 16'],
    ['a queue of another kind', { REDIS_URL: 'http://x' }, 'REDIS_URL: must be a URL'],
    ['a role prefix that SQL would have to quote', { COUNTERSTAMP_ROLE_PREFIX: 'A-b' }, 'COUNTERSTAMP_ROLE_PREFIX: '],
    ['a queue prefix with a colon', { COUNTERSTAMP_QUEUE_PREFIX: 'a:b' }, 'COUNTERSTAMP_QUEUE_PREFIX: '],
    ['an unknown profile', { COUNTERSTAMP_PROFILE: 'slow' }, 'COUNTERSTAMP_PROFILE: '],
    ['a flag in words', { COUNTERSTAMP_DEV: 'true' }, 'COUNTERSTAMP_DEV: must be 0 or 1'],
    ['a port beyond the last', { COUNTERSTAMP_HTTP_PORT: '65536' }, 'COUNTERSTAMP_HTTP_PORT: must be between'],
    ['a port below the first', { COUNTERSTAMP_HTTP_PORT: '-1' }, 'COUNTERSTAMP_HTTP_PORT: must be a whole number'],
    ['no slot to work in', { COUNTERSTAMP_CONCURRENCY: '0' }, 'COUNTERSTAMP_CONCURRENCY: must be between 1'],
    [
      'no slot of one stage',
      { COUNTERSTAMP_CONCURRENCY_EXECUTE: '0' },
      'COUNTERSTAMP_CONCURRENCY_EXECUTE: must be between 1',
    ],
    ['a fraction of a slot', { COUNTERSTAMP_CONCURRENCY: '1.5' }, 'COUNTERSTAMP_CONCURRENCY: must be a whole number'],
    ['an unknown log level', { LOG_LEVEL: 'loud' }, 'LOG_LEVEL: '],
    [
      'a duration in words',
      { COUNTERSTAMP_CALL_DEADLINE_MS: '20s' },
      'COUNTERSTAMP_CALL_DEADLINE_MS: must be a whole number',
    ],
    ['a duration of nothing', { COUNTERSTAMP_PAUSE_MS: '0' }, 'pause_ms must be'],
    ['ε + 1 s at D', { COUNTERSTAMP_EPSILON_MS: '19000' }, 'epsilon_ms + 1000 (20000) must be below call_deadline_ms'],
    [
      'an unknown failpoint',
      { COUNTERSTAMP_DEV: '1', COUNTERSTAMP_FAILPOINTS: 'x=kill' },
      'COUNTERSTAMP_FAILPOINTS: there is no failpoint',
    ],
    ['a failpoint in production', { COUNTERSTAMP_FAILPOINTS: 'stage.loaded=kill' }, 'set COUNTERSTAMP_DEV=1'],
    ['a folder of failpoints in production', { COUNTERSTAMP_FAILPOINTS: '*=folder:/points' }, 'set COUNTERSTAMP_DEV=1'],
    ['a missing variable of the service', { COUNTERSTAMP_KEY: undefined }, 'COUNTERSTAMP_KEY: is required'],
    ['a wrong variable of the service', { COUNTERSTAMP_SHOP_URL: 'shop' }, 'COUNTERSTAMP_SHOP_URL: must be a URL'],
  ])('is named with its variable, and alone: %s', (_, change, expected) => {
    const faults = faultsOf(change);
    expect(faults).toHaveLength(1);
    expect(faults[0]).toContain(expected);
  });

  test('does not hide another: every problem is listed at once', () => {
    const faults = faultsOf({
      DATABASE_URL: undefined,
      LOG_LEVEL: 'loud',
      COUNTERSTAMP_DEV: 'yes',
      COUNTERSTAMP_CONCURRENCY: 'many',
      COUNTERSTAMP_CONCURRENCY_EXECUTE: '-1',
      COUNTERSTAMP_FAILPOINTS: 'x=kill',
      COUNTERSTAMP_SHOP_URL: 'shop',
      COUNTERSTAMP_KEY: undefined,
      COUNTERSTAMP_LOOK_MIN_MS: 'soon',
      COUNTERSTAMP_SWEEP_INTERVAL_MS: '10',
    });
    expect(faults.map((fault) => fault.split(/[: ]/)[0]).sort()).toEqual([
      'COUNTERSTAMP_CONCURRENCY',
      'COUNTERSTAMP_CONCURRENCY_EXECUTE',
      'COUNTERSTAMP_DEV',
      'COUNTERSTAMP_EXECUTOR_DATABASE_URL',
      'COUNTERSTAMP_FAILPOINTS',
      'COUNTERSTAMP_KEY',
      'COUNTERSTAMP_LOOK_MIN_MS',
      'COUNTERSTAMP_SHOP_URL',
      'LOG_LEVEL',
      'sweep_interval_ms',
    ]);
  });

  test('elsewhere does not change the profile that durations are judged by', () => {
    const fast = { COUNTERSTAMP_PROFILE: 'fast', COUNTERSTAMP_CALL_DEADLINE_MS: '1500' };
    expect(faultsOf({ ...fast, LOG_LEVEL: 'loud' })).toEqual([expect.stringContaining('LOG_LEVEL')]);
    expect(faultsOf({ COUNTERSTAMP_CALL_DEADLINE_MS: '1500' }).length).toBeGreaterThan(0);
  });

  test('is told without the value, which may be a secret', () => {
    const change = {
      DATABASE_URL: 'mysql://owner:hunter22@x',
      COUNTERSTAMP_SECRET: 'hunter22',
      REDIS_URL: 'http://:hunter22@x',
    };
    expect(faultsOf(change).join('\n')).not.toContain('hunter22');
  });
});

describe('a variable that a function of its own parses', () => {
  const parsed = variable.parsed((text) => {
    if (text === 'none') throw new RangeError('there is none');
    if (text === 'broken') throw new TypeError('a bug');
    return { length: text.length };
  });

  test('is what the function makes of it, or the sentence of its RangeError', () => {
    expect(parsed.parse('some')).toEqual({ length: 4 });
    expect(parsed.safeParse('none').error?.issues.map(({ message }) => message)).toEqual(['there is none']);
  });

  test('takes no other error for a fault of the environment', () => {
    expect(() => parsed.safeParse('broken')).toThrow(TypeError);
  });
});
