import { eventHash, type HotRow, type RunId, sha256Text, verifyChain } from '@counterstamp/manifest-core';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import {
  evidenceDraft,
  newRun,
  type StoreFixture,
  settableClock,
  storeFixture,
} from '../../../testing/store-fixture.ts';
import { verifyHistory } from './history.ts';

describe.each([18, 15] as const)('on PostgreSQL %i', (version) => {
  let db: StoreFixture;
  beforeAll(async () => {
    db = await storeFixture(version);
  });
  afterAll(() => db.close());

  const manifestOf = async (run_id: RunId) => {
    const loaded = await db.stores.preflight.load(run_id);
    if (loaded === undefined) throw new Error('no run');
    return loaded.manifest;
  };

  test('20 workers × 50 rounds of racing swaps have one winner each, and losers write nothing', async () => {
    let row: HotRow = await db.move('preflight', await db.createRun(), 'request_loaded', 'preflight');
    for (let round = 0; round < 50; round++) {
      const { run_id, revision } = row;
      const tries = await Promise.all(
        Array.from({ length: 20 }, () =>
          db.stores.preflight.commitStage({
            run_id,
            expected: revision,
            from: 'preflight',
            on: 'read_failed',
            to: 'preflight',
            facts: { read_failure: { operation: 'read_order', reason: 'test' } },
            wake_in_ms: 3_000,
          }),
        ),
      );
      const won = tries.filter((outcome) => outcome.kind === 'committed');
      expect(won).toHaveLength(1);
      row = won[0]?.kind === 'committed' ? won[0].row : row;
      expect(row.revision).toBe(revision + 1);
    }
    const manifest = await manifestOf(row.run_id);
    expect(manifest).toMatchObject({ revision: 52, counters: { read_failures: 50 } });
    const events = await db.api.events('shop_north', row.run_id);
    expect(events?.map((event) => event.revision)).toEqual(Array.from({ length: 52 }, (_, i) => i + 1));
  });

  test('legal-moves-only: revision + 1 each, one event per revision, and replaying the events gives the snapshot', async () => {
    const { row, attempt_id } = await db.toExecuting();
    const uncertain = await db.move('executor', row, 'outcome_uncertain', 'needs_reconciliation', {
      attempt_outcome: { attempt_id, status: 'uncertain', provider_ref: null, response: { reason: 'timeout' } },
      stop_reason: { code: 'external_result_uncertain', message: 'm' },
    });
    await db.move('reconciler', uncertain, 'effect_found', 'verifying', {
      observation: { kind: 'found', provider_ref: 're_1', body: {} },
    });
    const events = (await db.api.events('shop_north', row.run_id)) ?? [];
    const replayed: Record<string, unknown> = {};
    for (const event of events) Object.assign(replayed, JSON.parse(event.payload).set, { revision: event.revision });
    const [snapshot] = await db.owner<
      { row: Record<string, unknown> }[]
    >`select to_jsonb(r) as row from cs.run r where run_id = ${row.run_id.slice(4)}::uuid`;
    expect(Object.keys(replayed)).toEqual(
      expect.arrayContaining([
        'state',
        'action_revision',
        'attempts',
        'evidence_complete',
        'stop_reason',
        'in_flight_key',
      ]),
    );
    for (const [name, value] of Object.entries(replayed)) {
      const stored = snapshot?.row[name] ?? null;
      const instant = name.endsWith('_at') && value !== null;
      const comparable = (of: unknown) => (instant && typeof of === 'string' ? Date.parse(of) : of);
      expect(comparable(stored), name).toEqual(comparable(value));
    }
    expect(events.map((event) => event.to)).toEqual([
      'queued', 'preflight', 'collecting', 'collecting', 'proposed', 'awaiting_approval', 'awaiting_approval', 'executing', 'needs_reconciliation', 'verifying',
    ]); // biome-ignore format: one line
  });

  test('the event hash in SQL is the published format that TypeScript computes', async () => {
    const row = await db.toAwaitingApproval();
    const events = (await db.api.events('shop_north', row.run_id)) ?? [];
    for (const event of events) {
      expect(event.payload_digest).toBe(sha256Text(event.payload));
      expect(event.hash).toBe(eventHash(event));
    }
    expect(verifyChain(events, (await manifestOf(row.run_id)).chain_head)).toEqual([]);
  });

  describe('chain-unbroken: verification names', () => {
    // The owner switches the guard off: what remains is what somebody with the database in hand could do.
    const tampered = async (statement: (run: string) => string) => {
      const row = await db.toAwaitingApproval();
      const run = row.run_id.slice(4);
      await db.owner.unsafe(
        `alter table cs.run_event disable trigger user; ${statement(run)}; alter table cs.run_event enable trigger user`,
      );
      const reports = [];
      for await (const report of verifyHistory(db.owner, row.run_id)) reports.push(report);
      return reports[0]?.faults;
    };
    test('nothing where nothing was touched', async () => {
      expect(await tampered(() => 'select 1')).toEqual([]);
    });
    test('a changed event', async () => {
      expect(
        await tampered(
          (run) => `update cs.run_event set actor = 'somebody/else' where run_id = '${run}' and revision = 3`,
        ),
      ).toEqual([{ kind: 'event_changed', revision: 3 }]);
    });
    test('a changed payload', async () => {
      expect(
        await tampered(
          (run) =>
            `update cs.run_event set payload = replace(payload, 'preflight', 'preflighT') where run_id = '${run}' and revision = 2`,
        ),
      ).toEqual([{ kind: 'payload_changed', revision: 2 }]);
    });
    test('a removed event', async () => {
      expect(await tampered((run) => `delete from cs.run_event where run_id = '${run}' and revision = 3`)).toEqual([
        { kind: 'revision_gap', expected: 3, found: 4 },
        { kind: 'link_broken', revision: 4 },
      ]);
    });
    test('an inserted event', async () => {
      const faults = await tampered(
        (run) =>
          `insert into cs.run_event select run_id, 7, from_state, to_state, trigger, actor, at, payload, payload_digest, hash, 'sha256:00' from cs.run_event where run_id = '${run}' and revision = 6`,
      );
      expect(faults).toEqual([
        { kind: 'event_changed', revision: 7 },
        { kind: 'head_differs', expected: expect.any(String), found: 'sha256:00' },
      ]);
    });
    test('an action whose bytes were replaced together with their digest', async () => {
      const row = await db.toAwaitingApproval();
      const run = row.run_id.slice(4);
      await db.owner.unsafe(`alter table cs.action disable trigger user;
        update cs.action set action_canonical = replace(action_canonical, '4200', '9900'), action = replace(action_canonical, '4200', '9900')::jsonb,
          action_digest = cs.tagged_digest('cs.action.v1', replace(action_canonical, '4200', '9900')) where run_id = '${run}';
        alter table cs.action enable trigger user`);
      const reports = [];
      for await (const report of verifyHistory(db.owner, row.run_id)) reports.push(report);
      expect(reports[0]?.faults).toEqual([{ kind: 'action_changed', action_revision: 6 }]);
    });
  });

  test.each(['run_input', 'evidence', 'proposal', 'action', 'approval_request', 'decision', 'run_event', 'attempt'])(
    '%s is append-only, for the owner too',
    async (table) => {
      await db.toExecuting();
      await expect(db.owner.unsafe(`delete from cs.${table}`)).rejects.toMatchObject({ code: 'CS006' });
      await expect(db.owner.unsafe(`truncate cs.${table} cascade`)).rejects.toMatchObject({ code: 'CS006' });
    },
  );

  test('an attempt closes once, and its bytes never change', async () => {
    const { row, attempt_id } = await db.toExecuting();
    const outcome = { attempt_id, status: 'succeeded' as const, provider_ref: 're_1', response: {} };
    const verifying = await db.move('executor', row, 'effect_accepted', 'verifying', { attempt_outcome: outcome });
    expect(verifying.state).toBe('verifying');
    await expect(
      db.owner`update cs.attempt set status = 'uncertain' where attempt_id = ${attempt_id}`,
    ).rejects.toMatchObject({ code: 'CS006' });
    const other = await db.toExecuting();
    await expect(
      db.owner`update cs.attempt set request_bytes = 'x' where attempt_id = ${other.attempt_id}`,
    ).rejects.toMatchObject({ code: 'CS006' });
  });

  test('nothing-stuck: an open run without a wake-up and without a parked reason cannot be stored', async () => {
    const row = await db.createRun();
    await expect(db.move('preflight', row, 'request_loaded', 'preflight', undefined, null)).rejects.toMatchObject({
      constraint_name: 'run_due_or_parked',
    });
    expect((await manifestOf(row.run_id)).revision).toBe(1);
  });

  describe('no-effect-without-approval: a dispatch is refused', () => {
    test('without a decision', async () => {
      expect(await db.dispatch(await db.toAwaitingApproval())).toMatchObject({
        kind: 'refused',
        code: 'decisions_insufficient',
      });
    });
    test('when one of two required approvals is missing, and goes through with both', async () => {
      const one = await db.approve(await db.toAwaitingApproval({}, { approvals: 2 }));
      expect(one.decisions_sufficient).toBe(false);
      expect(await db.dispatch(one)).toMatchObject({ kind: 'refused', code: 'decisions_insufficient' });
      const two = await db.approve(one, await db.principal('approver', 'second approver'));
      expect(await db.dispatch(two)).toMatchObject({ kind: 'committed', attempt_n: 1 });
    });
    test('when the approver was disabled since', async () => {
      const gone = await db.principal('approver', 'leaves tomorrow');
      const row = await db.approve(await db.toAwaitingApproval(), gone);
      await db.owner`update cs.principal set disabled_at = cs.clock() where principal_id = ${gone.principal_id}`;
      expect(await db.dispatch(row)).toMatchObject({ kind: 'refused', code: 'decisions_insufficient' });
    });
    test('when the stored action was changed by somebody with the database in hand', async () => {
      const row = await db.toApproved();
      await db.owner.unsafe(`alter table cs.action disable trigger user; alter table cs.action drop constraint action_digest_is_of_bytes;
        update cs.action set action_canonical = replace(action_canonical, '4200', '9900'), action = replace(action_canonical, '4200', '9900')::jsonb where run_id = '${row.run_id.slice(4)}';
        alter table cs.action enable trigger user`);
      expect(await db.dispatch(row)).toMatchObject({ kind: 'refused', code: 'digest_mismatch' });
      expect((await manifestOf(row.run_id)).attempts).toEqual([]);
    });
    test('when a lower number of required approvals was written into the request', async () => {
      const row = await db.approve(await db.toAwaitingApproval({}, { approvals: 2 }));
      await db.owner.unsafe(
        `alter table cs.approval_request disable trigger user; update cs.approval_request set approvals_required = 1 where run_id = '${row.run_id.slice(4)}'; alter table cs.approval_request enable trigger user`,
      );
      expect(await db.dispatch(row)).toMatchObject({ kind: 'refused', code: 'approval_invalid' });
    });
    test('while a hold is on, and goes through once it is off', async () => {
      const row = await db.toApproved();
      const operator = await db.principal('operator');
      await db.serviceSql
        .api`select cs.set_hold(${operator.tenant_id}, ${operator.principal_id}, 'sandbox-payments', 'test')`;
      expect(await db.dispatch(row)).toMatchObject({ kind: 'refused', code: 'on_hold' });
      await db.serviceSql
        .api`select cs.set_hold(${operator.tenant_id}, ${operator.principal_id}, 'sandbox-payments', null)`;
      expect(await db.dispatch(row)).toMatchObject({ kind: 'committed' });
    });
    test('at a revision that is no longer the present one', async () => {
      const row = await db.toApproved();
      expect(await db.dispatch({ ...row, revision: row.revision - 1 })).toEqual({ kind: 'stale_revision' });
    });
  });

  test('one-in-flight: a resource held by another run refuses the dispatch until the effect is identified, then lets it pass', async () => {
    const resource = 'shop_north/sandbox-payments/pay_one';
    const first = await db.dispatch(await db.toApproved({}, { resource }));
    const waiting = await db.toApproved({}, { resource });
    expect(await db.dispatch(waiting)).toMatchObject({ kind: 'refused', code: 'resource_busy' });
    expect(await db.stores.executor.defer(waiting.run_id, waiting.revision, 250)).toBe(true);
    if (first.kind !== 'committed') throw new Error('the first was not dispatched');
    const attempt_id = (await manifestOf(first.row.run_id)).attempts[0]?.attempt_id ?? '';
    await db.move('executor', first.row, 'effect_accepted', 'verifying', {
      attempt_outcome: { attempt_id, status: 'succeeded', provider_ref: 're_1', response: {} },
    });
    expect(await db.dispatch(waiting)).toMatchObject({ kind: 'committed' });
  });

  test('one-in-flight: ten dispatches at once on one resource have one winner', async () => {
    const resource = 'shop_north/sandbox-payments/pay_race';
    const rows = [];
    for (let i = 0; i < 10; i++) rows.push(await db.toApproved({}, { resource }));
    const outcomes = await Promise.all(rows.map((row) => db.dispatch(row)));
    expect(outcomes.filter((outcome) => outcome.kind === 'committed')).toHaveLength(1);
    expect(outcomes.filter((outcome) => outcome.kind === 'refused' && outcome.code === 'resource_busy')).toHaveLength(
      9,
    );
  });

  test('defer moves wake_at only while the revision stands, and writes no event', async () => {
    const row = await db.createRun();
    expect(await db.stores.preflight.defer(row.run_id, row.revision, 60_000)).toBe(true);
    expect(await db.stores.preflight.defer(row.run_id, row.revision + 1, 60_000)).toBe(false);
    expect((await db.api.events('shop_north', row.run_id))?.length).toBe(1);
  });

  test('the sweeper claims due runs once, and names what is overdue', async () => {
    const clock = await settableClock(db);
    const quiet = await db.createRun();
    const asked = await db.toAwaitingApproval({}, { lifeMs: 20_000 });
    const { row: sent } = await db.toExecuting();
    await clock.advanceMs(30_000);
    const claim = () =>
      db.stores.reconciler.claimDue({
        limit: 500,
        rehint_min_ms: 3_000,
        rehint_max_ms: 12_000,
        sweep_grace_ms: 500,
        lease_loss_ms: 1_000,
      });
    const due = new Map((await claim()).due.map((item) => [item.row.run_id, item]));
    expect(due.get(quiet.run_id)).toMatchObject({ overdue: null, row: { state: 'queued' } });
    expect(due.get(asked.run_id)).toMatchObject({ overdue: 'approval' });
    expect(due.get(sent.run_id)).toMatchObject({ overdue: 'attempt', attempt_id: expect.stringMatching(/^att_/) });
    const again = await claim();
    expect(again.due.filter((item) => [quiet.run_id, asked.run_id, sent.run_id].includes(item.row.run_id))).toEqual([]);
    await db.owner`delete from public.test_clock`;
  });

  test('an expiry, a deadline or an overdue attempt cannot be committed before its time', async () => {
    const asked = await db.toAwaitingApproval();
    const reason = (code: 'approval_expired' | 'deadline_exceeded' | 'external_result_uncertain') => ({
      stop_reason: { code, message: 'm' },
    });
    await expect(
      db.move('reconciler', asked, 'approval_expired', 'expired', reason('approval_expired'), null),
    ).rejects.toMatchObject({ code: 'CS004' });
    await expect(
      db.move('reconciler', asked, 'deadline_passed', 'failed', reason('deadline_exceeded'), null),
    ).rejects.toMatchObject({ code: 'CS004' });
    const { row, attempt_id } = await db.toExecuting();
    const attempt_outcome = { attempt_id, status: 'uncertain' as const, provider_ref: null, response: null };
    await expect(
      db.move('reconciler', row, 'attempt_overdue', 'needs_reconciliation', {
        attempt_outcome,
        ...reason('external_result_uncertain'),
      }),
    ).rejects.toThrow('attempt_overdue lost its swap');
  });

  test('expiry behind a held row lock does not dispatch: the clock is read after the wait', async () => {
    const clock = await settableClock(db);
    const row = await db.toApproved({}, { lifeMs: 20_000 });
    const holder = await db.owner.reserve();
    await holder`begin`;
    await holder`select 1 from cs.run where run_id = ${row.run_id.slice(4)}::uuid for update`;
    const waiting = db.dispatch(row);
    // Signal, not sleep: the dispatch is in the lock queue before the time is moved on.
    await expect
      .poll(
        async () =>
          (
            await db.owner`select 1 from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock' and query like '%commit_dispatch%'`
          ).length,
      )
      .toBe(1);
    await clock.advanceMs(25_000);
    await holder`commit`;
    holder.release();
    expect(await waiting).toMatchObject({ kind: 'refused', code: 'approval_expired' });
    expect((await manifestOf(row.run_id)).attempts).toEqual([]);
    await db.owner`delete from public.test_clock`;
  });

  test('an outcome whose swap was lost is kept once, and reopens a run that was closed without it', async () => {
    const { row, attempt_id } = await db.toExecuting();
    await db.move(
      'executor',
      row,
      'effect_rejected',
      'failed',
      {
        attempt_outcome: { attempt_id, status: 'rejected', provider_ref: null, response: {} },
        stop_reason: { code: 'effect_rejected', message: 'm' },
      },
      null,
    );
    const late = {
      run_id: row.run_id,
      attempt_id,
      applied: true,
      provider_ref: 're_1',
      body: { status: 201 },
    };
    expect(await db.stores.executor.appendEvidence(late)).toBe('reopened');
    expect(await db.stores.executor.appendEvidence(late)).toBe('known');
    expect(await manifestOf(row.run_id)).toMatchObject({
      state: 'needs_reconciliation',
      parked_reason: 'late_effect_found',
    });
  });

  test('an outcome that is recorded already is not evidence of anything new, and reopens nothing', async () => {
    const { row, attempt_id } = await db.toExecuting();
    const outcome = { attempt_id, status: 'succeeded' as const, provider_ref: 're_1', response: {} };
    const verifying = await db.move('executor', row, 'effect_accepted', 'verifying', { attempt_outcome: outcome });
    await db.move(
      'verifier',
      verifying,
      'settlement_failed',
      'failed',
      {
        observation: { kind: 'settlement_failed', provider_ref: 're_1', body: {} },
        stop_reason: { code: 'settlement_failed', message: 'm' },
      },
      null,
    );
    const late = {
      run_id: row.run_id,
      attempt_id,
      applied: true,
      provider_ref: 're_1',
      body: { status: 201 },
    };
    expect(await db.stores.executor.appendEvidence(late)).toBe('known');
    expect(await manifestOf(row.run_id)).toMatchObject({ state: 'failed', revision: row.revision + 2 });
  });

  test('a run is not closed as never sent while an attempt may have been, or evidence says so: checked inside the commit', async () => {
    const close = (row: HotRow) =>
      db.move('reconciler', row, 'never_sent', 'failed', { stop_reason: { code: 'not_sent', message: 'm' } }, null);
    const reason = { stop_reason: { code: 'external_result_uncertain' as const, message: 'm' } };
    const closed = (attempt_id: string, status: 'uncertain' | 'not_sent') => ({
      attempt_outcome: { attempt_id, status, provider_ref: null, response: null },
      ...reason,
    });
    const doubted = await db.toExecuting();
    const uncertain = await db.move(
      'executor',
      doubted.row,
      'outcome_uncertain',
      'needs_reconciliation',
      closed(doubted.attempt_id, 'uncertain'),
    );
    await expect(close(uncertain)).rejects.toMatchObject({ code: 'CS003' });
    const unsent = await db.toExecuting();
    const nothing = await db.move(
      'executor',
      unsent.row,
      'nothing_sent',
      'needs_reconciliation',
      closed(unsent.attempt_id, 'not_sent'),
    );
    expect(await close(nothing)).toMatchObject({ state: 'failed' });
  });

  test('each station has its own read attempts: passing the checks starts the count again', async () => {
    let row = await db.move('preflight', await db.createRun(), 'request_loaded', 'preflight');
    row = await db.move('preflight', row, 'read_failed', 'preflight', {
      read_failure: { operation: 'read_order', reason: 'x' },
    });
    expect((await manifestOf(row.run_id)).counters.read_failures).toBe(1);
    row = await db.move('preflight', row, 'checks_passed', 'collecting');
    expect((await manifestOf(row.run_id)).counters.read_failures).toBe(0);
  });

  describe('creating', () => {
    test('the same request and body is the same run; another body is a conflict that leaves nothing but an audit event', async () => {
      const requester = await db.principal('requester');
      const wanted = newRun(requester);
      expect(await db.api.createRun(wanted)).toMatchObject({ kind: 'created' });
      expect(await db.api.createRun({ ...wanted, run_id: newRun(requester).run_id })).toMatchObject({
        kind: 'existing',
        row: { run_id: wanted.run_id },
      });
      const other = {
        ...wanted,
        body_digest: newRun(requester).body_digest.replace(/.$/, '0') as typeof wanted.body_digest,
      };
      expect(await db.api.createRun(other)).toMatchObject({ kind: 'idempotency_conflict', run_id: wanted.run_id });
      const audits = await db.owner`select code from cs.audit_event where run_id = ${wanted.run_id.slice(4)}::uuid`;
      expect(audits.map((row) => row.code)).toEqual(['idempotency_conflict']);
    });
    test('20 identical creates at once make one run', async () => {
      const requester = await db.principal('requester');
      const wanted = newRun(requester);
      const outcomes = await Promise.all(
        Array.from({ length: 20 }, () => db.api.createRun({ ...wanted, run_id: newRun(requester).run_id })),
      );
      expect(outcomes.filter((outcome) => outcome.kind === 'created')).toHaveLength(1);
      expect(outcomes.filter((outcome) => outcome.kind === 'existing')).toHaveLength(19);
    });
    test('a successor only follows a run that was rejected, expired or failed, as the next generation', async () => {
      const requester = await db.principal('requester');
      const wanted = newRun(requester);
      await db.api.createRun(wanted);
      const successor = { ...newRun(requester), request_id: wanted.request_id, supersedes: wanted.run_id };
      expect(await db.api.createRun(successor)).toEqual({ kind: 'supersedes_invalid' });
      const queued = await db.api.createRun(wanted);
      if (queued.kind !== 'existing') throw new Error('the first run is gone');
      await db.move(
        'preflight',
        queued.row,
        'checks_failed',
        'failed',
        { stop_reason: { code: 'request_closed', message: 'm' } },
        null,
      );
      expect(await db.api.createRun(successor)).toMatchObject({ kind: 'created' });
      expect(await manifestOf(successor.run_id)).toMatchObject({ generation: 2, supersedes: wanted.run_id });
    });
  });

  describe('deciding', () => {
    const ballot = async (row: HotRow, change: Record<string, unknown> = {}) => {
      const { approval } = await manifestOf(row.run_id);
      if (approval === null) throw new Error('no approval');
      return {
        run_id: row.run_id, approval_id: approval.approval_id, decision_id: `dec_${Math.random()}`, decision: 'approve' as const, method: 'dev_key' as const, break_glass: false, assertion: null,
        approval_digest: approval.approval_digest, action_digest: approval.action_digest, action_revision: approval.action_revision, reason: null, ...change,
      }; // biome-ignore format: one ballot
    };
    test('20 parallel approvals by one person are one decision, and every answer says so', async () => {
      const row = await db.toAwaitingApproval();
      const approver = await db.principal('approver');
      const outcomes = await Promise.all(
        Array.from({ length: 20 }, async () => db.api.decide(approver, await ballot(row), 3_000)),
      );
      expect(outcomes.filter((outcome) => outcome.result === 'recorded')).toHaveLength(1);
      expect(outcomes.filter((outcome) => outcome.result === 'repeated')).toHaveLength(19);
      expect((await manifestOf(row.run_id)).approval?.decisions).toHaveLength(1);
    });
    test('an approve and a reject at once: one wins, and a run is never both', async () => {
      for (let round = 0; round < 10; round++) {
        const row = await db.toAwaitingApproval();
        const [yes, no] = [await db.principal('approver'), await db.principal('approver', 'second approver')];
        const outcomes = await Promise.all([
          db.api.decide(yes, await ballot(row), 3_000),
          db.api.decide(no, await ballot(row, { decision: 'reject' }), 3_000),
        ]);
        const { state, approval } = await manifestOf(row.run_id);
        expect(state).toBe('rejected');
        expect(outcomes[1].result).toBe('recorded');
        expect(approval?.decisions.length).toBe(outcomes[0].result === 'recorded' ? 2 : 1);
      }
    });
    test.each([
      ['another action digest', { action_digest: `sha256:${'0'.repeat(64)}` }, 'digest_mismatch'],
      ['another approval digest', { approval_digest: `sha256:${'0'.repeat(64)}` }, 'digest_mismatch'],
      ['another action revision', { action_revision: 5 }, 'digest_mismatch'],
      ['an unknown approval', { approval_id: 'apr_x' }, 'approval_not_found'],
    ])('%s changes nothing and leaves an audit event', async (_, change, result) => {
      const row = await db.toAwaitingApproval();
      const approver = await db.principal('approver');
      expect(await db.api.decide(approver, await ballot(row, change), 3_000)).toMatchObject({ result });
      expect(await manifestOf(row.run_id)).toMatchObject({ state: 'awaiting_approval', revision: row.revision });
      const audits =
        await db.owner`select code from cs.audit_event where run_id = ${row.run_id.slice(4)}::uuid and what = 'decide'`;
      expect(audits.map((audit) => audit.code)).toEqual([result]);
    });
    test('a requester cannot approve, even where somebody gave them an approver key as well', async () => {
      const row = await db.toAwaitingApproval();
      const requester = await db.principal('requester');
      expect(await db.api.decide(requester, await ballot(row), 3_000)).toMatchObject({ result: 'not_an_approver' });
      await db.owner`update cs.principal set kind = 'person' where principal_id = ${requester.principal_id}`;
      await db.principal('approver', 'requester');
      expect(await db.api.decide(requester, await ballot(row), 3_000)).toMatchObject({ result: 'self_approval' });
    });
    test('tenant-walls: an approver of another tenant meets a run that does not exist', async () => {
      const row = await db.toAwaitingApproval();
      const stranger = await db.principal('approver', 'approver', 'shop_south');
      expect(await db.api.decide(stranger, await ballot(row), 3_000)).toMatchObject({ result: 'run_not_found' });
      expect(await db.api.load('shop_south', row.run_id)).toBeUndefined();
      expect(await db.api.events('shop_south', row.run_id)).toBeUndefined();
      expect(await db.api.list('shop_south', { limit: 10 })).toEqual([]);
    });
    test('at exactly expires_at the approval is expired: the late click ends the run and is an audit event', async () => {
      const clock = await settableClock(db);
      const row = await db.toAwaitingApproval({}, { lifeMs: 20_000 });
      const vote = await ballot(row);
      const expires = (await manifestOf(row.run_id)).approval?.expires_at ?? '';
      await clock.set(new Date(Date.parse(expires)));
      expect(await db.api.decide(await db.principal('approver'), vote, 3_000)).toMatchObject({
        result: 'approval_expired',
      });
      expect(await manifestOf(row.run_id)).toMatchObject({
        state: 'expired',
        stop_reason: { code: 'approval_expired' },
        approval: { decisions: [] },
      });
      await db.owner`delete from public.test_clock`;
    });
  });

  test('evidence values sit beside the chain: erasing them leaves history and digests standing', async () => {
    let row = await db.createRun();
    row = await db.move('preflight', row, 'request_loaded', 'preflight');
    row = await db.move('preflight', row, 'checks_passed', 'collecting');
    row = await db.move('preflight', row, 'evidence_recorded', 'collecting', {
      evidence: [evidenceDraft('order_record', { name: 'Ada' })],
      evidence_complete: true,
    });
    await db.owner`delete from cs.evidence_value`;
    const manifest = await manifestOf(row.run_id);
    expect(manifest.evidence[0]).toMatchObject({ facts: null, facts_digest: expect.stringMatching(/^sha256:/) });
    for await (const report of verifyHistory(db.owner, row.run_id)) expect(report.faults).toEqual([]);
  });
});
