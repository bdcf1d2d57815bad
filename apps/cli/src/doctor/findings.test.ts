import { PROFILES } from '@counterstamp/manifest-core';
import type { RoleReport } from '@counterstamp/manifest-store';
import { describe, expect, test } from 'vitest';
import { testInstallation } from '../../../../testing/test-installation.ts';
import { configurationFindings, durationFindings } from './configuration.ts';
import { clockDifference, roleFinding } from './database.ts';
import { failed, findingsPage, ok, warning } from './finding.ts';
import { subjectOf } from './subject.ts';

const ENV = {
  DATABASE_URL: 'postgres://owner:hunter22@db.test/app',
  COUNTERSTAMP_SECRET: 'a-secret-of-at-least-16',
  COUNTERSTAMP_SHOP_URL: 'http://shop.test',
  COUNTERSTAMP_PAYMENTS_URL: 'http://pay.test',
  COUNTERSTAMP_PAYMENTS_READ_KEY: 'rk',
  COUNTERSTAMP_PAYMENTS_WRITE_KEY: 'sk',
  ...testInstallation().env,
};
const FLEET = {
  pid: 4711,
  started: '1',
  api_url: 'http://127.0.0.1:8080',
  owner_url: 'postgres://owner@127.0.0.1:5000/app',
  services: Object.fromEntries(
    ['api', 'preflight', 'executor', 'verifier', 'reconciler'].map((service) => [
      service,
      {
        ...ENV,
        DATABASE_URL: '',
        COUNTERSTAMP_SECRET: '',
        [`COUNTERSTAMP_${service.toUpperCase()}_DATABASE_URL`]: `postgres://cs_${service}@127.0.0.1:5000/app`,
        COUNTERSTAMP_PROFILE: 'fast',
      },
    ]),
  ),
};

describe('what is examined', () => {
  test('is the environment, as soon as it names a database', async () => {
    const subject = await subjectOf(ENV, FLEET, []);
    expect(subject).toMatchObject({ source: 'the environment', owner_url: ENV.DATABASE_URL, api_url: undefined });
    expect(subject.services.map(({ service, config }) => [service, config.ok])).toEqual([
      ['api', true],
      ['preflight', true],
      ['executor', true],
      ['verifier', true],
      ['reconciler', true],
    ]);
  });

  test('is the local fleet otherwise, each service with its own login', async () => {
    const subject = await subjectOf({ PATH: '/bin', COUNTERSTAMP_SECRET: 'of-another-installation' }, FLEET, [
      'executor',
    ]);
    expect(subject).toMatchObject({
      source: 'the local fleet of process 4711',
      owner_url: FLEET.owner_url,
      api_url: FLEET.api_url,
    });
    expect(subject.services).toHaveLength(1);
    expect(subject.services[0]?.connections?.database_url).toBe('postgres://cs_executor@127.0.0.1:5000/app');
  });

  test('is the local fleet too when the environment says nothing but that fleet’s database', async () => {
    expect((await subjectOf({ DATABASE_URL: FLEET.owner_url }, FLEET, [])).source).toContain('fleet');
    expect((await subjectOf({ DATABASE_URL: 'postgres://owner@elsewhere/app' }, FLEET, [])).source).toBe(
      'the environment',
    );
  });

  test('is nothing without a database, and that is told with what to do', async () => {
    await expect(subjectOf({}, undefined, [])).rejects.toMatchObject({ exit: 78, next: expect.stringContaining('up') });
    await expect(subjectOf({}, { pid: 1, started: '' }, [])).rejects.toThrow('still starting');
  });
});

test('keys for effects in one environment for all are the executor’s alone; a service that is examined by itself is told of one', async () => {
  const env = {
    ...ENV,
    COUNTERSTAMP_CREDITS_URL: 'http://credits.test',
    COUNTERSTAMP_CREDITS_READ_KEY: 'rk',
    COUNTERSTAMP_CREDITS_WRITE_KEY: 'sk',
  };
  const all = await subjectOf(env, undefined, []);
  expect(all.services.map(({ config }) => config.ok)).toEqual([true, true, true, true, true]);
  const [verifier] = (await subjectOf(env, undefined, ['verifier'])).services;
  expect(verifier?.config).toMatchObject({ ok: false, faults: [expect.stringContaining('only the executor')] });
});

describe('configuration', () => {
  const findingsOf = async (change: Record<string, string>) => {
    const subject = await subjectOf({ ...ENV, ...change }, undefined, []);
    return { configuration: configurationFindings(subject), durations: durationFindings(subject), subject };
  };

  test('that is complete is one finding for each service', async () => {
    const { configuration, durations } = await findingsOf({});
    expect(configuration.map((one) => one.status)).toEqual(['ok', 'ok', 'ok', 'ok', 'ok']);
    expect(durations).toMatchObject([{ status: 'ok', sentence: expect.stringContaining('72000 ms') }]);
  });

  test('that is wrong is told once, with the services that have it, without any value', async () => {
    const { configuration } = await findingsOf({ COUNTERSTAMP_SHOP_URL: 'hunter22', LOG_LEVEL: 'loud' });
    expect(configuration.map((one) => [one.status, one.sentence.replace(/: .* \(/, ' (')])).toEqual([
      ['failed', 'LOG_LEVEL (every service).'],
      ['failed', 'COUNTERSTAMP_SHOP_URL (preflight, executor, verifier, reconciler).'],
    ]);
    expect(JSON.stringify(configuration)).not.toContain('hunter22');
  });

  test('that is wrong still says where it would connect to', async () => {
    const { subject } = await findingsOf({ COUNTERSTAMP_SHOP_URL: '', COUNTERSTAMP_PAUSE_MS: '0' });
    const executor = subject.services.find((one) => one.service === 'executor');
    expect(executor?.config.ok).toBe(false);
    expect(executor?.connections?.database_url).toContain('cs_executor');
  });

  test('inequalities of the durations have a finding each, and are not told twice', async () => {
    const { configuration, durations } = await findingsOf({
      COUNTERSTAMP_EPSILON_MS: '30000',
      COUNTERSTAMP_LOOK_MIN_MS: 'soon',
    });
    expect(configuration).toEqual([]);
    expect(durations.map((one) => one.status)).toEqual(['failed', 'failed', 'failed']);
    expect(durations.map((one) => one.sentence.split(/[: ]/)[0])).toEqual([
      'COUNTERSTAMP_LOOK_MIN_MS',
      'epsilon_ms',
      'epsilon_ms',
    ]);
  });

  test('services with different durations are told, for one would conclude before the other has ended', () => {
    const services = [{ env: {} }, { env: { COUNTERSTAMP_PROVIDER_MS: '70000' } }];
    expect(durationFindings({ services })).toMatchObject([{ status: 'failed', next: expect.stringContaining('same') }]);
  });

  test('a development switch in production is a warning', async () => {
    const { configuration } = await findingsOf({ COUNTERSTAMP_DEV: '1' });
    expect(new Set(configuration.map((one) => one.status))).toEqual(new Set(['warning']));
    const fast = await findingsOf({ COUNTERSTAMP_DEV: '1', COUNTERSTAMP_PROFILE: 'fast' });
    expect(new Set(fast.configuration.map((one) => one.status))).toEqual(new Set(['ok']));
    expect(fast.durations[0]?.sentence).toContain(String(PROFILES.fast.call_deadline_ms));
  });
});

test('the clock’s difference is that of the quickest answer, and no more certain than half of it', () => {
  const asks = [
    { sentMs: 1_000, database_ms: 9_000, gotMs: 1_900 },
    { sentMs: 2_000, database_ms: 2_505, gotMs: 2_010 },
  ];
  expect(clockDifference(asks)).toEqual({ difference_ms: -500, uncertain_ms: 5 });
});

describe('a role', () => {
  const report: RoleReport = {
    service: 'verifier',
    role: 'cs_verifier',
    exists: true,
    powers: [],
    missing: [],
    excess: [],
  };

  test('that is as it should be is ok', () => {
    expect(roleFinding(report)).toMatchObject([{ status: 'ok', next: null }]);
  });

  test.each<[string, Partial<RoleReport>, string, string]>([
    ['that does not exist', { exists: false }, 'does not exist', '--print-roles'],
    [
      'with powers',
      { powers: ['superuser', 'member of owner'] },
      'superuser, member of owner',
      'alter role cs_verifier',
    ],
    ['that may write', { excess: ['write run'] }, 'write run', 'counterstamp migrate'],
    ['that lacks a function', { missing: ['execute defer'] }, 'lacks: execute defer', 'counterstamp migrate'],
    [
      'that lacks everything',
      { missing: Array.from({ length: 40 }, (_, n) => `read t${n}`) },
      'and 34 more',
      'migrate',
    ],
  ])('%s fails with what to do', (_, change, said, todo) => {
    const [finding] = roleFinding({ ...report, ...change });
    expect(finding?.status).toBe('failed');
    expect(finding?.sentence).toContain(said);
    expect(finding?.next).toContain(todo);
  });
});

test('the page has a line for each finding, what to do below it, and a sum', () => {
  expect(
    findingsPage([ok('clock', 'Fine.'), warning('hold', 'Held.', 'Release it.'), failed('api', 'Away.', 'Start it.')]),
  ).toBe(
    [
      '✓ ok       clock  Fine.',
      '! warning  hold   Held.',
      '                  Release it.',
      '✗ failed   api    Away.',
      '                  Start it.',
      '',
      '1 ok, 1 warning, 1 failed',
    ].join('\n'),
  );
});
