import { endInstance, listInstances, serviceUrl } from '@counterstamp/manifest-store';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { type StoreFixture, storeFixture, TEST_ROLE_PREFIX, TEST_SECRET } from '../../../testing/store-fixture.ts';
import { recordedLog } from '../../../testing/worker-fakes.ts';
import { systemClock } from './ports/clock.ts';
import { holdSessionLease, type SessionLease } from './session-lease.ts';

/** How long a test waits for a signal, and how often it looks. */
const SOON = { timeout: 10_000, interval: 10 };

let db: StoreFixture;
const open: SessionLease[] = [];
beforeAll(async () => {
  db = await storeFixture(18);
});
afterAll(async () => {
  await Promise.all(open.map((lease) => lease.release()));
  await db.close();
});

/** A process life that holds its lease as the executor's `main.ts` has it do. */
function living(instance_id: string) {
  const { log, lines } = recordedLog();
  const config = { service: 'executor', database_url: serviceUrl(db.url, 'executor', TEST_SECRET, TEST_ROLE_PREFIX) };
  const lease = holdSessionLease({
    config: config as Parameters<typeof holdSessionLease>[0]['config'],
    instance_id,
    process: { host: 'here', pid: 4711 },
    clock: systemClock,
    log,
  });
  open.push(lease);
  return { lease, lines };
}
const seen = async (instance_id: string) =>
  (await listInstances(db.owner, { limit: 100 })).find((instance) => instance.instance_id === instance_id)?.lease;
const sessions = () =>
  db.owner<{ pid: number }[]>`
    select pid from pg_stat_activity where datname = current_database() and application_name = 'counterstamp-executor-lease'`;

test('is held while the process lives, seen by everybody, and free as soon as it is released', async () => {
  const { lease } = living('ins_living');
  await expect.poll(() => lease.held, SOON).toBe(true);
  expect(await seen('ins_living')).toBe('held');
  await lease.release();
  await expect.poll(() => seen('ins_living'), SOON).toBe('free');
  expect(await sessions()).toHaveLength(0);
});

test('is taken again within a second of losing its session, and says that it was lost', async () => {
  const { lease, lines } = living('ins_cut');
  await expect.poll(() => lease.held, SOON).toBe(true);
  const [before] = await sessions();
  const cutMs = performance.now();
  await db.owner`select pg_terminate_backend(${before?.pid ?? 0})`;
  // Not the old session, which may still be ending: a new one.
  await expect.poll(async () => (await sessions())[0]?.pid, SOON).not.toBe(before?.pid);
  await expect.poll(() => seen('ins_cut'), SOON).toBe('held');
  expect(performance.now() - cutMs).toBeLessThan(1_000);
  await expect.poll(() => lease.held, SOON).toBe(true);
  expect(lines).toContainEqual(
    expect.objectContaining({ level: 'warn', message: expect.stringContaining('taking it again') }),
  );
  await lease.release();
});

test('is refused to an instance whose end is on record: it says that the process must be restarted', async () => {
  const { lease } = living('ins_over');
  await expect.poll(() => lease.held, SOON).toBe(true);
  await lease.release();
  expect(await endInstance(db.owner, { instance_id: 'ins_over', evidence: 'exit code 137' })).toBe('ended');
  const again = living('ins_over');
  await expect
    .poll(() => again.lines, SOON)
    .toContainEqual(
      expect.objectContaining({ level: 'error', message: expect.stringContaining('restart the process') }),
    );
  expect(again.lease.held).toBe(false);
  expect(await seen('ins_over')).toBe('free');
});
