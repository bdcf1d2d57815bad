import { afterAll, beforeAll, expect, test } from 'vitest';
import { type StoreFixture, storeFixture, TEST_ROLE_PREFIX, TEST_SECRET } from '../../../testing/store-fixture.ts';
import { census, censusStatement } from './census.ts';
import { connect, type Sql } from './connection.ts';
import { serviceUrl } from './roles.ts';

const TERMS = { age_bounds_s: [60, 3_600], expiring_soon_s: 300, tenants_max: 2 };
const CLOSED = 5_000;

let db: StoreFixture;
/** The login that counts, which may do less than the owner. */
let reconciler: Sql;
beforeAll(async () => {
  db = await storeFixture(18);
  const { run_id } = await db.createRun({ tenant_id: 'shop_north' });
  await db.owner`update cs.run set wake_at = cs.clock() + interval '1 hour'`;
  const copies = (n: number, name: string, change: string) =>
    db.owner.unsafe(`insert into cs.run select (jsonb_populate_record(r, jsonb_build_object('run_id', gen_random_uuid(), 'request_id', '${name}_' || n) || ${change})).*
      from cs.run r, generate_series(1, ${n}) n where r.run_id = '${run_id.slice(4)}'`);
  const at = (age: string) => `cs.clock() - interval '${age}'`;
  const changed = (members: string) => `jsonb_build_object(${members})`;
  await copies(3, 'minute', changed(`'state_since', ${at('30 seconds')}, 'wake_at', ${at('-1 hour')}`));
  await copies(
    2,
    'hour',
    changed(`'tenant_id', 'shop_south', 'state_since', ${at('10 minutes')}, 'wake_at', ${at('20 seconds')}`),
  );
  const doubt = `'action_revision', 1, 'attempts', 1, 'stop_reason', '{"code": "x", "message": "x"}'::jsonb, 'state', 'needs_reconciliation'`;
  await copies(
    2,
    'parked',
    changed(
      `${doubt}, 'tenant_id', 'shop_east', 'parked_reason', 'verification_mismatch', 'wake_at', null, 'state_since', ${at('2 hours')}`,
    ),
  );
  await copies(
    1,
    'doubt',
    changed(`${doubt}, 'tenant_id', 'shop_east', 'wake_at', ${at('-1 hour')}, 'state_since', ${at('30 minutes')}`),
  );
  const asked = `'action_revision', 1, 'state', 'awaiting_approval', 'run_deadline', ${at('-1 day')}`;
  await copies(
    1,
    'asked',
    changed(`${asked}, 'approval_expires_at', ${at('-1 minute')}, 'wake_at', ${at('-1 minute')}`),
  );
  await copies(
    1,
    'asked_long',
    changed(`${asked}, 'approval_expires_at', ${at('-1 hour')}, 'wake_at', ${at('-1 hour')}`),
  );
  await copies(
    1,
    'approved',
    changed(
      `${asked}, 'decisions_sufficient', true, 'approval_expires_at', ${at('-1 minute')}, 'wake_at', ${at('-1 minute')}`,
    ),
  );
  // Closed runs that still have a wake-up, for a look at their effect: the index of what is due is full of them, the census is not.
  await copies(
    CLOSED,
    'closed',
    changed(`'state', 'completed', 'action_revision', 1, 'attempts', 1, 'wake_at', ${at('-1 day')}`),
  );
  await db.owner`insert into cs.hold (scope, reason, set_by, set_at) select scope, 'x', (select principal_id from cs.principal limit 1), cs.clock() - interval '1 hour'
    from unnest(array['*', 'shop', 'payments']) scope`;
  await db.owner`insert into cs.executor_instance (instance_id, service, host, pid, started_at, beat_at, ended_at, ended_by) values
    ('ins_alive', 'executor', 'h', 1, cs.clock(), cs.clock(), null, null), ('ins_silent', 'executor', 'h', 2, cs.clock(), cs.clock() - interval '1 minute', null, null),
    ('ins_ended', 'executor', 'h', 3, cs.clock(), cs.clock(), cs.clock(), 'self')`;
  await db.owner.unsafe('vacuum analyze cs.run');
  reconciler = connect(serviceUrl(db.url, 'reconciler', TEST_SECRET, TEST_ROLE_PREFIX), {
    max: 1,
    applicationName: 'test-census',
  });
});
afterAll(async () => {
  await reconciler?.end();
  await db?.close();
});

test('a census counts every open run once, by state and age, and what waits for whom', async () => {
  const counted = await census(reconciler, TERMS);
  const byState = Object.fromEntries(counted.states.map(({ state, ...line }) => [state, line]));
  expect(Object.keys(byState).sort()).toEqual(['awaiting_approval', 'needs_reconciliation', 'queued']);
  expect(byState.queued).toMatchObject({ count: 6, buckets: [4, 2] });
  expect(byState.needs_reconciliation).toMatchObject({ count: 3, buckets: [0, 1] });
  expect(byState.queued?.oldest_age_ms).toBeGreaterThan(600_000);
  expect(byState.queued?.oldest_age_ms).toBeLessThan(3_600_000);
  expect(byState.queued?.total_age_ms).toBeGreaterThan(2 * 600_000 + 3 * 30_000);
  expect(counted.parked).toMatchObject([{ reason: 'verification_mismatch', count: 2 }]);
  expect(counted.parked[0]?.oldest_age_ms).toBeGreaterThan(7_200_000);
  expect(counted.doubt.oldest_age_ms).toBeGreaterThan(1_800_000);
  expect(counted.doubt.oldest_age_ms).toBeLessThan(3_600_000);
  expect(counted.due.count).toBe(2);
  expect(counted.due.oldest_age_ms).toBeGreaterThan(20_000);
  expect(counted.approvals).toEqual({ waiting: 2, expiring_soon: 1 });
  expect(counted.tenants.map(({ tenant_id, open_runs }) => [tenant_id, open_runs])).toEqual([
    ['shop_north', 7],
    ['shop_east', 3],
  ]);
  expect(counted.rest).toMatchObject({ tenants: 1, open_runs: 2 });
  expect(counted.rest.oldest_machine_wait_ms).toBeGreaterThan(600_000);
  // A parked run waits for a person, not for a machine.
  expect(counted.tenants[1]?.oldest_machine_wait_ms).toBe(0);
  expect(Object.fromEntries(counted.holds.map(({ scope, count }) => [scope, count]))).toEqual({ all: 1, connector: 2 });
  expect(counted.instances).toEqual([{ service: 'executor', count: 1 }]);
});

test('a census reads open runs alone, whatever lies beside them', async () => {
  const plan = await reconciler<{ 'QUERY PLAN': string }[]>`
    explain (analyze, buffers, costs off, timing off, summary off) ${censusStatement(reconciler, TERMS)}`;
  const text = plan.map((row) => row['QUERY PLAN']).join('\n');
  expect(text).toContain('run_open');
  expect(text).not.toContain('Seq Scan on run ');
  expect(text).not.toContain('run_wake');
});
