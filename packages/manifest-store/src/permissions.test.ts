import { SERVICES } from '@counterstamp/manifest-core';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { type StoreFixture, storeFixture, TEST_ROLE_PREFIX } from '../../../testing/store-fixture.ts';
import { GRANTS, roleName } from './roles.ts';

const READ_HELPERS = [
  'clock',
  'iso',
  'microseconds',
  'base64url',
  'caller_service',
  'lease_key',
  'leases_held',
  'decision_obstacle',
  'open_attempts',
];
const TABLES_NOBODY_READS = ['api_key', 'challenge', 'invitation', 'service_login', 'session'];

describe.each([18, 15] as const)('on PostgreSQL %i', (version) => {
  let db: StoreFixture;
  beforeAll(async () => {
    db = await storeFixture(version);
  });
  afterAll(() => db.close());

  test('the permission matrix: each role may execute its own functions and read its own tables, and write none', async () => {
    const roles = SERVICES.map((service) => roleName(TEST_ROLE_PREFIX, service));
    const functions = await db.owner<{ role: string; name: string; allowed: boolean }[]>`
      select r as role, p.proname as name, has_function_privilege(r, p.oid, 'execute') as allowed
        from pg_proc p, jsonb_array_elements_text(${JSON.stringify(roles)}::text::jsonb) r where p.pronamespace = 'cs'::regnamespace and p.prorettype <> 'trigger'::regtype`;
    const expectedFunctions = SERVICES.flatMap((service) =>
      [...GRANTS[service], ...READ_HELPERS].map((name) => `${roleName(TEST_ROLE_PREFIX, service)} ${name}`),
    );
    expect(
      functions
        .filter((row) => row.allowed)
        .map((row) => `${row.role} ${row.name}`)
        .sort(),
    ).toEqual(expectedFunctions.sort());

    const tables = await db.owner<{ role: string; name: string; privilege: string; allowed: boolean }[]>`
      select r as role, c.relname as name, x as privilege, has_table_privilege(r, c.oid, x) as allowed
        from pg_class c, jsonb_array_elements_text(${JSON.stringify(roles)}::text::jsonb) r,
             unnest('{SELECT,INSERT,UPDATE,DELETE,TRUNCATE,REFERENCES,TRIGGER}'::text[]) x
       where c.relnamespace = 'cs'::regnamespace and c.relkind = 'r'`;
    const wrong = tables.filter(
      (row) => row.allowed !== (row.privilege === 'SELECT' && !TABLES_NOBODY_READS.includes(row.name)),
    );
    expect(wrong).toEqual([]);
    expect(tables.length).toBeGreaterThan(15 * roles.length);
  });

  test('no role but the owner sees past row security: every table has it, and no login may bypass it', async () => {
    const open =
      await db.owner`select relname from pg_class where relnamespace = 'cs'::regnamespace and relkind in ('r', 'p') and not relrowsecurity`;
    expect(open).toEqual([]);
    const policies = await db.owner<{ tablename: string; policyname: string }[]>`
      select tablename, policyname from pg_policies where schemaname = 'cs' and cmd <> 'SELECT'`;
    expect(policies).toEqual([]);
    const bypassing = await db.owner`
      select rolname from pg_roles where rolname like ${`${TEST_ROLE_PREFIX}%`} and (rolbypassrls or rolsuper)`;
    expect(bypassing).toEqual([]);
  });

  test('PUBLIC may execute nothing of ours', async () => {
    const rows =
      await db.owner`select proname from pg_proc where pronamespace = 'cs'::regnamespace and has_function_privilege('public', oid, 'execute')`;
    expect(rows).toEqual([]);
  });

  test('every function that runs with the owner’s rights has a fixed search path', async () => {
    const rows = await db.owner`
      select proname from pg_proc where pronamespace = 'cs'::regnamespace and prosecdef and not coalesce(proconfig, '{}') @> array['search_path=cs, pg_temp']`;
    expect(rows).toEqual([]);
  });

  test.each(SERVICES)(
    'a psql session under the role of %s cannot change a run, an attempt or an approval',
    async (service) => {
      const sql = db.serviceSql[service];
      for (const statement of [
        `update cs.run set state = 'queued'`,
        `insert into cs.attempt (attempt_id) values ('x')`,
        `insert into cs.decision (decision_id) values ('x')`,
        'delete from cs.run_event',
        'truncate cs.audit_event',
        `create function cs.clock() returns timestamptz language sql as 'select now()'`,
        'select * from cs.api_key',
        `select cs.apply_transition(r, 'executor', 'dispatched', 'executing', 'x', '{}', '{}', now(), now()) from cs.run r`,
      ]) {
        await expect(sql.unsafe(statement), statement).rejects.toMatchObject({ code: '42501' });
      }
    },
  );

  test('what only the executor may do is refused to the others by Postgres', async () => {
    for (const service of ['api', 'preflight', 'verifier', 'reconciler'] as const) {
      await expect(
        db.serviceSql[service].unsafe(
          `select * from cs.commit_dispatch('i', gen_random_uuid(), 1, '{}', ''::bytea, 1, 1, 1, false)`,
        ),
      ).rejects.toMatchObject({ code: '42501' });
    }
    await expect(
      db.serviceSql.executor.unsafe(`select * from cs.commit_decision('t', 'p', gen_random_uuid(), '{}', 1)`),
    ).rejects.toMatchObject({ code: '42501' });
  });

  test('a worker that may not make a move is refused although it may call the function', async () => {
    const row = await db.createRun();
    await expect(db.move('verifier', row, 'request_loaded', 'preflight')).rejects.toMatchObject({ code: 'CS001' });
  });

  test('the role carries isolation, durability and timeouts, so that they survive a pooler', async () => {
    const rows = await db.owner<{ rolname: string; rolconfig: string[] }[]>`
      select rolname, to_json(rolconfig) as rolconfig from pg_roles where rolname like ${`${TEST_ROLE_PREFIX}%`}`;
    expect(rows.length).toBeGreaterThanOrEqual(SERVICES.length);
    for (const { rolname, rolconfig } of rows) {
      if (!SERVICES.some((service) => roleName(TEST_ROLE_PREFIX, service) === rolname)) continue;
      expect(rolconfig).toEqual(
        expect.arrayContaining([
          'default_transaction_isolation=read committed',
          'synchronous_commit=on',
          'statement_timeout=10s',
          'lock_timeout=5s',
          'idle_in_transaction_session_timeout=5s',
        ]),
      );
    }
  });
});
