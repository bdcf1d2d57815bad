import { type HotRow, uuidOfRunId } from '@counterstamp/manifest-core';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { type StoreFixture, settableClock, storeFixture } from '../../../testing/store-fixture.ts';
import { type CheckpointDue, checkpointDue, commitCheckpoint } from './checkpoints.ts';

const INTERVAL_MS = 1_000;
const HEARTBEAT_MS = 60_000;

describe.each([18, 15] as const)('on PostgreSQL %i', (version) => {
  let db: StoreFixture;
  let clock: Awaited<ReturnType<typeof settableClock>>;
  beforeEach(async () => {
    db = await storeFixture(version);
    clock = await settableClock(db);
    await clock.advanceMs(0);
  });
  afterEach(() => db.close());

  const askDue = (limit = 10) =>
    checkpointDue(db.serviceSql.reconciler, { interval_ms: INTERVAL_MS, heartbeat_ms: HEARTBEAT_MS, limit });
  async function due(limit?: number): Promise<CheckpointDue> {
    const found = await askDue(limit);
    if (found === undefined) throw new Error('no checkpoint is due');
    return found;
  }
  const envelopeOf = ({ seq }: CheckpointDue) => ({ payload: `checkpoint ${seq}` });
  const commit = (wanted: CheckpointDue) => commitCheckpoint(db.serviceSql.reconciler, wanted, envelopeOf(wanted));
  const runsOf = ({ leaves }: CheckpointDue) => leaves.map(({ run_id, revision }) => [run_id, revision]);
  const toPreflight = (row: HotRow) => db.move('preflight', row, 'request_loaded', 'preflight');
  /** A run that no other shares its time with, so that the order of leaves is known. */
  async function nextRun(): Promise<HotRow> {
    await clock.advanceMs(1);
    return await db.createRun();
  }

  test('what moved since the last checkpoint is covered by the next, once, with the head that it has', async () => {
    const [one, two] = [await nextRun(), await nextRun()];
    const first = await due();
    expect(first).toMatchObject({ seq: 1, previous: null });
    expect(runsOf(first)).toEqual([
      [one.run_id, 1],
      [two.run_id, 1],
    ]);
    expect(await commit(first)).toBe(true);

    await clock.advanceMs(INTERVAL_MS);
    expect(await askDue()).toBeUndefined();
    await toPreflight(one);
    const chain_head = (await db.api.load('shop_north', one.run_id))?.manifest.chain_head;
    const second = await due();
    expect(second).toMatchObject({ seq: 2, previous: envelopeOf(first) });
    expect(second.leaves).toEqual([{ run_id: one.run_id, revision: 2, chain_head }]);
  });

  test('none is due before the interval is over, whatever moves', async () => {
    await db.createRun();
    await commit(await due());
    await db.createRun();
    await clock.advanceMs(INTERVAL_MS - 1);
    expect(await askDue()).toBeUndefined();
    await clock.advanceMs(1);
    expect((await due()).leaves).toHaveLength(1);
  });

  test('while nothing moves, one without leaves is due with each heartbeat', async () => {
    await commit(await due());
    await clock.advanceMs(HEARTBEAT_MS - 1);
    expect(await askDue()).toBeUndefined();
    await clock.advanceMs(1);
    expect(await due()).toMatchObject({ seq: 2, leaves: [] });
  });

  test('an event that became visible after a later one was covered is covered by the next', async () => {
    await db.createRun();
    const first = await due();
    await commit(first);
    await clock.advanceMs(-30_000);
    const late = await db.createRun();
    await clock.advanceMs(30_000 + INTERVAL_MS);
    expect(runsOf(await due())).toEqual([[late.run_id, 1]]);
  });

  test('what did not fit is due at once, the oldest movement first', async () => {
    const [one, two, three] = [await nextRun(), await nextRun(), await nextRun()];
    const first = await due(2);
    expect(runsOf(first).map(([run_id]) => run_id)).toEqual([one.run_id, two.run_id]);
    expect(first.covered_until < first.at).toBe(true);
    await clock.advanceMs(1);
    await commit(first);
    const second = await due(2);
    expect(runsOf(second)).toEqual([[three.run_id, 1]]);
    expect(second.covered_until).toBe(second.at);
    await commit(second);
    await db.createRun();
    expect(await askDue()).toBeUndefined();
  });

  test('of two that commit the same number one wins, and only its leaves are kept', async () => {
    const row = await db.createRun();
    const wanted = await due();
    const other = { ...wanted, leaves: [] };
    const stored = await Promise.all([commit(wanted), commit(other), commit(wanted), commit(other)]);
    expect(stored.filter(Boolean)).toHaveLength(1);
    const leaves = await db.owner<{ run_id: string }[]>`select 'run_' || run_id as run_id from cs.checkpoint_leaf`;
    expect(leaves.map(({ run_id }) => run_id)).toEqual(stored[0] || stored[2] ? [row.run_id] : []);
  });

  test('only the reconciler may ask for one or commit one', async () => {
    const wanted = await due();
    for (const service of ['api', 'preflight', 'executor', 'verifier'] as const) {
      await expect(
        checkpointDue(db.serviceSql[service], { interval_ms: 1, heartbeat_ms: 1, limit: 1 }),
      ).rejects.toMatchObject({ code: '42501' });
      await expect(commitCheckpoint(db.serviceSql[service], wanted, {})).rejects.toMatchObject({ code: '42501' });
    }
  });

  test('the newest that covers a run is shown with all its leaves, to the run’s own tenant', async () => {
    const covering = async (tenant: string, row: HotRow) => {
      const [found] = await db.serviceSql.api<{ covering: string | null }[]>`
        select cs.checkpoint_covering(${tenant}, ${uuidOfRunId(row.run_id)}::uuid) as covering`;
      return JSON.parse(found?.covering ?? 'null') as unknown;
    };
    const [one, two] = [await nextRun(), await nextRun()];
    expect(await covering('shop_north', one)).toBeNull();
    const first = await due();
    await commit(first);
    await clock.advanceMs(INTERVAL_MS);
    await toPreflight(one);
    const second = await due();
    await commit(second);
    expect(await covering('shop_north', one)).toEqual({ envelope: envelopeOf(second), leaves: second.leaves });
    expect(await covering('shop_north', two)).toEqual({ envelope: envelopeOf(first), leaves: first.leaves });
    expect(await covering('shop_south', one)).toBeNull();
  });

  test('checkpoints are listed by number, after any of them', async () => {
    for (let seq = 1; seq <= 3; seq++) {
      await commit(await due());
      await clock.advanceMs(HEARTBEAT_MS);
    }
    const numbers = async (after: number, limit: number) => (await db.api.checkpoints(after, limit)).map((c) => c.seq);
    expect([await numbers(0, 2), await numbers(2, 2), await numbers(3, 2)]).toEqual([[1, 2], [3], []]);
    expect(await db.api.checkpoints(0, 1)).toEqual([{ seq: 1, envelope: { payload: 'checkpoint 1' } }]);
  });

  test.each(['checkpoint', 'checkpoint_leaf'])('rows of %s stay as they are, also for the owner', async (table) => {
    await db.createRun();
    await commit(await due());
    for (const statement of [
      `update cs.${table} set seq = 7`,
      `delete from cs.${table}`,
      `truncate cs.${table} cascade`,
    ])
      await expect(db.owner.unsafe(statement)).rejects.toMatchObject({ code: 'CS006' });
  });
});
