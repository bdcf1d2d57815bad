import { connect, migrate, roleStatements } from '@counterstamp/manifest-store';
import { expect, test } from 'vitest';
import { applyGrants, derivedPassword, GRANTS, HELPERS } from '../packages/manifest-store/src/roles.ts';
import { migrateToEarlier, migrationTags } from '../packages/manifest-store/testing/earlier-schema.ts';
import { prepareFleetDatabase } from '../testing/fleet.ts';
import { missedByOlder, readSchemaContract } from '../testing/schema-contract.ts';
import { testDatabase } from '../testing/services.ts';
import { TEST_ROLE_PREFIX, TEST_SECRET } from '../testing/store-fixture.ts';

const ACCESS = { rolePrefix: TEST_ROLE_PREFIX, secret: TEST_SECRET };

/** As the release before this version's newest migration left it: its tables, its roles, its grants. */
async function prepareEarlier(url: string): Promise<void> {
  await migrateToEarlier(url, (await migrationTags()).length - 1);
  const sql = connect(url, { max: 1, applicationName: 'earlier' });
  try {
    const [row] = await sql<{ name: string }[]>`select current_database() as name`;
    const passwordOf = (role: string) => derivedPassword(TEST_SECRET, role);
    await sql.unsafe(roleStatements(TEST_ROLE_PREFIX, row?.name ?? '', passwordOf).join(';\n'));
    // This version's grants name functions that the newest migration brings: they stand there while it grants, and nothing more.
    const known = await sql<
      { name: string }[]
    >`select proname as name from pg_proc where pronamespace = 'cs'::regnamespace`;
    const names = new Set([...Object.values(GRANTS).flat(), ...HELPERS]);
    for (const { name } of known) names.delete(name);
    for (const name of names) await sql.unsafe(`create function cs.${name}() returns void language sql as ''`);
    await applyGrants(sql, TEST_ROLE_PREFIX);
    for (const name of names) await sql.unsafe(`drop function cs.${name}()`);
  } finally {
    await sql.end({ timeout: 2 });
  }
}

test('the newest migration leaves everything that processes of the release before use, so that they work beside the new ones and can be rolled back to', async () => {
  const database = await testDatabase({ version: 18, name: 'earlier_fleet', prepare: prepareEarlier });
  const sql = connect(database.url, { max: 1, applicationName: 'contract' });
  try {
    const before = await readSchemaContract(sql, TEST_ROLE_PREFIX);
    expect(before.functions.length).toBeGreaterThan(50);
    expect(await migrate(database.url, ACCESS)).toEqual([(await migrationTags()).at(-1)]);
    expect(missedByOlder(before, await readSchemaContract(sql, TEST_ROLE_PREFIX))).toEqual([]);
  } finally {
    await sql.end({ timeout: 2 });
    await database.drop();
  }
});

test('a migration that takes away what older processes use is named with what it took', async () => {
  const database = await testDatabase({
    version: 18,
    name: 'fleet',
    prepare: (url) => prepareFleetDatabase(url, ACCESS),
  });
  const sql = connect(database.url, { max: 1, applicationName: 'contract' });
  try {
    const before = await readSchemaContract(sql, TEST_ROLE_PREFIX);
    expect(missedByOlder(before, before)).toEqual([]);
    await sql.unsafe(`
      alter function cs.defer rename to defer_later;
      create function cs.added() returns int language sql as 'select 1';
      alter table cs.hold rename column reason to why;
      alter table cs.hold add column until timestamptz;
      delete from cs.legal_move where trigger = 'retry_dispatched'`);
    const missed = missedByOlder(before, await readSchemaContract(sql, TEST_ROLE_PREFIX));
    expect(missed.filter((one) => one.includes('cs.defer('))).toHaveLength(4);
    expect(missed.filter((one) => one.includes('cs.hold.reason text'))).toHaveLength(1);
    expect(missed.filter((one) => one.includes('retry_dispatched')).length).toBeGreaterThan(0);
    expect(missed.some((one) => one.includes('added') || one.includes('until'))).toBe(false);
  } finally {
    await sql.end({ timeout: 2 });
    await database.drop();
  }
});
