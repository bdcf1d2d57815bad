import { randomUUID } from 'node:crypto';
import { SERVICES } from '@counterstamp/manifest-core';
import { connect, migrate, roleName, type Sql } from '@counterstamp/manifest-store';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { prepareFleetDatabase } from '../../../../testing/fleet.ts';
import { redisUrl, type TestDatabase, testDatabase } from '../../../../testing/services.ts';
import { TEST_ROLE_PREFIX, TEST_SECRET } from '../../../../testing/store-fixture.ts';
import { testInstallation } from '../../../../testing/test-installation.ts';
import { examine } from './examine.ts';
import type { Finding } from './finding.ts';
import { subjectOf } from './subject.ts';

const ACCESS = { rolePrefix: TEST_ROLE_PREFIX, secret: TEST_SECRET };
let database: TestDatabase;
let owner: Sql;

beforeAll(async () => {
  database = await testDatabase({ version: 18, name: 'fleet', prepare: (url) => prepareFleetDatabase(url, ACCESS) });
  owner = connect(database.url, { max: 1, applicationName: 'test-owner' });
});
afterAll(async () => {
  await owner.end({ timeout: 2 });
  await database.drop();
});

async function findingsOf(change: Record<string, string> = {}): Promise<Finding[]> {
  const env = {
    DATABASE_URL: database.url,
    COUNTERSTAMP_SECRET: TEST_SECRET,
    COUNTERSTAMP_ROLE_PREFIX: TEST_ROLE_PREFIX,
    COUNTERSTAMP_SHOP_URL: 'http://shop.test',
    COUNTERSTAMP_PAYMENTS_URL: 'http://pay.test',
    COUNTERSTAMP_PAYMENTS_READ_KEY: 'rk',
    COUNTERSTAMP_PAYMENTS_WRITE_KEY: 'sk',
    ...testInstallation().env,
    ...change,
  };
  return await examine(await subjectOf(env, undefined, []));
}
const notOk = (findings: readonly Finding[]) =>
  findings.filter((one) => one.status === 'failed').map((one) => `${one.check}: ${one.sentence}`);

describe('an installation that is whole', () => {
  test('has no failure, with the queues in Postgres and in Redis, and every check was made', async () => {
    const findings = await findingsOf();
    expect(notOk(findings)).toEqual([]);
    expect(findings.map((one) => one.check)).toEqual([
      ...SERVICES.map((service) => `configuration of ${service}`),
      'durations',
      'database',
      'migrations',
      'clock',
      ...SERVICES.map((service) => `role of ${service}`),
      ...SERVICES.map((service) => `login of ${service}`),
      ...SERVICES.map((service) => `queue of ${service}`),
    ]);
    const withRedis = await findingsOf({ REDIS_URL: await redisUrl() });
    expect(notOk(withRedis)).toEqual([]);
    expect(withRedis.filter((one) => one.check === 'queue')).toMatchObject([
      { status: 'ok', sentence: expect.stringMatching(/evicts nothing/) },
    ]);
  });

  test('is not changed by looking', async () => {
    const snapshot = async () => {
      const [row] = await owner<{ state: string }[]>`
        select json_build_object('stats', (select json_agg(json_build_array(relname, n_tup_ins, n_tup_upd, n_tup_del) order by relname)
                 from pg_stat_user_tables where schemaname in ('cs', 'bullmq', 'cs_migrations')),
          'acl', (select json_agg(json_build_array(relname, relacl::text) order by oid) from pg_class where relnamespace = 'cs'::regnamespace))::text as state`;
      return row?.state;
    };
    await owner`select pg_stat_force_next_flush()`;
    const before = await snapshot();
    await findingsOf();
    expect(await snapshot()).toBe(before);
  });

  test('warns of what is on hold, and is healthy all the same', async () => {
    await owner`insert into cs.hold (scope, reason, set_by, set_at) values ('*', 'failover', 'prn_x', cs.clock())`;
    const findings = await findingsOf();
    expect(notOk(findings)).toEqual([]);
    expect(findings.find((one) => one.check === 'hold')).toMatchObject({
      status: 'warning',
      sentence: 'Every dispatch is on hold: failover',
      next: expect.stringContaining('counterstamp hold release'),
    });
    await owner`delete from cs.hold`;
  });
});

describe('what is wrong fails with what to do:', () => {
  test('a grant too many, and the queue’s rights taken away', async () => {
    const verifier = roleName(TEST_ROLE_PREFIX, 'verifier');
    await owner.unsafe(`grant update on cs.run to ${verifier}; revoke select on bullmq.job from ${verifier}`);
    expect(notOk(await findingsOf())).toEqual([
      `role of verifier: ${verifier} may do what is not its own: write run.`,
      "queue of verifier: The login may not use the queues' tables (select on job).",
    ]);
    await owner.unsafe(`revoke update on cs.run from ${verifier}; grant select on bullmq.job to ${verifier}`);
  });

  test('a login that is refused, without its password', async () => {
    const url = new URL(database.url);
    url.username = roleName(TEST_ROLE_PREFIX, 'api');
    url.password = 'battery-staple';
    const findings = await findingsOf({
      COUNTERSTAMP_API_DATABASE_URL: url.href,
      COUNTERSTAMP_PREFLIGHT_DATABASE_URL: url.href,
    });
    const told = notOk(findings);
    // Where the server trusts every local connection the first is accepted: as api it is right, as preflight it is not.
    expect(told.some((one) => one.startsWith('login of preflight: '))).toBe(true);
    expect(JSON.stringify(findings)).not.toContain('battery-staple');
  });

  test('a database that was never migrated', async () => {
    const empty = await testDatabase({ version: 18, name: 'empty', prepare: () => Promise.resolve() });
    try {
      const findings = await findingsOf({ DATABASE_URL: empty.url });
      const failing = findings.filter((one) => one.status === 'failed');
      expect(failing.find((one) => one.check === 'migrations')).toMatchObject({
        sentence: expect.stringContaining('0000_tables'),
        next: expect.stringContaining('counterstamp migrate'),
      });
      expect(failing.map((one) => one.check)).toEqual(
        expect.arrayContaining(['login of api', 'role of executor', 'queue of reconciler']),
      );
    } finally {
      await empty.drop();
    }
  });

  test('roles that nobody made', async () => {
    const findings = await findingsOf({ COUNTERSTAMP_ROLE_PREFIX: `cs_none_${randomUUID().slice(0, 8)}_` });
    expect(findings.find((one) => one.check === 'role of api')).toMatchObject({
      status: 'failed',
      sentence: expect.stringContaining('does not exist'),
    });
  });

  test('servers that are away, within seconds', async () => {
    const startedAt = performance.now();
    const findings = await findingsOf({
      DATABASE_URL: 'postgres://owner:battery-staple@127.0.0.1:1/app',
      REDIS_URL: 'redis://:battery-staple@127.0.0.1:1',
      COUNTERSTAMP_URL: 'http://127.0.0.1:1',
    });
    expect(performance.now() - startedAt).toBeLessThan(10_000);
    const checks = findings.filter((one) => one.status === 'failed').map((one) => one.check);
    expect(checks).toEqual(['database', ...SERVICES.map((service) => `login of ${service}`), 'queue', 'api']);
    expect(JSON.stringify(findings)).not.toContain('battery-staple');
  });

  test('what migrate repairs is repaired by it', async () => {
    const executor = roleName(TEST_ROLE_PREFIX, 'executor');
    await owner.unsafe(
      `revoke execute on function cs.commit_dispatch from ${executor}; grant delete on cs.attempt to ${executor}`,
    );
    expect(notOk(await findingsOf())).toHaveLength(2);
    await migrate(database.url, { rolePrefix: TEST_ROLE_PREFIX });
    expect(notOk(await findingsOf())).toEqual([]);
  });
});
