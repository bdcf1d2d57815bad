import { afterAll, afterEach, beforeAll, beforeEach, expect, test, vi } from 'vitest';
import { type StoreFixture, storeFixture } from '../../../testing/store-fixture.ts';
import { createProgram } from './program.ts';

let db: StoreFixture;
let oldest: string;
beforeAll(async () => {
  db = await storeFixture(18);
  oldest = (await db.createRun({ tenant_id: 'shop_north' })).run_id;
  await db.createRun({ tenant_id: 'shop_south' });
  await db.createRun({ tenant_id: 'shop_south' });
  await db.owner`update cs.run set state_since = cs.clock() - interval '2 hours' where run_id = ${oldest.slice(4)}`;
});
afterAll(() => db.close());
beforeEach(() => vi.stubEnv('DATABASE_URL', db.url));
afterEach(() => {
  vi.unstubAllEnvs();
  vi.restoreAllMocks();
});

/** Runs a command as a shell would. @returns what it printed. */
async function run(...args: string[]): Promise<string> {
  let printed = '';
  vi.spyOn(process.stdout, 'write').mockImplementation((text) => {
    printed += String(text);
    return true;
  });
  await createProgram().parseAsync(args, { from: 'user' });
  return printed;
}

test('run oldest leads from an alert to the runs behind it, of all tenants', async () => {
  expect(await run('run', 'oldest', '--state', 'queued', '--limit', '1')).toMatch(
    new RegExp(`^RUN .*\\n${oldest} +shop_north +queued +2h( \\d+s)? +the fleet, again at \\d{4}-`),
  );
  expect(await run('run', 'oldest', '--parked')).toBe('No open run is like that.\n');
  const { runs } = JSON.parse(await run('run', 'oldest', '--json')) as { runs: { run_id: string }[] };
  expect(runs.map(({ run_id }) => run_id)).toHaveLength(3);
  await expect(run('run', 'oldest', '--state', 'waiting')).rejects.toMatchObject({
    message: 'There is no state waiting.',
    next: expect.stringContaining('verifying'),
  });
});

test('tenant load names who stands behind the ranks of the metrics', async () => {
  expect(await run('tenant', 'load')).toMatch(/^RANK .*\n1 +shop_south +2 .*\n2 +shop_north +1 +2h( \d+s)?\n$/);
  expect(await run('tenant', 'load', '--top', '1')).toContain('1 more tenants, 1 open runs.');
});
