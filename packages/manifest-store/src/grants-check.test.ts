import { randomUUID } from 'node:crypto';
import { readdirSync } from 'node:fs';
import { SERVICES } from '@counterstamp/manifest-core';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { type StoreFixture, storeFixture, TEST_ROLE_PREFIX } from '../../../testing/store-fixture.ts';
import { connect } from './connection.ts';
import { roleReports } from './grants-check.ts';
import { loginReport } from './login-check.ts';
import { migrationStanding } from './migrate.ts';
import { ROLE_SETTINGS, roleName } from './roles.ts';

const MIGRATIONS = readdirSync(new URL('../migrations', import.meta.url))
  .filter((name) => name.endsWith('.sql'))
  .map((name) => name.replace('.sql', ''))
  .sort();

const PASSWORD = 'only-for-this-test';

describe.each([18, 15] as const)('on PostgreSQL %i', (version) => {
  let db: StoreFixture;
  /** A role of this test alone: those of the services belong to all tests of the server. */
  const stranger = `cs_check_${randomUUID().slice(0, 8)}`;

  beforeAll(async () => {
    db = await storeFixture(version);
    await db.owner.unsafe(`create role ${stranger} login password '${PASSWORD}' createdb inherit in role pg_monitor`);
  });
  afterAll(async () => {
    await db.owner.unsafe(`drop owned by ${stranger}; drop role ${stranger}`);
    await db.close();
  });

  const reportsOf = (sql = db.owner) =>
    roleReports(sql, Object.fromEntries(SERVICES.map((service) => [service, roleName(TEST_ROLE_PREFIX, service)])));

  test('a migrated database has nothing to report, whoever asks', async () => {
    for (const sql of [db.owner, db.serviceSql.verifier]) {
      const reports = await reportsOf(sql);
      expect(reports.map((report) => report.service)).toEqual([...SERVICES]);
      for (const report of reports) expect(report).toMatchObject({ exists: true, powers: [], missing: [], excess: [] });
    }
  });

  test('what was granted beside its own and what was taken away is named, for that role alone', async () => {
    const verifier = roleName(TEST_ROLE_PREFIX, 'verifier');
    await db.owner.unsafe(`
      grant execute on function cs.commit_dispatch to ${verifier};
      grant update (state) on cs.run to ${verifier};
      grant select on cs.api_key to ${verifier};
      grant usage on sequence cs.audit_event_audit_id_seq to ${verifier};
      revoke execute on function cs.defer from ${verifier};
      revoke select on cs.evidence from ${verifier}`);
    const reports = await reportsOf();
    for (const { service, powers, missing, excess } of reports) {
      expect(powers).toEqual([]);
      expect(missing).toEqual(service === 'verifier' ? ['execute defer', 'read evidence'] : []);
      expect(excess).toEqual(
        service === 'verifier'
          ? ['execute commit_dispatch', 'read api_key', 'use sequence audit_event_audit_id_seq', 'write run']
          : [],
      );
    }
  });

  test('rights that PUBLIC has count, since every role has them too', async () => {
    await db.owner.unsafe(
      'grant insert on cs.hold to public; grant execute on function cs.append_evidence to public; grant create on schema cs to public',
    );
    const api = (await reportsOf()).find((report) => report.service === 'api');
    expect(api?.excess).toEqual(['create in schema cs', 'execute append_evidence', 'write hold']);
    await db.owner.unsafe(
      'revoke insert on cs.hold from public; revoke execute on function cs.append_evidence from public; revoke create on schema cs from public',
    );
  });

  test('a role that is more than a login, or none at all, is reported as such', async () => {
    const [executor, api] = await roleReports(db.owner, { executor: stranger, api: 'cs_check_nobody' });
    expect(executor).toMatchObject({
      role: stranger,
      exists: true,
      powers: ['createdb', 'inherit', 'member of pg_monitor'],
    });
    expect(executor?.missing).toContain('execute commit_dispatch');
    expect(executor?.missing).toContain('usage of schema cs');
    expect(api).toMatchObject({ role: 'cs_check_nobody', exists: false, powers: [], missing: [], excess: [] });
  });

  test('a service’s own login carries every setting of its role', async () => {
    for (const service of SERVICES)
      expect(await loginReport(db.serviceSql[service], service)).toEqual({ fault: undefined, settings: [] });
  });

  test('a login without the settings of a role is told which it lacks, and that it is no service', async () => {
    const url = new URL(db.url);
    url.username = stranger;
    url.password = PASSWORD;
    const sql = connect(url.href, { max: 1, applicationName: 'test-stranger' });
    try {
      const { fault, settings } = await loginReport(sql, 'executor');
      expect(fault).toContain('counterstamp migrate');
      expect(settings.map((setting) => setting.name)).toEqual([
        'statement_timeout',
        'lock_timeout',
        'idle_in_transaction_session_timeout',
        'plan_cache_mode',
      ]);
      for (const { name, expected } of settings) expect(expected).toBe(ROLE_SETTINGS[name]);
    } finally {
      await sql.end({ timeout: 2 });
    }
  });

  test('migrations: none pending, then one that this version does not know, and all of them where there is nothing', async () => {
    expect(await migrationStanding(db.url)).toEqual({ pending: [], unknown: 0 });
    await db.owner`insert into cs_migrations.__drizzle_migrations (hash, created_at) values ('later', 9999999999999)`;
    expect(await migrationStanding(db.url)).toEqual({ pending: [], unknown: 1 });
    await db.owner`drop schema cs_migrations cascade`;
    expect(await migrationStanding(db.url)).toEqual({
      pending: MIGRATIONS,
      unknown: 0,
    });
  });
});
