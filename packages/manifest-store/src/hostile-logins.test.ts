import { digestOf, type HotRow, type RunId } from '@counterstamp/manifest-core';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import {
  fixedAction,
  newRun,
  type StoreFixture,
  settableClock,
  storeFixture,
  testIds,
} from '../../../testing/store-fixture.ts';
import { verifyHistory } from './history.ts';

/** What a service that was taken over, or is merely wrong, must not be able to make the database believe. */
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
  const reason = { stop_reason: { code: 'external_result_uncertain' as const, message: 'm' } };
  const outcome = (attempt_id: string, status: 'succeeded' | 'rejected' | 'not_sent' | 'uncertain') => ({
    attempt_outcome: { attempt_id, status, provider_ref: null, response: null },
  });
  async function toVerifying(): Promise<HotRow> {
    const { row, attempt_id } = await db.toExecuting();
    return await db.move('executor', row, 'effect_accepted', 'verifying', outcome(attempt_id, 'succeeded'));
  }
  async function toUncertain(): Promise<{ row: HotRow; attempt_id: string }> {
    const { row, attempt_id } = await db.toExecuting();
    const uncertain = await db.move('executor', row, 'outcome_uncertain', 'needs_reconciliation', {
      ...outcome(attempt_id, 'uncertain'),
      ...reason,
    });
    return { row: uncertain, attempt_id };
  }

  test('completed-means-observed: nothing completes without an observation that says matched', async () => {
    const row = await toVerifying();
    await expect(db.move('verifier', row, 'effect_verified', 'completed', {}, null)).rejects.toMatchObject({
      code: 'CS002',
    });
    const mismatched = { observation: { kind: 'mismatched' as const, provider_ref: null, body: {} } };
    await expect(db.move('verifier', row, 'effect_verified', 'completed', mismatched, null)).rejects.toMatchObject({
      code: 'CS002',
    });
  });

  test.each([
    ['effect_accepted', 'verifying', 'uncertain'],
    ['effect_rejected', 'failed', 'succeeded'],
    ['nothing_sent', 'needs_reconciliation', 'succeeded'],
    ['outcome_uncertain', 'needs_reconciliation', 'not_sent'],
  ] as const)(
    '%s closes its attempt as nothing but its own status, and never leaves it open',
    async (on, to, status) => {
      const { row, attempt_id } = await db.toExecuting();
      await expect(db.move('executor', row, on, to, { ...reason })).rejects.toMatchObject({ code: 'CS002' });
      const facts =
        on === 'effect_accepted' ? outcome(attempt_id, status) : { ...outcome(attempt_id, status), ...reason };
      await expect(db.move('executor', row, on, to, facts)).rejects.toMatchObject({ code: 'CS002' });
    },
  );

  test.each([
    ['person_absent', 'failed'],
    ['person_landed', 'verifying'],
    ['person_settled_with_difference', 'failed'],
    ['person_unsure', 'needs_reconciliation'],
  ] as const)('%s has its guards in a function of its own: the general door does not open to it', async (on, to) => {
    const { row } = await toUncertain();
    const operator = await db.principal('operator');
    const facts = {
      observation: { kind: 'person' as const, provider_ref: null, body: {} },
      ...(to === 'failed' ? { stop_reason: { code: 'person_absent' as const, message: 'm' } } : {}),
    };
    await expect(
      db.api.commit(operator, {
        run_id: row.run_id,
        expected: row.revision,
        from: 'needs_reconciliation',
        on,
        to,
        facts,
        wake_in_ms: 1_000,
      }),
    ).rejects.toMatchObject({ code: 'CS001' });
  });

  test('nobody but the reconciler records a retry, nobody records one without its grounds, and none is refused that was not recorded', async () => {
    const { row } = await toUncertain();
    const retry_grounds = {
      observed_at: '2000-01-01T00:00:00.000Z',
      settle_ms: 0,
      retention_ms: 86_400_000,
      reserve_ms: 3_700,
      expiry_margin_ms: 1_200,
      not_sent_retries_max: 5,
    };
    const observation = { kind: 'absent' as const, provider_ref: null, body: {} };
    const recording = { observation, retry_grounds };
    const to = 'needs_reconciliation';
    // Grounds that the database would accept but for the time: settle of none, observed at the load.
    const now = (await db.stores.executor.load(row.run_id))?.now ?? '';
    const deadline = (await manifestOf(row.run_id)).attempts[0]?.call_deadline ?? '';
    const settled = { ...retry_grounds, observed_at: now, settle_ms: Date.parse(now) - Date.parse(deadline) - 1_000 };
    await expect(
      db.move('executor', row, 'retry_recorded', to, { observation, retry_grounds: settled }),
    ).rejects.toMatchObject({ code: 'CS001' });
    await expect(db.move('reconciler', row, 'retry_recorded', to, { observation })).rejects.toMatchObject({
      code: 'CS002',
    });
    await expect(db.move('reconciler', row, 'retry_recorded', to, recording)).rejects.toMatchObject({ code: 'CS004' });
    await expect(db.move('executor', row, 'retry_refused', to, reason)).rejects.toMatchObject({ code: 'CS003' });
    expect(await db.dispatch(row, { retry: { retention_ms: 86_400_000, reserve_ms: 3_700 } })).toMatchObject({
      kind: 'refused',
      code: 'retry_invalid',
      detail: 'no retry is recorded',
    });
  });

  test('no-effect-without-approval: an approval that outlives what the request allows cannot be asked for', async () => {
    let row = await db.createRun({ approval_life_ms: 5_000 });
    row = await db.move('preflight', row, 'request_loaded', 'preflight');
    row = await db.move('preflight', row, 'checks_passed', 'collecting');
    row = await db.move('preflight', row, 'proposal_received', 'proposed', {
      proposal: {
        proposal_id: testIds.id('proposal'),
        author: 'rules',
        author_kind: 'rules',
        body_canonical: '{}',
        body_digest: newRun(await db.principal('requester')).body_digest,
      },
    });
    await expect(
      db.move('preflight', row, 'action_fixed', 'awaiting_approval', fixedAction(row, Date.now(), { lifeMs: 60_000 })),
    ).rejects.toMatchObject({ code: 'CS003' });
  });

  describe('a dispatch', () => {
    test('does not count development keys where the executor is not in development', async () => {
      expect(await db.dispatch(await db.toApproved(), { countDevKeys: false })).toMatchObject({
        kind: 'refused',
        code: 'decisions_insufficient',
      });
    });
    test('does not count an approval whose key was revoked since', async () => {
      const who = await db.principal('approver', 'loses the key');
      const row = await db.approve(await db.toAwaitingApproval(), who);
      await db.owner`update cs.api_key set revoked_at = cs.clock() where principal_id = ${who.principal_id}`;
      expect(await db.dispatch(row)).toMatchObject({ kind: 'refused', code: 'decisions_insufficient' });
    });
    test('after a rejection is refused even if somebody wrote the run back', async () => {
      const row = await db.approve(await db.toAwaitingApproval({}, { approvals: 2 }));
      const second = await db.approve(row, await db.principal('approver', 'second approver'));
      await db.owner.unsafe(
        `alter table cs.decision disable trigger user; update cs.decision set decision = 'reject' where run_id = '${row.run_id.slice(4)}' and revision = ${second.revision}; alter table cs.decision enable trigger user`,
      );
      expect(await db.dispatch(second)).toMatchObject({ kind: 'refused', code: 'approval_invalid' });
    });
    test('too close to its expiry, or with an operation that the run may not use, is refused', async () => {
      const clock = await settableClock(db);
      const late = await db.toApproved({}, { lifeMs: 60_000 });
      await clock.advanceMs(58_900);
      expect(await db.dispatch(late)).toMatchObject({ kind: 'refused', code: 'expires_too_soon' });
      await db.owner`delete from public.test_clock`;
      const narrow = await db.toApproved({ allowed_operations: ['read_order'] });
      expect(await db.dispatch(narrow)).toMatchObject({ kind: 'refused', code: 'operation_unavailable' });
    });
    test('at-most-one-effect: a successor is refused for good once its predecessor was reopened by a late effect', async () => {
      const requester = await db.principal('requester');
      const first = { ...newRun(requester) };
      const gone = await db.dispatch(await db.toApproved(first));
      if (gone.kind !== 'committed') throw new Error('not dispatched');
      const attempt_id = (await manifestOf(gone.row.run_id)).attempts[0]?.attempt_id ?? '';
      await db.move(
        'executor',
        gone.row,
        'effect_rejected',
        'failed',
        { ...outcome(attempt_id, 'rejected'), stop_reason: { code: 'effect_rejected', message: 'm' } },
        null,
      );
      const clock = await settableClock(db);
      await clock.advanceMs(60_000);
      await db.stores.reconciler.audit({
        tenant_id: 'shop_north',
        principal_id: null,
        run_id: gone.row.run_id,
        what: 'closure_audit',
        code: 'looked',
        detail: { observed_at: (await db.stores.reconciler.load(gone.row.run_id))?.now ?? '' },
      });
      const successor = await db.toApproved({ request_id: first.request_id, supersedes: gone.row.run_id });
      const late = { run_id: gone.row.run_id, attempt_id, applied: true, provider_ref: 're_1', body: {} };
      expect(await db.stores.executor.appendEvidence(late)).toBe('reopened');
      expect(await db.dispatch(successor)).toMatchObject({ kind: 'refused', code: 'other_generation_open' });
      await db.owner`delete from public.test_clock`;
    });
    test('takes no idempotency key but the one of its action, and no digest but that of its bytes', async () => {
      const row = await db.toApproved();
      await expect(db.dispatch(row, { forged: { idempotency_key: 'cs-another' } })).rejects.toMatchObject({
        code: 'CS003',
      });
      const request_digest = digestOf('cs.request-bytes.v1', 'other bytes');
      await expect(db.dispatch(row, { forged: { request_digest } })).rejects.toMatchObject({ code: 'CS003' });
      expect(await db.dispatch(row)).toMatchObject({ kind: 'committed' });
    });
  });

  describe('a vote', () => {
    test('without the digests that were shown is none', async () => {
      const row = await db.toAwaitingApproval();
      const approver = await db.principal('approver');
      const { approval } = await manifestOf(row.run_id);
      const bare = {
        approval_id: approval?.approval_id,
        decision_id: testIds.id('decision'),
        decision: 'approve',
        method: 'dev_key',
      };
      const [answer] = await db.serviceSql.api<{ result: string }[]>`
        select result from cs.commit_decision(${approver.tenant_id}, ${approver.principal_id}, ${row.run_id.slice(4)}::uuid, ${JSON.stringify(bare)}::text::jsonb, 1000)`;
      expect(answer?.result).toBe('digest_mismatch');
    });
    test('by the author of a proposal for the run is self-approval, whoever requested it', async () => {
      const row = await db.toAwaitingApproval();
      const author = await db.principal('approver', 'also proposes');
      await db.owner`insert into cs.proposal (proposal_id, run_id, revision, author, author_kind, body_canonical, body_digest)
        values (${testIds.id('proposal')}, ${row.run_id.slice(4)}::uuid, ${row.revision}, ${author.principal_id}, 'external', '{}', 'sha256:00')`;
      await expect(db.approve(row, author)).rejects.toThrow('self_approval');
    });
  });

  test('a late effect is kept although another late outcome was kept before, and a run parked as not found says so', async () => {
    const { row, attempt_id } = await toUncertain();
    const late = { run_id: row.run_id, attempt_id, provider_ref: null, body: { status: 500 } };
    expect(await db.stores.executor.appendEvidence({ ...late, applied: false })).toBe('appended');
    await db.move(
      'reconciler',
      row,
      'parked',
      'needs_reconciliation',
      { stop_reason: { code: 'effect_not_found', message: 'm' }, parked_reason: 'effect_not_found' },
      null,
    );
    expect(await db.stores.executor.appendEvidence({ ...late, applied: true })).toBe('reopened');
    expect(await manifestOf(row.run_id)).toMatchObject({
      state: 'needs_reconciliation',
      parked_reason: 'late_effect_found',
      stop_reason: { code: 'late_effect_found' },
    });
  });

  test('never_sent is vetoed by late evidence although every attempt says not_sent', async () => {
    const { row, attempt_id } = await db.toExecuting();
    const unsent = await db.move('executor', row, 'nothing_sent', 'needs_reconciliation', {
      ...outcome(attempt_id, 'not_sent'),
      ...reason,
    });
    const late = { run_id: row.run_id, attempt_id, applied: true, provider_ref: null, body: {} };
    expect(await db.stores.executor.appendEvidence(late)).toBe('appended');
    await expect(
      db.move('reconciler', unsent, 'never_sent', 'failed', { stop_reason: { code: 'not_sent', message: 'm' } }, null),
    ).rejects.toMatchObject({ code: 'CS003' });
  });

  test('nothing-stuck: nobody can put a run to sleep that is not theirs, nor for longer than an hour', async () => {
    const { row } = await db.toExecuting();
    for (const service of ['preflight', 'verifier', 'executor', 'reconciler'] as const)
      expect(await db.stores[service].defer(row.run_id, row.revision, 1_000)).toBe(false);
    const queued = await db.createRun({ run_life_ms: 86_400_000 });
    expect(await db.stores.preflight.defer(queued.run_id, queued.revision, 86_000_000)).toBe(true);
    const [wake] = await db.owner<
      { ms: number }[]
    >`select extract(epoch from wake_at - cs.clock())::float8 * 1000 as ms from cs.run where run_id = ${queued.run_id.slice(4)}::uuid`;
    expect(wake?.ms).toBeLessThanOrEqual(3_600_000);
  });

  test('a worker writes no audit event in a person’s name, and every audit event names the login’s service', async () => {
    const entry = {
      tenant_id: 'shop_north',
      principal_id: 'prn_ada',
      run_id: null,
      what: 'decide',
      code: 'recorded',
      detail: {},
    };
    await expect(db.stores.verifier.audit(entry)).rejects.toThrow('may not do this');
    await db.stores.verifier.audit({ ...entry, principal_id: null, code: 'own_words' });
    const rows = await db.owner`select service from cs.audit_event where code = 'own_words'`;
    expect(rows.map((audit) => audit.service)).toEqual(['verifier']);
  });

  test('only an operator of the tenant sets a hold, and a dispatch that passed its check is waited for', async () => {
    const approver = await db.principal('approver');
    await expect(db.api.setHold(approver, '*', 'test')).rejects.toThrow('may not do this');
    const operator = await db.principal('operator');
    const row = await db.toApproved();
    const holder = await db.owner.reserve();
    await holder`begin`;
    await holder`select 1 from cs.run where run_id = ${row.run_id.slice(4)}::uuid for update`;
    const dispatching = db.dispatch(row);
    await expect
      .poll(
        async () =>
          (
            await db.owner`select 1 from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock' and query like '%commit_dispatch%'`
          ).length,
      )
      .toBe(1);
    let held = false;
    const holding = db.api.setHold(operator, '*', 'test').then(() => {
      held = true;
    });
    await expect
      .poll(
        async () =>
          (
            await db.owner`select 1 from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock' and query like '%set_hold%'`
          ).length,
      )
      .toBe(1);
    expect(held).toBe(false);
    await holder`commit`;
    holder.release();
    expect(await dispatching).toMatchObject({ kind: 'committed' });
    await holding;
    expect(await db.dispatch(await db.toApproved())).toMatchObject({ kind: 'refused', code: 'on_hold' });
    await db.api.setHold(operator, '*', null);
  });

  test.each([
    ['state', `state = 'completed', stop_reason = null, decisions_sufficient = false`],
    ['requested_by', `requested_by = 'prn_other'`],
    ['tenant_id', `tenant_id = 'shop_south'`],
    ['connector_version', `connector_version = '9'`],
    ['evidence_complete', `evidence_complete = not evidence_complete`],
  ])('verify-history names a row whose %s was changed without an event', async (field, change) => {
    const row = await toVerifying();
    await db.owner.unsafe(`update cs.run set ${change} where run_id = '${row.run_id.slice(4)}'`);
    const faults = [];
    for await (const report of verifyHistory(db.owner, row.run_id)) faults.push(...report.faults);
    expect(faults).toContainEqual({ kind: 'snapshot_differs', field });
  });
});
