import postgres from 'postgres';
import { expect, test } from 'vitest';
import { type PostgresVersion, testDatabase } from '../../../testing/services.ts';
import { TEST_ROLE_PREFIX, TEST_SECRET } from '../../../testing/store-fixture.ts';
import { migrateToEarlier } from '../testing/earlier-schema.ts';
import { migrate } from './migrate.ts';

/** Migrations before approvals were signed. */
const OLD = 6;
const RUN = '019ad000-0000-7000-8000-000000000001';

/** A database as the release before signed approvals left it, for `work`. */
async function withOld(
  version: PostgresVersion,
  work: (url: string, sql: postgres.Sql) => Promise<void>,
): Promise<void> {
  const database = await testDatabase({ version, name: 'old', prepare: () => Promise.resolve() });
  const sql = postgres(database.url, { max: 1, onnotice: () => undefined });
  try {
    await migrateToEarlier(database.url, OLD);
    await work(database.url, sql);
  } finally {
    await sql.end({ timeout: 2 });
    await database.drop();
  }
}

const principal = (sql: postgres.Sql, name: string, kind: 'person' | 'service_account') =>
  sql`insert into cs.principal (principal_id, tenant_id, name, kind) values (${`prn_${name}`}, 'shop_north', ${name}, ${kind})`;
const key = (sql: postgres.Sql, name: string, role: string, change: { revoked?: true; expired?: true } = {}) => sql`
  insert into cs.api_key (key_id, tenant_id, principal_id, role, secret_hash, created_at, expires_at, revoked_at)
  values (${`key_${name}_${role}`}, 'shop_north', ${`prn_${name}`}, ${role}, 'x', now(), ${change.expired === true ? sql`now() - interval '1 day'` : null},
    ${change.revoked === true ? sql`now()` : null})`;

test.each([18, 15] as const)(
  'on PostgreSQL %i: principals get the roles of their living keys, and what is recorded stays as it is',
  async (version) => {
    await withOld(version, async (url, sql) => {
      await principal(sql, 'ana', 'person');
      await key(sql, 'ana', 'approver');
      await key(sql, 'ana', 'operator', { revoked: true });
      await key(sql, 'ana', 'auditor', { expired: true });
      await principal(sql, 'agent', 'service_account');
      await key(sql, 'agent', 'requester');
      await key(sql, 'agent', 'operator');
      await principal(sql, 'gone', 'person');
      await sql`
        insert into cs.run (run_id, tenant_id, request_id, generation, workflow, workflow_version, connector, connector_version, proposer, requested_by, created_at, state, state_since,
          committed_at, revision, run_deadline, wake_at, chain_head)
        values (${RUN}, 'shop_north', 'case_1', 1, 'refund', 1, 'sandbox-payments', '1', 'rules', 'prn_agent', now(), 'queued', now(), now(), 1, now() + interval '1 day', now(), 'x')`;
      await sql`
        insert into cs.run_input (run_id, input_canonical, input, body_digest, allowed_operations, context)
        values (${RUN}, '{"reason":"broken"}', '{"reason":"broken"}', 'x', array['read_order'], '[]')`;
      await sql`
        insert into cs.evidence (evidence_id, run_id, revision, round, kind, source_ref, observed_at, trusted, facts_digest)
        values ('evd_1', ${RUN}, 1, 1, 'order_record', 'shop', now(), true, 'x')`;
      await sql`insert into cs.evidence_value (evidence_id, salt, facts_canonical) values ('evd_1', 'aa', '{}')`;

      const applied = await migrate(url, { rolePrefix: TEST_ROLE_PREFIX, secret: TEST_SECRET });
      expect(applied[0]).toBe('0006_approvals');
      expect(await sql`select name, to_json(roles) as roles from cs.principal order by name`).toEqual([
        { name: 'agent', roles: ['requester'] },
        { name: 'ana', roles: ['approver'] },
        { name: 'gone', roles: [] },
      ]);
      expect(await sql`select i.input_canonical, v.facts_canonical from cs.run_input i, cs.evidence_value v`).toEqual([
        { input_canonical: '{"reason":"broken"}', facts_canonical: '{}' },
      ]);
      expect(await migrate(url, { rolePrefix: TEST_ROLE_PREFIX, secret: TEST_SECRET })).toEqual([]);
    });
  },
);

test('two names that differ in case only stop the migration with both of them, and nothing is changed', async () => {
  await withOld(18, async (url, sql) => {
    await principal(sql, 'ana', 'person');
    await principal(sql, 'Ana', 'person');
    await expect(migrate(url, { rolePrefix: TEST_ROLE_PREFIX, secret: TEST_SECRET })).rejects.toThrow(
      /shop_north\/[aA]na, shop_north\/[aA]na; rename all but one/,
    );
    const [column] =
      await sql`select 1 from information_schema.columns where table_schema = 'cs' and table_name = 'principal' and column_name = 'roles'`;
    expect(column).toBeUndefined();
  });
});
