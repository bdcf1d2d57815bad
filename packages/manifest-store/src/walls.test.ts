import { SERVICES } from '@counterstamp/manifest-core';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { type StoreFixture, storeFixture, TEST_ROLE_PREFIX, TEST_SECRET } from '../../../testing/store-fixture.ts';
import { createApiStore } from './api-store.ts';
import { connect, type Sql } from './connection.ts';
import { roleReports } from './grants-check.ts';
import { readAs } from './read-as.ts';
import { applyGrants, roleName, serviceUrl, UNREADABLE } from './roles.ts';
import { readWalls, wallStatements } from './walls.ts';

const NORTH = 'shop_north';
const SOUTH = 'shop_south';
/** What belongs to the installation and not to a tenant. */
const SHARED = ['checkpoint', 'executor_instance', 'hold', 'legal_move'];
const LOGINS = SERVICES.map((service) => ({ service, role: roleName(TEST_ROLE_PREFIX, service) }));

describe.each([18, 15] as const)('on PostgreSQL %i', (version) => {
  let db: StoreFixture;
  let tables: string[];

  beforeAll(async () => {
    db = await storeFixture(version);
    tables = (await readWalls(db.owner)).map((table) => table.name);
    await fillEveryTable(db);
  });
  afterAll(() => db.close());

  const counts = async (sql: Sql, tenant?: string): Promise<Record<string, number>> => {
    const found: Record<string, number> = {};
    for (const table of tables.filter((name) => !UNREADABLE.includes(name))) {
      const count = (on: Pick<Sql, 'unsafe'>) =>
        on.unsafe<{ n: number }[]>(`select count(*)::int as n from cs.${table}`);
      const [row] = tenant === undefined ? await count(sql) : await readAs(sql, tenant, (tx) => count(tx));
      found[table] = row?.n ?? -1;
    }
    return found;
  };
  const empty = (found: Record<string, number>) =>
    Object.entries(found).flatMap(([table, n]) => (n === 0 ? [table] : []));

  test('the api’s own login, without a tenant set, sees nothing of any tenant in any table', async () => {
    const found = await counts(db.serviceSql.api);
    expect(Object.entries(found).flatMap(([table, n]) => (n > 0 ? [table] : []))).toEqual(SHARED);
    for (const table of UNREADABLE) {
      await expect(db.serviceSql.api.unsafe(`select * from cs.${table}`), table).rejects.toMatchObject({
        code: '42501',
      });
    }
  });

  test('for a tenant it sees that tenant’s rows and no other’s; an empty or unknown one has none', async () => {
    const everything = await counts(db.owner);
    expect(empty(everything)).toEqual([]);
    const north = await counts(db.serviceSql.api, NORTH);
    const south = await counts(db.serviceSql.api, SOUTH);
    expect(empty(north)).toEqual([]);
    for (const table of Object.keys(everything).filter((name) => !SHARED.includes(name))) {
      expect((north[table] ?? 0) + (south[table] ?? 0), table).toBe(everything[table]);
    }
    expect(south.run).toBe(1);
    for (const nobody of ['', 'shop_nowhere', `${NORTH}' or true --`, '%']) {
      const seen = await counts(db.serviceSql.api, nobody);
      expect(
        Object.keys(seen).filter((table) => !empty(seen).includes(table)),
        nobody,
      ).toEqual(SHARED);
    }
  });

  test('a worker’s login sees every tenant’s rows', async () => {
    const everything = await counts(db.owner);
    for (const service of SERVICES.filter((name) => name !== 'api')) {
      expect(await counts(db.serviceSql[service]), service).toEqual(everything);
    }
  });

  test('the setting never leaves its transaction: two tenants read in parallel over two connections', async () => {
    const sql = connect(serviceUrl(db.url, 'api', TEST_SECRET, TEST_ROLE_PREFIX), { max: 2, applicationName: 'test' });
    try {
      const store = createApiStore(sql);
      for (let round = 0; round < 500; round++) {
        const [north, bare, south] = await Promise.all([
          store.list(NORTH, { limit: 10 }),
          sql<{ run_id: string }[]>`select run_id from cs.run`,
          store.list(SOUTH, { limit: 10 }),
        ]);
        expect([north.length, bare.length, south.length]).toEqual([1, 0, 1]);
        expect(north[0]?.run_id).not.toBe(south[0]?.run_id);
      }
    } finally {
      await sql.end({ timeout: 2 });
    }
  });

  test('a read that fails leaves no tenant on its connection', async () => {
    const sql = connect(serviceUrl(db.url, 'api', TEST_SECRET, TEST_ROLE_PREFIX), { max: 1, applicationName: 'test' });
    try {
      await expect(readAs(sql, NORTH, (tx) => tx`select 1 / 0`)).rejects.toMatchObject({ code: '22012' });
      await expect(readAs(sql, NORTH, (tx) => tx`delete from cs.run`)).rejects.toThrow();
      expect(await sql`select run_id from cs.run`).toHaveLength(0);
      expect(await readAs(sql, NORTH, (tx) => tx`select run_id from cs.run`)).toHaveLength(1);
    } finally {
      await sql.end({ timeout: 2 });
    }
  });

  test('walls that stand are left alone: a second migration locks no table', async () => {
    expect(wallStatements(await readWalls(db.owner), TEST_ROLE_PREFIX, LOGINS)).toEqual([]);
  });

  test('a wall that was taken down, opened or doubled is reported for whom it concerns, and built again', async () => {
    const [api, verifier] = [roleName(TEST_ROLE_PREFIX, 'api'), roleName(TEST_ROLE_PREFIX, 'verifier')];
    await db.owner.unsafe(`
      alter table cs.action disable row level security;
      alter policy ${TEST_ROLE_PREFIX}api_reads on cs.run using (true);
      drop policy ${TEST_ROLE_PREFIX}workers_read on cs.evidence;
      create policy a_favour on cs.passkey for select to public using (true)`);
    const reports = await roleReports(db.owner, { api, verifier });
    const rows = reports.map(({ service, missing, excess }) => ({ service, missing, excess }));
    expect(rows).toEqual([
      {
        service: 'api',
        missing: ['row security of action', 'policy of run'],
        excess: ['policy a_favour of passkey', `policy ${TEST_ROLE_PREFIX}api_reads of run`],
      },
      {
        service: 'verifier',
        missing: ['row security of action', 'policy of evidence'],
        excess: [],
      },
    ]);
    await applyGrants(db.owner, TEST_ROLE_PREFIX);
    // What is not ours is for a person to judge.
    const after = await roleReports(db.owner, { api, verifier });
    expect(after.flatMap(({ missing, excess }) => [...missing, ...excess])).toEqual(['policy a_favour of passkey']);
    await db.owner.unsafe('drop policy a_favour on cs.passkey');
  });

  test('a table that nobody has thought about is closed to the api and open to the workers', async () => {
    await db.owner.unsafe('create table cs.afterthought (tenant_id text); insert into cs.afterthought values (null)');
    try {
      await applyGrants(db.owner, TEST_ROLE_PREFIX);
      expect(await readAs(db.serviceSql.api, NORTH, (tx) => tx`select * from cs.afterthought`)).toHaveLength(0);
      expect(await db.serviceSql.verifier`select * from cs.afterthought`).toHaveLength(1);
    } finally {
      await db.owner.unsafe('drop table cs.afterthought');
    }
  });
});

/** At least one row of the north in every readable table, and a run of the south. */
async function fillEveryTable(db: StoreFixture): Promise<void> {
  await db.createRun({ tenant_id: SOUTH });
  const { row, attempt_id } = await db.toExecuting();
  const doubted = await db.move('executor', row, 'outcome_uncertain', 'needs_reconciliation', {
    attempt_outcome: { attempt_id, status: 'uncertain', provider_ref: null, response: { class: 'uncertain' } },
    stop_reason: { code: 'external_result_uncertain', message: 'test' },
  });
  const uuid = doubted.run_id.slice(4);
  const operator = await db.principal('operator');
  await db.api.beat('ins_api', { host: 'test', pid: 1 });
  await db.api.setHold(operator, '*', 'test');
  // The rest as its owner: what other tests bring about by their own means.
  await db.owner.unsafe(`
    insert into cs.observation (run_id, revision, at, kind, body) values ('${uuid}', 99, now(), 'person', '{}');
    insert into cs.proposal_refusal (proposal_id, run_id, revision, code, message) select proposal_id, run_id, 1, 'x', 'x' from cs.proposal where run_id = '${uuid}';
    insert into cs.verdict_support values ('${uuid}', '${operator.principal_id}', 'waive_fencing', 1, '', 'x', now());
    insert into cs.decision_assertion select decision_id, 'c', 'p', '', '', '' from cs.decision where run_id = '${uuid}';
    insert into cs.passkey (credential_id, tenant_id, principal_id, public_key, transports, name, backed_up, certificate, created_at)
      values ('c', '${NORTH}', '${operator.principal_id}', 'k', '{}', 'n', false, '{}', now());
    insert into cs.principal_identity values ('i', 's', '${NORTH}', '${operator.principal_id}');
    insert into cs.subject_key values ('${NORTH}', 's', '\\x00', now());
    insert into cs.checkpoint (seq, at, covered_until, envelope) values (1, now(), now(), '{}');
    insert into cs.checkpoint_leaf values ('${uuid}', 1, 0, 1, 'h')`);
}
