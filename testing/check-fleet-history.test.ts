import { type CheckId, checkHistory, type Ledger, type RunHistory } from '@counterstamp/history-checker';
import { digestOf, type HotRow, PROFILES, type RunId, stopReason } from '@counterstamp/manifest-core';
import { readHistories } from '@counterstamp/manifest-store';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { checkFleetHistory, judgeFleetHistory } from './check-fleet-history.ts';
import { type StoreFixture, storeFixture } from './store-fixture.ts';

const durations = PROFILES.fast;
/** As an early dispatch of a fixture finds it. */
const NEW_KEY = { retention_ms: 86_400_000, reserve_ms: 4_000 };

describe.each([18, 15] as const)('histories read from PostgreSQL %i', (version) => {
  let db: StoreFixture;
  beforeAll(async () => {
    db = await storeFixture(version);
  });
  afterAll(() => db.close());

  const attemptOf = async (row: HotRow) => {
    const loaded = await db.stores.executor.load(row.run_id);
    return loaded?.manifest.attempts.at(-1) ?? expect.fail('no attempt');
  };
  const outcome = async (row: HotRow, status: 'succeeded' | 'uncertain' | 'not_sent') => ({
    attempt_id: (await attemptOf(row)).attempt_id,
    status,
    provider_ref: status === 'succeeded' ? 're_1' : null,
    response: { class: status },
  });
  const dispatched = async (row: HotRow, change?: Parameters<StoreFixture['dispatch']>[1]) => {
    const committed = await db.dispatch(row, change);
    return committed.kind === 'committed' ? committed.row : expect.fail(JSON.stringify(committed));
  };
  const uncertain = async (row: HotRow) =>
    await db.move('executor', row, 'outcome_uncertain', 'needs_reconciliation', {
      attempt_outcome: await outcome(row, 'uncertain'),
      stop_reason: stopReason('external_result_uncertain'),
    });

  /** Refused a connection, sent again, accepted, verified. */
  async function completed(): Promise<RunId> {
    let row = await dispatched(await db.toApproved());
    row = await db.move('executor', row, 'nothing_sent', 'needs_reconciliation', {
      attempt_outcome: await outcome(row, 'not_sent'),
      stop_reason: stopReason('not_sent'),
    });
    const grounds = {
      observed_at: null,
      settle_ms: 1_700,
      expiry_margin_ms: 1_200,
      not_sent_retries_max: 5,
      ...NEW_KEY,
    };
    row = await db.move('reconciler', row, 'resend_recorded', 'needs_reconciliation', { retry_grounds: grounds });
    row = await dispatched(row, { retry: NEW_KEY });
    row = await db.move('executor', row, 'effect_accepted', 'verifying', {
      attempt_outcome: await outcome(row, 'succeeded'),
    });
    const observation = { kind: 'matched' as const, provider_ref: 're_1', body: { amount: 4200.5 } };
    row = await db.move('verifier', row, 'effect_verified', 'completed', { observation }, null);
    return row.run_id;
  }

  /** Uncertain, parked, settled by a person as different, and then the late answer. */
  async function settled(): Promise<RunId> {
    let row = await uncertain(await dispatched(await db.toApproved()));
    row = await db.move('reconciler', row, 'parked', 'needs_reconciliation', {
      observation: { kind: 'inconclusive', provider_ref: 're_2', body: {} },
      stop_reason: stopReason('effect_differs'),
      parked_reason: 'effect_differs',
    });
    const effect = { provider_ref: 're_2', status: 'succeeded' };
    const said = await db.api.verdict(await db.principal('operator'), {
      run_id: row.run_id,
      expected: row.revision,
      verdict: 'landed_differently',
      evidence: 'seen in the dashboard',
      observed_at: null,
      provider_ref: 're_2',
      effect,
      effect_digest: digestOf('cs.observed-effect.v1', JSON.stringify(effect)),
      settle_ms: 1_700,
      pause_ms: 500,
      stop_reason: stopReason('settled_with_difference'),
      wake_in_ms: 250,
    });
    expect(said.result).toBe('recorded');
    await db.stores.executor.appendEvidence({
      run_id: row.run_id,
      attempt_id: (await attemptOf(row)).attempt_id,
      applied: true,
      provider_ref: 're_2',
      body: { class: 'applied' },
    });
    return row.run_id;
  }

  const historyOf = async (run_id: RunId): Promise<RunHistory> => {
    // As a service that may read and do nothing else with these tables.
    for await (const { histories } of readHistories(db.serviceSql.verifier, run_id))
      for (const history of histories) if (history.run.run_id === run_id) return history;
    return expect.fail('not read');
  };
  const found = async (run_id: RunId) =>
    checkHistory({ runs: [await historyOf(run_id)], ledger: null, settle: durations }).map(
      ({ check, code }) => `${check} ${code}`,
    );

  test('hold under every check, as the store wrote them: sent again, verified, superseded, settled by a person, answered late', async () => {
    const asked = await db.toAwaitingApproval();
    const runs = [await completed(), await settled(), asked.run_id, (await db.toExecuting()).row.run_id];
    for (const run_id of runs) expect(await found(run_id)).toEqual([]);
    const { late_evidence } = await historyOf(runs[1] ?? expect.fail('none'));
    expect(late_evidence).toMatchObject([{ kind: 'late_effect' }]);
    expect((await checkFleetHistory({ sql: db.serviceSql.verifier, ledger: null, durations })).runs).toBe(4);
  });

  test('come page by page, each run once', async () => {
    const made = new Set<string>();
    for (let i = 0; i < 120; i++) made.add((await db.createRun()).run_id);
    const read: string[] = [];
    const sizes: number[] = [];
    for await (const { histories } of readHistories(db.serviceSql.verifier)) {
      read.push(...histories.map(({ run }) => run.run_id));
      sizes.push(histories.length);
    }
    expect(sizes.slice(0, -1)).toEqual([100]);
    expect(new Set(read).size).toBe(read.length);
    expect([...made].every((run_id) => read.includes(run_id))).toBe(true);
  });

  test('of one run come with the other generations of its request, and with no other', async () => {
    const first = await db.toAwaitingApproval();
    await db.move(
      'executor',
      first,
      'dispatch_refused',
      'failed',
      { stop_reason: stopReason('precondition_failed') },
      null,
    );
    const { run } = await historyOf(first.run_id);
    const second = await db.createRun({ request_id: run.request_id, supersedes: first.run_id });
    const ids: string[] = [];
    for await (const { histories } of readHistories(db.owner, second.run_id))
      ids.push(...histories.map((history) => history.run.run_id));
    expect(ids.sort()).toEqual([first.run_id, second.run_id].sort());
    for await (const page of readHistories(db.owner, 'run_00000000-0000-7000-8000-00000000dead' as RunId))
      expect.fail(`read ${page.histories.length} of a run that does not exist`);
  });

  /** As the owner, past the triggers that keep history append-only. */
  const tamper = async (table: string, statement: string) =>
    await db.owner.unsafe(
      `alter table cs.${table} disable trigger user; ${statement}; alter table cs.${table} enable trigger user`,
    );

  test.each<[string, string, (run: string) => string, CheckId[]]>([
    [
      'an event was removed',
      'run_event',
      (run) => `delete from cs.run_event where run_id = '${run}' and revision = 4`,
      ['H1', 'H12'],
    ],
    [
      'an event was changed into an illegal move',
      'run_event',
      (run) => `update cs.run_event set trigger = 'effect_verified' where run_id = '${run}' and revision = 3`,
      ['H2', 'H12'],
    ],
    [
      'the row was moved on without an event',
      'run',
      (run) =>
        `update cs.run set state = 'failed', stop_reason = '{"code": "person_absent", "message": "m"}' where run_id = '${run}'`,
      ['H1', 'H9', 'H12'],
    ],
    [
      'an attempt’s outcome was changed',
      'attempt',
      (run) => `update cs.attempt set status = 'uncertain' where run_id = '${run}' and n = 1`,
      ['H12'],
    ],
    [
      'an attempt was given another key',
      'attempt',
      (run) => `update cs.attempt set idempotency_key = 'cs-1' where run_id = '${run}' and n = 2`,
      ['H5', 'H12'],
    ],
    [
      'an attempt was given other bytes, with their digest',
      'attempt',
      (run) =>
        `update cs.attempt set request_bytes = 'x', request_digest = 'sha256:' || encode(sha256('cs.request-bytes.v1'::bytea || '\\x00'::bytea || 'x'), 'hex') where run_id = '${run}' and n = 2`,
      ['H5', 'H12'],
    ],
    ['an attempt was removed', 'attempt', (run) => `delete from cs.attempt where run_id = '${run}' and n = 1`, ['H12']],
    ['the decision was removed', 'decision', (run) => `delete from cs.decision where run_id = '${run}'`, ['H6', 'H12']],
    [
      'the decision was turned',
      'decision',
      (run) => `update cs.decision set decision = 'reject' where run_id = '${run}'`,
      ['H6', 'H12'],
    ],
    [
      'the approval was made to last longer',
      'approval_request',
      (run) => `update cs.approval_request set expires_at = expires_at + interval '1 hour' where run_id = '${run}'`,
      ['H6'],
    ],
    [
      'the approval had expired',
      'attempt',
      (run) =>
        `update cs.attempt a set started_at = q.expires_at, call_deadline = q.expires_at + interval '1 s' from cs.approval_request q where q.run_id = a.run_id and a.run_id = '${run}' and a.n = 2`,
      ['H6', 'H8', 'H12'],
    ],
    [
      'the matching read was removed',
      'observation',
      (run) => `delete from cs.observation where run_id = '${run}'`,
      ['H8', 'H12'],
    ],
    [
      'evidence of an effect was slipped in before the retry',
      'evidence',
      (run) =>
        `insert into cs.evidence (evidence_id, run_id, revision, round, kind, source_ref, observed_at, trusted, facts_digest, attempt_id) select 'evd_' || attempt_id, run_id, revision, 0, 'late_effect', 'x', started_at, true, 'x', attempt_id from cs.attempt where run_id = '${run}' and n = 1`,
      ['H10'],
    ],
  ])('show when %s', async (_, table, statement, expected) => {
    const run_id = await completed();
    expect(await found(run_id)).toEqual([]);
    await tamper(table, statement(run_id.slice(4)));
    const checks = (await found(run_id)).map((one) => one.split(' ', 1)[0]);
    expect([...new Set(checks)]).toEqual(expected);
  });

  test('show a run that nobody will come back to, once its constraint is gone', async () => {
    const { run_id } = await db.createRun();
    await db.owner.unsafe(
      `alter table cs.run drop constraint run_due_or_parked; update cs.run set wake_at = null where run_id = '${run_id.slice(4)}'`,
    );
    expect(await found(run_id)).toEqual(['H11 stuck']);
    await db.owner.unsafe(`update cs.run set wake_at = cs.clock() where run_id = '${run_id.slice(4)}'`);
  });

  test('are judged against a ledger, and the assertion tells the story of each run that it blames', async () => {
    const run_id = await completed();
    const { attempts, run } = await historyOf(run_id);
    const second = attempts[1] ?? expect.fail('no second attempt');
    const request = {
      provider: run.connector,
      seq: 1,
      arrived_at: second.started_at,
      run_id,
      idempotency_key: second.idempotency_key,
      body_digest: second.request_digest,
    };
    const effect = {
      provider: run.connector,
      ref: 're_1',
      request_seq: 1,
      run_id,
      idempotency_key: second.idempotency_key,
      action_digest: second.action_digest,
      settlement: 'final' as const,
      fields: { amount_minor: 4200, currency: 'USD' },
    };
    const judged = (ledger: Omit<Ledger, 'since'>, change: Partial<Parameters<typeof checkFleetHistory>[0]> = {}) =>
      checkFleetHistory({
        sql: db.serviceSql.verifier,
        ledger: () => Promise.resolve({ since: null, ...ledger }),
        durations,
        only: [run_id],
        ...change,
      });
    expect(await judged({ requests: [request], effects: [effect] })).toMatchObject({ runs: 1, violations: [] });

    const twice = {
      requests: [request, { ...request, seq: 2 }],
      effects: [effect, { ...effect, ref: 're_9', request_seq: 2 }],
    };
    const failure = await judged(twice).catch(String);
    expect(failure).toContain('H3 key_twice');
    expect(failure).toContain('H7 sent_twice');
    expect(failure).toMatch(/ attempt {3}attempt 1 is not_sent$/m);
    expect(failure).toMatch(/ provider {2}request 2 arrived at sandbox-payments: re_9 \(now final\)$/m);
    await judged(twice, { expected: ({ check }) => check === 'H3' || check === 'H7' });

    const body = { ...request, body_digest: digestOf('cs.request-bytes.v1', 'y') };
    await expect(judged({ requests: [body], effects: [effect] })).rejects.toThrow(/H5 body_differs/);

    const late = { ...request, arrived_at: new Date(Date.parse(second.call_deadline) + 1_502).toISOString() };
    const alarmed = await judged({ requests: [late], effects: [] }, { expected: ({ check }) => check === 'H8' });
    expect(alarmed.violations.map(({ check, severity }) => `${check} ${severity}`)).toEqual([
      'H4 alarm',
      'H8 violation',
    ]);
  });

  test('are judged as overdue only against a bound', async () => {
    const { run_id } = await db.createRun({ wake_in_ms: 1 });
    const judge = (overdue_ms?: number) =>
      judgeFleetHistory({
        sql: db.serviceSql.verifier,
        ledger: null,
        durations,
        only: [run_id],
        ...(overdue_ms === undefined ? {} : { overdue_ms }),
      });
    expect((await judge()).violations).toEqual([]);
    expect((await judge(60_000)).violations).toEqual([]);
    await expect.poll(async () => (await judge(1)).violations).toMatchObject([{ check: 'H11', code: 'overdue' }]);
  });
});
