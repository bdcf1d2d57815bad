import { SERVICES, STATES, TRANSITIONS, TRIGGERS, transitionRule } from '@counterstamp/manifest-core';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { type StoreFixture, storeFixture } from '../../../testing/store-fixture.ts';

describe.each([18, 15] as const)('on PostgreSQL %i', (version) => {
  let db: StoreFixture;
  beforeAll(async () => {
    db = await storeFixture(version);
  });
  afterAll(() => db.close());

  test('the legal moves in SQL are the table in manifest-core', async () => {
    const rows = await db.owner<
      { from_state: string; trigger: string }[]
    >`select from_state, trigger, to_state, to_json(services) as services, to_json(facts) as facts, counts, to_json(requires) as requires,
        attempt_status, observation_kind from cs.legal_move`;
    const byPair = (a: { from_state: string; trigger: string }, b: { from_state: string; trigger: string }) =>
      `${a.from_state}/${a.trigger}` < `${b.from_state}/${b.trigger}` ? -1 : 1;
    const expected = TRANSITIONS.map((rule) => ({
      from_state: rule.from ?? '-',
      trigger: rule.on,
      to_state: rule.to,
      services: [...rule.by],
      facts: [...rule.facts],
      counts: 'counts' in rule ? rule.counts : null,
      requires: 'requires' in rule ? [...rule.requires] : [],
      attempt_status: 'attempt' in rule ? rule.attempt : null,
      observation_kind: 'observation' in rule ? rule.observation : null,
    }));
    expect([...rows].sort(byPair)).toEqual(expected.sort(byPair));
  });

  test('every state × trigger × target × role is accepted exactly when the table lists it', async () => {
    const template = await db.toExecuting();
    // A walk in one round trip: each try runs on the row put into its state, inside a block that is always rolled back.
    await db.owner.unsafe(`
      create function public.try_move(p_run uuid, p_state text, p_on text, p_to text, p_service text) returns text language plpgsql as $$
      declare v_run cs.run; v_result text := 'accepted';
      begin
        begin
          update cs.run set state = p_state, action_revision = coalesce(action_revision, 6), attempts = 1, wake_at = cs.clock() + interval '1 hour',
            in_flight_key = case when p_state in ('executing', 'needs_reconciliation') then 'k' end,
            stop_reason = case when p_state in ('rejected', 'expired', 'failed', 'needs_reconciliation') then '{"code": "c", "message": "m"}'::jsonb end
          where run_id = p_run returning * into v_run;
          perform cs.apply_transition(v_run, p_service, p_on, p_to, 'test', case when p_to in ('rejected', 'expired', 'failed', 'needs_reconciliation')
            then '{"stop_reason": {"code": "c", "message": "m"}}'::jsonb when p_to = 'executing' then '{"in_flight_key": "k"}'::jsonb else '{}'::jsonb end, '{}', cs.clock(), cs.clock() + interval '1 hour');
          raise exception 'undo' using errcode = 'UNDO1';
        exception when sqlstate 'UNDO1' then v_result := 'accepted';
                  when sqlstate 'CS001' then v_result := 'illegal';
        end;
        return v_result;
      end $$`);
    const rows = await db.owner<{ from: string; on: string; to: string; by: string; result: string }[]>`
      select s as "from", t as "on", d as "to", v as "by", public.try_move(${template.row.run_id.slice(4)}::uuid, s, t, d, v) as result
        from jsonb_array_elements_text(${JSON.stringify(STATES)}::text::jsonb) s, jsonb_array_elements_text(${JSON.stringify(TRIGGERS)}::text::jsonb) t,
             jsonb_array_elements_text(${JSON.stringify(STATES)}::text::jsonb) d, jsonb_array_elements_text(${JSON.stringify(SERVICES)}::text::jsonb) v`;
    expect(rows.length).toBe(STATES.length ** 2 * TRIGGERS.length * SERVICES.length);
    const wrong = rows.filter(({ from, on, to, by, result }) => {
      const rule = transitionRule(from as (typeof STATES)[number], on);
      const legal = rule !== undefined && rule.to === to && (rule.by as readonly string[]).includes(by);
      return (result === 'accepted') !== legal;
    });
    expect(wrong).toEqual([]);
  });

  test('a fact that the move may not write is refused, and nothing is left behind', async () => {
    const row = await db.createRun();
    await expect(
      db.move('preflight', row, 'request_loaded', 'preflight', { parked_reason: 'effect_differs' }),
    ).rejects.toMatchObject({ code: 'CS002' });
    expect((await db.stores.preflight.load(row.run_id))?.manifest).toMatchObject({ state: 'queued', revision: 1 });
  });

  test('a stop without its reason is refused', async () => {
    const row = await db.createRun();
    await expect(db.move('preflight', row, 'checks_failed', 'failed')).rejects.toMatchObject({ code: 'CS002' });
  });

  test('dispatch and decision cannot be committed through the general door', async () => {
    const approved = await db.toApproved();
    await expect(db.move('executor', approved, 'dispatched', 'executing')).rejects.toMatchObject({ code: 'CS001' });
  });
});
