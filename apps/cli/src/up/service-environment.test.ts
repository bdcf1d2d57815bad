import { describe, expect, test } from 'vitest';
import { FLEET, type FleetSettings, serviceEnvironment } from './service-environment.ts';

const SETTINGS: FleetSettings = {
  service_urls: {
    api: 'postgres://cs_api@db/app',
    preflight: 'postgres://cs_preflight@db/app',
    executor: 'postgres://cs_executor@db/app',
    verifier: 'postgres://cs_verifier@db/app',
    reconciler: 'postgres://cs_reconciler@db/app',
  },
  redis_url: 'redis://cache:6379',
  queue_prefix: 'counterstamp_abc',
  sandbox_url: 'http://127.0.0.1:4010',
  read_key: 'rk',
  write_key: 'sk',
  profile: 'fast',
  origin: 'http://localhost:8080',
  keys: { installation_key: 'private-1', checkpoint_key: 'private-2', data_key: 'sealing', trusted_keys: 'public' },
};
const BASE = {
  PATH: '/bin',
  DATABASE_URL: 'postgres://owner:pw@db/app',
  COUNTERSTAMP_SECRET: 'a secret of the owner',
  COUNTERSTAMP_PAYMENTS_WRITE_KEY: 'from outside',
  COUNTERSTAMP_CREDITS_WRITE_KEY: 'from outside',
  COUNTERSTAMP_EXECUTOR_DATABASE_URL: 'postgres://other@db/app',
  COUNTERSTAMP_CALL_DEADLINE_MS: '1500',
  LOG_LEVEL: '',
};

describe.each(FLEET)('the environment of %s', (service) => {
  const env = serviceEnvironment(service, BASE, SETTINGS, 4711);

  test('holds its own login and nobody else’s, the owner’s least of all', () => {
    const text = JSON.stringify(env);
    expect(env[`COUNTERSTAMP_${service.toUpperCase()}_DATABASE_URL`]).toBe(SETTINGS.service_urls[service]);
    expect(text.match(/postgres:/g)).toHaveLength(1);
    expect(text).not.toContain('owner');
  });

  test('holds the keys that write only if it is the executor', () => {
    expect(env.COUNTERSTAMP_PAYMENTS_WRITE_KEY).toBe(service === 'executor' ? 'sk' : undefined);
    expect(env.COUNTERSTAMP_CREDITS_WRITE_KEY).toBe(service === 'executor' ? 'sk' : undefined);
  });

  test('holds the private keys that are its own, and no other', () => {
    expect(env.COUNTERSTAMP_INSTALLATION_KEY).toBe(service === 'api' ? 'private-1' : undefined);
    expect(env.COUNTERSTAMP_CHECKPOINT_KEY).toBe(service === 'reconciler' ? 'private-2' : undefined);
    expect(env.COUNTERSTAMP_TRUSTED_KEYS).toBe(['api', 'executor'].includes(service) ? 'public' : undefined);
  });

  test('passes durations through, and fills what is empty', () => {
    expect(env).toMatchObject({
      PATH: '/bin',
      COUNTERSTAMP_CALL_DEADLINE_MS: '1500',
      COUNTERSTAMP_DEV: '1',
      COUNTERSTAMP_PROFILE: 'fast',
      COUNTERSTAMP_HTTP_PORT: '4711',
      COUNTERSTAMP_HTTP_HOST: '127.0.0.1',
      LOG_LEVEL: 'info',
      REDIS_URL: 'redis://cache:6379',
      COUNTERSTAMP_QUEUE_PREFIX: 'counterstamp_abc',
    });
  });
});

test('without Redis no service is told of one', () => {
  const env = serviceEnvironment('verifier', { REDIS_URL: '' }, { ...SETTINGS, redis_url: undefined }, 1);
  expect(env).not.toHaveProperty('REDIS_URL');
});

test('only the api may be asked to listen to the world', () => {
  const base = { COUNTERSTAMP_HTTP_HOST: '0.0.0.0' };
  expect(serviceEnvironment('api', base, SETTINGS, 1).COUNTERSTAMP_HTTP_HOST).toBe('0.0.0.0');
  expect(serviceEnvironment('executor', base, SETTINGS, 1).COUNTERSTAMP_HTTP_HOST).toBe('127.0.0.1');
});
