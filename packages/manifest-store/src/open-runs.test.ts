import { afterAll, beforeAll, expect, test } from 'vitest';
import { newRun, type StoreFixture, storeFixture } from '../../../testing/store-fixture.ts';

const OPEN = 10_000;

let db: StoreFixture;
beforeAll(async () => {
  db = await storeFixture(18);
  const { run_id } = await db.createRun({ tenant_id: 'shop_north' });
  // Copies of one run, since only their number matters here.
  await db.owner.unsafe(`
    insert into cs.run select (jsonb_populate_record(r, jsonb_build_object('run_id', gen_random_uuid(), 'request_id', 'case_' || n,
        'state', case when n % 2 = 0 then 'queued' else 'preflight' end))).*
      from cs.run r, generate_series(1, ${OPEN - 1}) n where r.run_id = '${run_id.slice(4)}';
    insert into cs.run select (jsonb_populate_record(r, jsonb_build_object('run_id', gen_random_uuid(), 'request_id', 'done_' || n, 'wake_at', null,
        'state', 'rejected', 'stop_reason', '{"code": "x", "message": "x"}'::jsonb))).*
      from cs.run r, generate_series(1, ${OPEN}) n where r.run_id = '${run_id.slice(4)}'`);
  await db.owner`analyze cs.run`;
});
afterAll(() => db.close());

test('a tenant with as many open runs as it may have gets no new one; the same request again is its run as before', async () => {
  const north = await db.principal('requester', 'requester', 'shop_north');
  const south = await db.principal('requester', 'requester', 'shop_south');
  expect(await db.api.createRun({ ...newRun(north), open_runs_max: OPEN })).toEqual({ kind: 'open_runs_limit' });
  expect(await db.api.createRun({ ...newRun(south), open_runs_max: OPEN })).toMatchObject({ kind: 'created' });
  const last = { ...newRun(north), open_runs_max: OPEN + 1 };
  expect(await db.api.createRun(last)).toMatchObject({ kind: 'created' });
  expect(await db.api.createRun({ ...newRun(north), open_runs_max: OPEN + 1 })).toEqual({ kind: 'open_runs_limit' });
  expect(await db.api.createRun(last)).toMatchObject({ kind: 'existing' });
});

test('counting open runs walks one index and stops at the limit, whatever lies beside it', async () => {
  await db.owner`vacuum cs.run`;
  // As the function asks it; the plan is Postgres's own.
  const [definition] = await db.owner<
    { body: string }[]
  >`select prosrc as body from pg_proc where proname = 'create_run' and pronamespace = 'cs'::regnamespace`;
  const counted =
    /select count\(\*\) from \(select from cs\.run r[^;]*?limit \(p_new ->> 'open_runs_max'\)::int\) open/.exec(
      definition?.body ?? '',
    )?.[0];
  const asked = counted?.replaceAll('p_tenant', `'shop_north'`).replace(`(p_new ->> 'open_runs_max')::int`, '100');
  const plan = await db.owner.unsafe<{ 'QUERY PLAN': string }[]>(
    `explain (analyze, buffers, costs off, timing off, summary off) ${asked}`,
  );
  const text = plan.map((row) => row['QUERY PLAN']).join('\n');
  expect(text).toContain('run_tenant_state');
  expect(text).not.toContain('Seq Scan');
  expect(Number(/Limit \(actual rows=(\d+)/.exec(text)?.[1])).toBe(100);
});
