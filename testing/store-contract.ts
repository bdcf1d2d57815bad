import {
  type AttemptOutcomeDraft,
  type CommitFacts,
  canonicalJson,
  type DispatchCommit,
  type DispatchOutcome,
  type DispatchRefusal,
  digestOf,
  epochMs,
  type HotRow,
  idempotencyKey,
  type JsonObject,
  type Manifest,
  type NewRun,
  type RetryGrounds,
  type RunId,
  type Service,
  type StageCommit,
  type StopReasonCode,
  type Store,
  stopReason,
  type Trigger,
  transitionRule,
  verifyChain,
} from '@counterstamp/manifest-core';
import type { ApiStore, Principal, Role, VerdictCommit } from '@counterstamp/manifest-store';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { ACTION, evidenceDraft, fixedAction, newRun } from './store-fixture.ts';
import { testIds } from './test-ids.ts';

/** A store and the world around it, as far as the protocol's rules need them. */
export interface StoreUnderTest {
  /** Workers' ports; the instances are `ins_preflight`, `ins_executor`, `ins_verifier` and `ins_reconciler`. */
  stores: Record<Exclude<Service, 'api'>, Store>;
  executorOf(instance_id: string): Store;
  api: Pick<
    ApiStore,
    'createRun' | 'load' | 'events' | 'commit' | 'decide' | 'setHold' | 'verdict' | 'support' | 'fence'
  >;
  principal(role: Role, name?: string, tenant?: string): Promise<Principal>;
  /** Takes away what makes an approver eligible. */
  revoke(who: Principal): Promise<void>;
  /** The one clock. It stands still but for this. */
  advanceMs(ms: number): Promise<void>;
  takeLease(instance_id: string): Promise<boolean>;
  /** The session that held the lease is gone. */
  dropLease(instance_id: string): Promise<void>;
  /** A supervisor saw the process end. */
  endProcess(instance_id: string): Promise<void>;
  close(): Promise<void>;
}

const D_MS = 2_000;
const G_MS = 500;
const SETTLE_MS = 1_700;
const MARGIN_MS = 1_200;
const RETENTION_MS = 60_000;
const RESERVE_MS = 3_700;
const Z_MS = 500;
const LEASE_LOSS_MS = 1_000;
const CLAIM = {
  limit: 100,
  rehint_min_ms: 3_000,
  rehint_max_ms: 12_000,
  sweep_grace_ms: G_MS,
  lease_loss_ms: LEASE_LOSS_MS,
};
const KEY: NonNullable<DispatchCommit['retry']> = { retention_ms: RETENTION_MS, reserve_ms: RESERVE_MS };
const STOP = stopReason('external_result_uncertain');
const CODE = (code: string) => expect.objectContaining({ code });

/**
 * What the protocol asks of a store, rule by rule. Postgres and the simulation's memory both pass it, so that what the simulation finds about
 * one holds for the other.
 */
export function describeStore(where: string, start: () => Promise<StoreUnderTest>): void {
  describe(`the store ${where}`, () => {
    let subject: StoreUnderTest;
    let requester: Principal;
    let ada: Principal;
    let olga: Principal;
    let otto: Principal;
    beforeAll(async () => {
      subject = await start();
      requester = await subject.principal('requester', 'agent');
      ada = await subject.principal('approver', 'ada');
      olga = await subject.principal('operator', 'olga');
      otto = await subject.principal('operator', 'otto');
    });
    afterAll(async () => {
      await subject.close();
    });

    // -------------------------------------------------------------------------------------------------------- the way of a run

    const load = async (run_id: RunId): Promise<Manifest> => {
      const loaded = await subject.stores.reconciler.load(run_id);
      if (loaded === undefined) throw new Error('no such run');
      return loaded.manifest;
    };
    const nowMs = async (run_id: RunId): Promise<number> => (await subject.stores.reconciler.load(run_id))?.nowMs ?? 0;
    const create = async (change: Partial<NewRun> = {}): Promise<HotRow> => {
      const outcome = await subject.api.createRun({ ...newRun(requester), ...change });
      if (outcome.kind !== 'created') throw new Error(`not created: ${outcome.kind}`);
      return outcome.row;
    };
    const commitOf = (
      row: HotRow,
      on: Trigger,
      facts: CommitFacts = {},
      wake_in_ms: number | null = 3_000,
    ): StageCommit => ({
      run_id: row.run_id,
      expected: row.revision,
      from: row.state,
      on,
      to: transitionRule(row.state, on)?.to ?? row.state,
      facts,
      wake_in_ms,
    });
    const move = async (
      service: Exclude<Service, 'api'>,
      row: HotRow,
      on: Trigger,
      facts: CommitFacts = {},
      wake_in_ms: number | null = 3_000,
    ): Promise<HotRow> => {
      const outcome = await subject.stores[service].commitStage(commitOf(row, on, facts, wake_in_ms));
      if (outcome.kind !== 'committed') throw new Error(`${on} lost its swap`);
      return outcome.row;
    };
    const toPreflight = async (change?: Partial<NewRun>): Promise<HotRow> =>
      move('preflight', await create(change), 'request_loaded', {
        evidence: [evidenceDraft('request_record', { status: 'open' })],
      });
    const toProposed = async (change?: Partial<NewRun>): Promise<HotRow> => {
      let row = await move('preflight', await toPreflight(change), 'checks_passed');
      const evidence = [evidenceDraft('order_record', { refundable: 4200 })];
      row = await move('preflight', row, 'evidence_recorded', { evidence, evidence_complete: true });
      return await move('preflight', row, 'proposal_received', { proposal: proposal(ACTION) });
    };
    type Wanted = NonNullable<Parameters<typeof fixedAction>[2]>;
    const toAwaiting = async (change?: Partial<NewRun>, wanted?: Wanted): Promise<HotRow> => {
      const row = await toProposed(change);
      return await move('preflight', row, 'action_fixed', fixedAction(row, await nowMs(row.run_id), wanted));
    };
    const decide = async (
      row: HotRow,
      who = ada,
      decision: 'approve' | 'reject' = 'approve',
      change: JsonObject = {},
    ) => {
      const { approval } = await load(row.run_id);
      if (approval === null) throw new Error('nothing to decide');
      const { approval_id, approval_digest, action_digest, action_revision } = approval;
      const shown = { approval_id, approval_digest, action_digest, action_revision, ...change };
      return await subject.api.decide(
        who,
        {
          run_id: row.run_id,
          decision_id: testIds.id('decision'),
          decision,
          method: 'dev_key',
          break_glass: false,
          assertion: null,
          reason: null,
          ...shown,
        },
        3_000,
      );
    };
    const toApproved = async (change?: Partial<NewRun>, wanted?: Wanted): Promise<HotRow> => {
      const { row, result } = await decide(await toAwaiting(change, wanted));
      if (row === null) throw new Error(`not decided: ${result}`);
      return row;
    };
    const dispatchOf = async (row: HotRow, change: Partial<DispatchCommit> = {}): Promise<DispatchCommit> => {
      const { action, action_revision, approval } = await load(row.run_id);
      if (action === null || action_revision === null) throw new Error('no action');
      const request_bytes = change.request_bytes ?? new TextEncoder().encode(action.canonical);
      return {
        run_id: row.run_id,
        expected: row.revision,
        attempt_id: testIds.id('attempt'),
        idempotency_key: idempotencyKey(row.run_id, action_revision, action.digest),
        action_digest: action.digest,
        request_bytes,
        request_digest: digestOf('cs.request-bytes.v1', request_bytes),
        operation: 'refund_order',
        call_deadline_ms: D_MS,
        expiry_margin_ms: MARGIN_MS,
        sweep_grace_ms: G_MS,
        count_dev_keys: true,
        decision_ids: approval?.decisions.map((decision) => decision.decision_id) ?? [],
        approval_digest: approval?.approval_digest ?? digestOf('cs.approval.v1', ''),
        retry: null,
        ...change,
      };
    };
    const dispatch = async (
      row: HotRow,
      change: Partial<DispatchCommit> = {},
      by: Store = subject.stores.executor,
    ): Promise<DispatchOutcome> => by.commitDispatch(await dispatchOf(row, change));
    const dispatched = async (row: HotRow, change: Partial<DispatchCommit> = {}, by?: Store): Promise<HotRow> => {
      const outcome = await dispatch(row, change, by);
      if (outcome.kind !== 'committed') throw new Error(`not dispatched: ${JSON.stringify(outcome)}`);
      return outcome.row;
    };
    const toExecuting = async (change?: Partial<NewRun>, wanted?: Wanted, by?: Store): Promise<HotRow> =>
      dispatched(await toApproved(change, wanted), {}, by);
    const openAttempt = async (row: HotRow): Promise<string> =>
      (await load(row.run_id)).attempts.at(-1)?.attempt_id ?? '';
    const outcomeOf = async (
      row: HotRow,
      status: AttemptOutcomeDraft['status'],
      response: JsonObject = { class: status },
      provider_ref: string | null = null,
    ): Promise<CommitFacts> => ({
      attempt_outcome: { attempt_id: await openAttempt(row), status, provider_ref, response },
    });
    const toUncertain = async (row?: HotRow, response?: JsonObject): Promise<HotRow> => {
      const executing = row ?? (await toExecuting());
      return await move('executor', executing, 'outcome_uncertain', {
        ...(await outcomeOf(executing, 'uncertain', response)),
        stop_reason: STOP,
      });
    };
    const toNotSent = async (row?: HotRow): Promise<HotRow> => {
      const executing = row ?? (await toExecuting());
      return await move('executor', executing, 'nothing_sent', {
        ...(await outcomeOf(executing, 'not_sent')),
        stop_reason: STOP,
      });
    };
    const toSettled = async (): Promise<HotRow> => {
      const row = await toUncertain();
      await subject.advanceMs(D_MS + SETTLE_MS);
      return row;
    };
    const grounds = async (
      row: HotRow,
      change: Partial<RetryGrounds> = {},
    ): Promise<CommitFacts['retry_grounds'] & RetryGrounds> => ({
      observed_at: (await subject.stores.reconciler.load(row.run_id))?.now ?? null,
      settle_ms: SETTLE_MS,
      retention_ms: RETENTION_MS,
      reserve_ms: RESERVE_MS,
      expiry_margin_ms: MARGIN_MS,
      not_sent_retries_max: 2,
      ...change,
    });
    const absent = { kind: 'absent', provider_ref: null, body: { why: 'absent' } } as const;
    const recordRetry = async (row: HotRow, change: Partial<RetryGrounds> = {}) =>
      subject.stores.reconciler.commitStage(
        commitOf(row, 'retry_recorded', { observation: absent, retry_grounds: await grounds(row, change) }),
      );
    const recordResend = async (row: HotRow, change: Partial<RetryGrounds> = {}) =>
      subject.stores.reconciler.commitStage(
        commitOf(row, 'resend_recorded', { retry_grounds: await grounds(row, { observed_at: null, ...change }) }),
      );
    const toRetry = async (): Promise<HotRow> => {
      const outcome = await recordRetry(await toSettled());
      if (outcome.kind !== 'committed') throw new Error('the retry lost its swap');
      return outcome.row;
    };
    const parked = async (row: HotRow, code: StopReasonCode = 'effect_not_found'): Promise<HotRow> =>
      move('reconciler', row, 'parked', { stop_reason: stopReason(code), parked_reason: code }, null);
    const say = async (
      row: HotRow,
      verdict: VerdictCommit['verdict'],
      change: Partial<VerdictCommit> = {},
      who = olga,
    ) =>
      subject.api.verdict(who, {
        run_id: row.run_id,
        expected: row.revision,
        verdict,
        evidence: 'seen at the provider',
        observed_at: (await subject.stores.reconciler.load(row.run_id))?.now ?? null,
        provider_ref: null,
        effect: null,
        effect_digest: null,
        settle_ms: SETTLE_MS,
        pause_ms: Z_MS,
        stop_reason:
          verdict === 'did_not_land'
            ? stopReason('person_absent')
            : verdict === 'landed_differently'
              ? stopReason('settled_with_difference')
              : null,
        wake_in_ms: 3_000,
        ...change,
      });
    const evidence = async (row: HotRow, applied = true, provider_ref: string | null = 're_1') =>
      subject.stores.executor.appendEvidence({
        run_id: row.run_id,
        attempt_id: await openAttempt(row),
        applied,
        provider_ref,
        body: { class: 'applied' },
      });
    const claim = async (row: HotRow) =>
      (await subject.stores.reconciler.claimDue(CLAIM)).due.find((item) => item.row.run_id === row.run_id);
    const events = async (row: HotRow) => (await subject.api.events('shop_north', row.run_id)) ?? [];
    /** Nothing of a refused or lost commit may be left. */
    const unchanged = async <T>(row: HotRow, work: () => Promise<T>): Promise<void> => {
      const [before, history] = [await load(row.run_id), await events(row)];
      await work();
      expect(await load(row.run_id)).toEqual(before);
      expect(await events(row)).toEqual(history);
    };

    // -------------------------------------------------------------------------------------------------------- rule 1

    describe('a swap', () => {
      test('tells how many runs of its tenant are in line: not those of others, those that wait for a person or those that ended', async () => {
        const requester_south = await subject.principal('requester', 'agent_south', 'shop_south');
        const south = newRun(requester_south);
        const asked = await subject.api.createRun(south);
        expect(asked).toMatchObject({ kind: 'created', row: { tenant_in_line: 1 } });
        const before = (await create()).tenant_in_line;
        const row = await create();
        expect(row.tenant_in_line).toBe(before + 1);
        const waiting = await toAwaiting();
        expect(waiting.tenant_in_line).toBe(before + 1);
        const approved = await toApproved();
        expect(approved.tenant_in_line).toBe(before + 2);
        expect(await subject.api.createRun(south)).toMatchObject({ kind: 'existing', row: { tenant_in_line: 1 } });
      });

      test('moves the run on by one revision and one event', async () => {
        const row = await create();
        const after = await move('preflight', row, 'request_loaded', {
          evidence: [evidenceDraft('request_record', {})],
        });
        expect(after).toMatchObject({ state: 'preflight', revision: row.revision + 1 });
        expect(
          (await events(row)).map(({ revision, from, to, trigger, actor }) => [revision, from, to, trigger, actor]),
        ).toEqual([
          [1, null, 'queued', 'request_accepted', `principal/${requester.principal_id}`],
          [2, 'queued', 'preflight', 'request_loaded', 'preflight/ins_preflight'],
        ]);
      });

      test.each<[string, Partial<StageCommit>]>([
        ['another revision', { expected: 1 }],
        ['a revision that is yet to come', { expected: 9 }],
        ['another state', { from: 'collecting' }],
        ['a run that does not exist', { run_id: 'run_00000000-0000-7000-8000-00000000dead' as RunId }],
      ])('on %s is lost and changes nothing', async (_, change) => {
        const row = await toPreflight();
        await unchanged(row, async () =>
          expect(await subject.stores.preflight.commitStage({ ...commitOf(row, 'checks_passed'), ...change })).toEqual({
            kind: 'stale_revision',
          }),
        );
      });

      test('is won by one of two that ask for the same', async () => {
        const row = await toPreflight();
        const both = await Promise.all(
          [1, 2].map(() => subject.stores.preflight.commitStage(commitOf(row, 'checks_passed'))),
        );
        expect(both.map((outcome) => outcome.kind).sort()).toEqual(['committed', 'stale_revision']);
        expect(await load(row.run_id)).toMatchObject({ revision: row.revision + 1 });
      });

      test('chains each event to the one before, up to the row', async () => {
        const row = await toUncertain();
        expect(verifyChain(await events(row), (await load(row.run_id)).chain_head)).toEqual([]);
      });

      test('of another tenant does not find the run', async () => {
        const row = await create();
        expect(await subject.api.load('shop_south', row.run_id)).toBeUndefined();
        expect(await subject.api.events('shop_south', row.run_id)).toBeUndefined();
      });
    });

    // -------------------------------------------------------------------------------------------------------- moves and facts

    describe('a move', () => {
      test('that is in no row of the table is refused, with everything that came with it', async () => {
        const row = await toPreflight();
        await unchanged(row, () =>
          expect(
            subject.stores.verifier.commitStage({ ...commitOf(row, 'effect_verified'), to: 'completed' }),
          ).rejects.toEqual(CODE('CS001')),
        );
        await unchanged(row, () =>
          expect(
            subject.stores.preflight.commitStage({ ...commitOf(row, 'checks_passed'), to: 'completed' }),
          ).rejects.toEqual(CODE('CS001')),
        );
      });

      test('of another service is refused', async () => {
        const row = await toPreflight();
        await unchanged(row, () =>
          expect(subject.stores.verifier.commitStage(commitOf(row, 'checks_passed'))).rejects.toEqual(CODE('CS001')),
        );
      });

      test.each<[Trigger, Service]>([
        ['dispatched', 'executor'],
        ['retry_dispatched', 'executor'],
      ])('%s is no stage’s commit: it has a function of its own', async (on, service) => {
        const row = on === 'dispatched' ? await toApproved() : await toUncertain();
        const port = subject.stores[service as 'executor'];
        await unchanged(row, () =>
          expect(port.commitStage({ ...commitOf(row, on), to: 'executing' })).rejects.toEqual(CODE('CS001')),
        );
      });

      test.each<[string, CommitFacts]>([
        ['a fact that is not its own', { evidence_complete: true }],
        ['an action', { action: { canonical: '{}', digest: digestOf('cs.action.v1', '{}') } }],
      ])('may not write %s', async (_, facts) => {
        const row = await toPreflight();
        await unchanged(row, () =>
          expect(subject.stores.preflight.commitStage(commitOf(row, 'checks_passed', facts))).rejects.toEqual(
            CODE('CS002'),
          ),
        );
      });

      test('must write what it requires', async () => {
        const row = await create();
        await unchanged(row, () =>
          expect(subject.stores.preflight.commitStage(commitOf(row, 'request_loaded'))).rejects.toEqual(CODE('CS002')),
        );
      });

      test('carries its own outcome and no other', async () => {
        const row = await toExecuting();
        const facts = { ...(await outcomeOf(row, 'uncertain')), stop_reason: STOP };
        await unchanged(row, () =>
          expect(subject.stores.executor.commitStage(commitOf(row, 'nothing_sent', facts))).rejects.toEqual(
            CODE('CS002'),
          ),
        );
      });

      test('carries its own observation and no other', async () => {
        const row = await toUncertain();
        const facts: CommitFacts = { observation: { kind: 'absent', provider_ref: null, body: {} } };
        await unchanged(row, () =>
          expect(subject.stores.reconciler.commitStage(commitOf(row, 'effect_found', facts))).rejects.toEqual(
            CODE('CS002'),
          ),
        );
      });

      test('into a stop needs its reason', async () => {
        const row = await create();
        await unchanged(row, () =>
          expect(subject.api.commit(requester, { ...commitOf(row, 'cancelled', {}, null) })).rejects.toEqual(
            CODE('CS003'),
          ),
        );
      });

      test('that refuses a proposal of another run leaves nothing', async () => {
        const row = await toProposed();
        const other = (await load((await toProposed()).run_id)).proposals[0]?.proposal_id ?? '';
        const facts: CommitFacts = { proposal_refusal: { proposal_id: other, code: 'x', message: 'x' } };
        await unchanged(row, () =>
          expect(subject.stores.preflight.commitStage(commitOf(row, 'proposal_refused', facts))).rejects.toEqual(
            CODE('CS003'),
          ),
        );
      });

      test('that would leave an open run without a wake-up and unparked is refused, observation and all', async () => {
        const row = await toUncertain();
        const facts: CommitFacts = { observation: { kind: 'inconclusive', provider_ref: null, body: {} } };
        await unchanged(row, () =>
          expect(
            subject.stores.reconciler.commitStage(commitOf(row, 'look_inconclusive', facts, null)),
          ).rejects.toEqual(CODE('23514')),
        );
      });

      test('counts what it counts, and a stop’s reason is cleared on leaving it', async () => {
        let row = await toUncertain();
        row = await move('reconciler', row, 'look_inconclusive', {
          observation: { kind: 'inconclusive', provider_ref: null, body: {} },
        });
        expect((await load(row.run_id)).counters.look_ups).toBe(1);
        row = await move('reconciler', row, 'effect_found', {
          observation: { kind: 'found', provider_ref: 're_1', body: {} },
        });
        expect(await load(row.run_id)).toMatchObject({
          state: 'verifying',
          stop_reason: null,
          parked_reason: null,
          in_flight_key: null,
        });
      });

      test('from a closed state is illegal, but for reopening', async () => {
        const row = await toAwaiting();
        const { row: rejected } = await decide(row, ada, 'reject');
        if (rejected === null) throw new Error('not rejected');
        for (const on of ['deadline_passed', 'approval_expired'] as const)
          await expect(
            subject.stores.reconciler.commitStage({ ...commitOf(rejected, on, { stop_reason: STOP }), to: 'failed' }),
          ).rejects.toEqual(CODE('CS002'));
      });
    });

    // -------------------------------------------------------------------------------------------------------- approval

    describe('an action', () => {
      test.each<[string, (facts: CommitFacts) => CommitFacts]>([
        ['bound to another revision', (facts) => rebound(facts, (bound) => ({ ...bound, action_revision: 2 }))],
        [
          'bound to another action',
          (facts) => rebound(facts, (bound) => ({ ...bound, action_digest: digestOf('cs.action.v1', 'x') })),
        ],
        ['of another connector', (facts) => rebound(facts, (bound) => ({ ...bound, connector: 'other' }))],
        ['of another tenant', (facts) => rebound(facts, (bound) => ({ ...bound, tenant_id: 'shop_south' }))],
      ])('%s is not fixed', async (_, change) => {
        const row = await toProposed();
        const facts = change(fixedAction(row, await nowMs(row.run_id)));
        await unchanged(row, () =>
          expect(subject.stores.preflight.commitStage(commitOf(row, 'action_fixed', facts))).rejects.toEqual(
            CODE('CS003'),
          ),
        );
      });

      test('whose approval would have expired already lost its swap: the worker asks again', async () => {
        const row = await toProposed();
        const facts = rebound(fixedAction(row, await nowMs(row.run_id)), (bound) => ({
          ...bound,
          expires_at: '2020-01-01T00:00:00.000Z',
        }));
        await unchanged(row, () =>
          expect(subject.stores.preflight.commitStage(commitOf(row, 'action_fixed', facts))).resolves.toEqual({
            kind: 'stale_revision',
          }),
        );
      });

      test('is asked about no longer than its run lives', async () => {
        const row = await toProposed({ run_life_ms: 5_000 });
        const facts = fixedAction(row, await nowMs(row.run_id), { lifeMs: 5_001 });
        await unchanged(row, () =>
          expect(subject.stores.preflight.commitStage(commitOf(row, 'action_fixed', facts))).rejects.toEqual(
            CODE('23514'),
          ),
        );
      });

      test('is asked about no longer than the request permits', async () => {
        const row = await toProposed({ approval_life_ms: 5_000 });
        const tooLong = fixedAction(row, await nowMs(row.run_id), { lifeMs: 5_001 });
        await expect(subject.stores.preflight.commitStage(commitOf(row, 'action_fixed', tooLong))).rejects.toEqual(
          CODE('CS003'),
        );
        await move('preflight', row, 'action_fixed', fixedAction(row, await nowMs(row.run_id), { lifeMs: 5_000 }));
      });

      test('that a new proposal supersedes takes its approval with it', async () => {
        const row = await toApproved();
        const outcome = await subject.api.commit(
          requester,
          commitOf(row, 'proposal_superseded', { proposal: proposal({ ...ACTION, amount_minor: 1 }) }),
        );
        expect(outcome).toMatchObject({ kind: 'committed', row: { state: 'collecting', decisions_sufficient: false } });
        expect(await load(row.run_id)).toMatchObject({
          action: null,
          approval: null,
          action_revision: null,
          resource_key: null,
        });
      });
    });

    describe('a decision', () => {
      test('is one revision, and suffices when enough people made it', async () => {
        const row = await toAwaiting({}, { approvals: 2 });
        const first = await decide(row);
        expect(first).toMatchObject({
          result: 'recorded',
          row: { revision: row.revision + 1, decisions_sufficient: false },
        });
        const second = await decide(row, await subject.principal('approver', 'bo'));
        expect(second).toMatchObject({
          result: 'recorded',
          row: { revision: row.revision + 2, decisions_sufficient: true },
        });
        expect(second.decided).toHaveLength(2);
      });

      test('counts once, and is not taken back', async () => {
        const row = await toAwaiting({}, { approvals: 2 });
        await decide(row);
        expect((await decide(row)).result).toBe('repeated');
        expect((await decide(row, ada, 'reject')).result).toBe('already_decided');
        expect((await load(row.run_id)).revision).toBe(row.revision + 1);
      });

      test('on something else than was asked is refused', async () => {
        const row = await toAwaiting();
        expect((await decide(row, ada, 'approve', { action_digest: digestOf('cs.action.v1', 'x') })).result).toBe(
          'digest_mismatch',
        );
        expect((await decide(row, ada, 'approve', { action_revision: 1 })).result).toBe('digest_mismatch');
        expect((await decide(row, ada, 'approve', { approval_id: 'apr_x' })).result).toBe('approval_not_found');
        expect((await decide(row, requester)).result).toBe('not_an_approver');
      });

      test('against it ends the run', async () => {
        const row = await toAwaiting();
        expect(await decide(row, ada, 'reject')).toMatchObject({
          result: 'recorded',
          row: { state: 'rejected', wake_at: null },
        });
        expect((await decide(row, await subject.principal('approver', 'bo'))).result).toBe('already_decided');
      });

      test('that comes too late expires the run instead', async () => {
        const row = await toAwaiting({}, { lifeMs: 5_000 });
        await subject.advanceMs(5_000);
        expect(await decide(row)).toMatchObject({ result: 'approval_expired', row: { state: 'expired' } });
        expect((await decide(row)).result).toBe('approval_expired');
      });

      test('in one’s own favour does not count', async () => {
        const author = await subject.principal('approver', 'author');
        const row = await toProposed();
        const own = { ...proposal(ACTION), author: author.principal_id, author_kind: 'external' as const };
        let next = await move('preflight', row, 'proposal_refused', {
          proposal_refusal: {
            proposal_id: (await load(row.run_id)).proposals[0]?.proposal_id ?? '',
            code: 'proposal_invalid',
            message: 'x',
          },
        });
        next = await move('preflight', next, 'proposal_received', { proposal: own });
        next = await move('preflight', next, 'action_fixed', fixedAction(next, await nowMs(next.run_id)));
        expect((await decide(next, author)).result).toBe('self_approval');
      });
    });

    // -------------------------------------------------------------------------------------------------------- rule 5c, 6, 11

    describe('a dispatch', () => {
      test('writes attempt and state in one commit, with the deadline that the clock under the lock gives it', async () => {
        const row = await toApproved();
        const outcome = await dispatch(row);
        expect(outcome).toMatchObject({
          kind: 'committed',
          attempt_n: 1,
          budget_ms: D_MS,
          row: { state: 'executing', revision: row.revision + 1 },
        });
        const manifest = await load(row.run_id);
        const [attempt] = manifest.attempts;
        expect(attempt).toMatchObject({
          n: 1,
          revision: row.revision + 1,
          status: 'started',
          instance_id: 'ins_executor',
          closed_at: null,
        });
        expect(epochMs(attempt?.call_deadline ?? '') - epochMs(attempt?.started_at ?? '')).toBe(D_MS);
        expect(manifest.in_flight_key).toBe(manifest.resource_key);
        expect(epochMs(manifest.wake_at ?? '')).toBe(epochMs(attempt?.call_deadline ?? '') + G_MS);
      });

      test('never outlives its approval', async () => {
        const row = await toApproved({}, { lifeMs: 5_000 });
        await subject.advanceMs(3_500);
        expect(await dispatch(row)).toMatchObject({ kind: 'committed', budget_ms: 1_500 });
      });

      test('of an older revision, or of a run in another state, is stale', async () => {
        const row = await toApproved();
        await unchanged(row, async () =>
          expect(await dispatch(row, { expected: row.revision - 1 })).toEqual({ kind: 'stale_revision' }),
        );
        await dispatched(row);
        expect(await dispatch(row)).toEqual({ kind: 'stale_revision' });
        expect(await dispatch({ ...row, revision: row.revision + 1 })).toEqual({ kind: 'stale_revision' });
      });

      test('is won by one of two', async () => {
        const row = await toApproved();
        const both = await Promise.all([dispatch(row), dispatch(row, {}, subject.executorOf('ins_executor_2'))]);
        expect(both.map((outcome) => outcome.kind).sort()).toEqual(['committed', 'stale_revision']);
        expect((await load(row.run_id)).attempts).toHaveLength(1);
      });

      type Refused = [DispatchRefusal, () => Promise<DispatchOutcome>];
      test.each<Refused>([
        ['digest_mismatch', async () => dispatch(await toApproved(), { action_digest: digestOf('cs.action.v1', 'x') })],
        ['decisions_insufficient', async () => dispatch(await toAwaiting())],
        ['decisions_insufficient', async () => dispatch(await toApproved(), { count_dev_keys: false })],
        [
          'decisions_insufficient',
          async () => {
            const who = await subject.principal('approver', `gone_${testIds.uuid()}`);
            const { row } = await decide(await toAwaiting(), who);
            await subject.revoke(who);
            return await dispatch(row ?? (await toApproved()));
          },
        ],
        ['operation_unavailable', async () => dispatch(await toApproved({ allowed_operations: ['read_order'] }))],
        ['operation_unavailable', async () => dispatch(await toApproved(), { operation: 'read_order' })],
        [
          'approval_expired',
          async () => {
            const row = await toApproved({}, { lifeMs: 5_000 });
            await subject.advanceMs(5_000);
            return await dispatch(row);
          },
        ],
        [
          'expires_too_soon',
          async () => {
            const row = await toApproved({}, { lifeMs: 5_000 });
            await subject.advanceMs(5_000 - MARGIN_MS);
            return await dispatch(row);
          },
        ],
        [
          'resource_busy',
          async () => {
            await toExecuting({}, { resource: 'shop_north/busy' });
            return await dispatch(await toApproved({}, { resource: 'shop_north/busy' }));
          },
        ],
      ])('is refused: %s', async (code, work) => {
        expect(await work()).toMatchObject({ kind: 'refused', code });
      });

      test('that is refused writes nothing', async () => {
        const row = await toAwaiting();
        await unchanged(row, () => dispatch(row));
      });

      test.each(['*', 'sandbox-payments'])('waits for a hold on %s', async (scope) => {
        const row = await toApproved();
        await subject.api.setHold(olga, scope, 'maintenance');
        expect(await dispatch(row)).toMatchObject({ kind: 'refused', code: 'on_hold' });
        await subject.api.setHold(olga, scope, null);
        expect(await dispatch(row)).toMatchObject({ kind: 'committed' });
      });

      test('is refused while another generation of the request may have had its effect', async () => {
        const first = await toNotSent();
        const closed = await move('reconciler', first, 'never_sent', { stop_reason: stopReason('not_sent') }, null);
        const { request_id } = await load(first.run_id);
        const second = await toApproved({ request_id, supersedes: first.run_id });
        // Evidence about an attempt that had not been sent, says its executor: whoever is right, the older run is open again.
        const late = await subject.stores.executor.appendEvidence({
          run_id: closed.run_id,
          attempt_id: await openAttempt(closed),
          applied: true,
          provider_ref: 're_1',
          body: {},
        });
        expect(late).toBe('reopened');
        expect(await dispatch(second)).toMatchObject({ kind: 'refused', code: 'other_generation_open' });
      });

      test('with a key or a digest that is not that of its action and bytes is a bug', async () => {
        const row = await toApproved();
        await unchanged(row, () =>
          expect(dispatch(row, { idempotency_key: 'cs-other' })).rejects.toEqual(CODE('CS003')),
        );
        await unchanged(row, () =>
          expect(dispatch(row, { request_digest: digestOf('cs.request-bytes.v1', 'x') })).rejects.toEqual(
            CODE('CS003'),
          ),
        );
      });
    });

    // -------------------------------------------------------------------------------------------------------- rules 8, 12, 13

    describe('an outcome', () => {
      test('closes its attempt once', async () => {
        const row = await toExecuting();
        const facts = await outcomeOf(row, 'succeeded', { class: 'applied' }, 're_1');
        const after = await move('executor', row, 'effect_accepted', facts);
        expect(after.state).toBe('verifying');
        expect((await load(row.run_id)).attempts[0]).toMatchObject({ status: 'succeeded', provider_ref: 're_1' });
        expect(await subject.stores.executor.commitStage(commitOf(row, 'effect_accepted', facts))).toEqual({
          kind: 'stale_revision',
        });
      });

      test('of an attempt that is not open is refused', async () => {
        const row = await toExecuting();
        const facts: CommitFacts = {
          attempt_outcome: { attempt_id: 'att_x', status: 'succeeded', provider_ref: null, response: {} },
        };
        await unchanged(row, () =>
          expect(subject.stores.executor.commitStage(commitOf(row, 'effect_accepted', facts))).rejects.toEqual(
            CODE('CS003'),
          ),
        );
      });

      test('that is a clear rejection ends the run when it is the first', async () => {
        const row = await toExecuting();
        const facts = { ...(await outcomeOf(row, 'rejected')), stop_reason: stopReason('effect_rejected') };
        expect((await move('executor', row, 'effect_rejected', facts)).state).toBe('failed');
      });

      test('that is a clear rejection says nothing about an earlier attempt', async () => {
        const row = await dispatched(await toRetry(), { retry: KEY });
        const facts = { ...(await outcomeOf(row, 'rejected')), stop_reason: stopReason('effect_rejected') };
        await unchanged(row, () =>
          expect(subject.stores.executor.commitStage(commitOf(row, 'effect_rejected', facts))).rejects.toEqual(
            CODE('CS003'),
          ),
        );
      });

      test('not_sent of every attempt may close the run, unless one may have left', async () => {
        const sent = await toUncertain();
        const never = { stop_reason: stopReason('not_sent') };
        await unchanged(sent, () =>
          expect(subject.stores.reconciler.commitStage(commitOf(sent, 'never_sent', never))).rejects.toEqual(
            CODE('CS003'),
          ),
        );
        expect((await move('reconciler', await toNotSent(), 'never_sent', never)).state).toBe('failed');
      });
    });

    // -------------------------------------------------------------------------------------------------------- rule 14, 25

    describe('late evidence', () => {
      test('is kept once per attempt and kind', async () => {
        const row = await toUncertain();
        expect(await evidence(row, false)).toBe('appended');
        expect(await evidence(row, false)).toBe('known');
        expect(await evidence(row)).toBe('appended');
        expect(await evidence(row)).toBe('known');
        expect(
          (await load(row.run_id)).evidence
            .filter((item) => item.round === 0)
            .map((item) => item.kind)
            .sort(),
        ).toEqual(['late_effect', 'late_outcome']);
        expect((await load(row.run_id)).revision).toBe(row.revision);
      });

      test('is known when the outcome was recorded after all', async () => {
        const row = await toExecuting();
        await move('executor', row, 'effect_accepted', await outcomeOf(row, 'succeeded'));
        expect(await evidence(row)).toBe('known');
      });

      test('of an attempt that nobody made is a bug', async () => {
        const row = await toUncertain();
        await expect(
          subject.stores.executor.appendEvidence({
            run_id: row.run_id,
            attempt_id: 'att_x',
            applied: true,
            provider_ref: null,
            body: {},
          }),
        ).rejects.toEqual(CODE('CS003'));
      });

      test('of an effect reopens a run that failed, and parks it', async () => {
        const row = await toUncertain();
        await subject.advanceMs(D_MS + SETTLE_MS);
        await subject.api.support(otto, {
          run_id: row.run_id,
          expected: row.revision,
          kind: 'waive_fencing',
          effect_digest: null,
          reason: 'x',
        });
        expect((await say(row, 'did_not_land')).result).toBe('recorded');
        expect(await evidence(row, false)).toBe('appended');
        expect((await load(row.run_id)).state).toBe('failed');
        expect(await evidence(row)).toBe('reopened');
        expect(await load(row.run_id)).toMatchObject({
          state: 'needs_reconciliation',
          parked_reason: 'late_effect_found',
          wake_at: null,
        });
      });

      test('of an effect is shown to the person who has the run already', async () => {
        const row = await parked(await toUncertain());
        expect(await evidence(row)).toBe('reopened');
        expect(await load(row.run_id)).toMatchObject({
          parked_reason: 'late_effect_found',
          revision: row.revision + 1,
        });
      });

      test('of an effect does not take the word of whoever parked the run for the effect that is there', async () => {
        const row = await parked(await toUncertain(), 'effect_differs');
        expect(await evidence(row)).toBe('appended');
        expect(await load(row.run_id)).toMatchObject({ parked_reason: 'effect_differs', revision: row.revision });
      });

      test('of the very effect that the outcome records reopens nothing', async () => {
        const row = await toUncertain();
        const effect = { provider_ref: 're_1' };
        const settled = await say(row, 'landed_differently', {
          provider_ref: 're_1',
          effect,
          effect_digest: digestOf('cs.body.v1', canonicalJson(effect)),
        });
        expect(settled.result).toBe('recorded');
        expect(await evidence(row)).toBe('appended');
        expect((await load(row.run_id)).state).toBe('failed');
      });
    });

    // -------------------------------------------------------------------------------------------------------- rules 8, 16 to 19

    describe('a retry', () => {
      test('is recorded when absence is settled and the key is known', async () => {
        const outcome = await recordRetry(await toSettled());
        expect(outcome).toMatchObject({
          kind: 'committed',
          row: { state: 'needs_reconciliation', retry_allowed: true },
        });
      });

      test.each<[string, Partial<RetryGrounds>]>([
        ['an observation from the future', { observed_at: '2999-01-01T00:00:00Z' }],
        ['no observation', { observed_at: null }],
        ['an observation before the settle time', { settle_ms: SETTLE_MS + 1 }],
        ['a target that keeps no keys', { retention_ms: null }],
      ])('is refused for %s', async (_, change) => {
        const row = await toSettled();
        await unchanged(row, () => expect(recordRetry(row, change)).rejects.toEqual(CODE('CS004')));
      });

      test('loses its swap when the key grew too old, the approval too short, or evidence came', async () => {
        const old = await toSettled();
        await unchanged(old, async () =>
          expect(await recordRetry(old, { retention_ms: D_MS + SETTLE_MS + RESERVE_MS })).toEqual({
            kind: 'stale_revision',
          }),
        );
        await unchanged(old, async () =>
          expect(await recordRetry(old, { expiry_margin_ms: 60_000 })).toEqual({ kind: 'stale_revision' }),
        );
        await evidence(old);
        await unchanged(old, async () => expect(await recordRetry(old)).toEqual({ kind: 'stale_revision' }));
      });

      test('may come before the settle time where the answer permitted the same request again', async () => {
        const row = await toUncertain(undefined, { class: 'retry_safe', reason: 'rate_limited', afterMs: 1_000 });
        await unchanged(row, () => expect(recordRetry(row)).rejects.toEqual(CODE('CS004')));
        await subject.advanceMs(1_000);
        expect(await recordRetry(row)).toMatchObject({ kind: 'committed' });
      });

      test('after not_sent asks neither settle nor key, and has its own limit', async () => {
        let row = await toNotSent();
        for (let n = 1; n <= 2; n++) {
          await unchanged(row, () => expect(recordRetry(row)).rejects.toEqual(CODE('CS004')));
          const recorded = await recordResend(row, { retention_ms: null });
          if (recorded.kind !== 'committed') throw new Error('lost');
          row = await toNotSent(
            await dispatched(recorded.row, { retry: { retention_ms: null, reserve_ms: RESERVE_MS } }),
          );
        }
        expect((await load(row.run_id)).counters).toMatchObject({ attempts: 3, not_sent_retries: 2 });
        await unchanged(row, () => expect(recordResend(row)).rejects.toEqual(CODE('CS004')));
      });

      test('after a send is no resend', async () => {
        const row = await toSettled();
        await unchanged(row, () =>
          expect(recordResend(row, { observed_at: (row.wake_at ?? null) && null })).rejects.toEqual(CODE('CS004')),
        );
      });

      test('is dispatched once, with the same key and bytes, as the second attempt', async () => {
        const row = await toRetry();
        const outcome = await dispatch(row, { retry: KEY });
        expect(outcome).toMatchObject({
          kind: 'committed',
          attempt_n: 2,
          row: { state: 'executing', retry_allowed: false },
        });
        const { attempts } = await load(row.run_id);
        expect(new Set(attempts.map((attempt) => attempt.idempotency_key)).size).toBe(1);
        expect(new Set(attempts.map((attempt) => attempt.request_digest)).size).toBe(1);
      });

      test.each<[string, (row: HotRow) => Promise<DispatchOutcome>]>([
        ['other bytes', (row) => dispatch(row, { retry: KEY, request_bytes: new TextEncoder().encode('{}') })],
        [
          'a key that is too old',
          (row) => dispatch(row, { retry: { retention_ms: D_MS + SETTLE_MS + RESERVE_MS, reserve_ms: RESERVE_MS } }),
        ],
        [
          'a target that keeps no keys',
          (row) => dispatch(row, { retry: { retention_ms: null, reserve_ms: RESERVE_MS } }),
        ],
        [
          'evidence of the effect',
          async (row) => {
            await evidence(row);
            return await dispatch(row, { retry: KEY });
          },
        ],
      ])('is refused at its dispatch for %s', async (_, work) => {
        expect(await work(await toRetry())).toMatchObject({ kind: 'refused', code: 'retry_invalid' });
      });

      test('is refused at its dispatch when the approval has expired meanwhile', async () => {
        const row = await toRetry();
        await subject.advanceMs(60_000 - D_MS - SETTLE_MS);
        expect(await dispatch(row, { retry: { ...KEY, retention_ms: 10 * RETENTION_MS } })).toMatchObject({
          kind: 'refused',
          code: 'approval_expired',
        });
      });

      test('that nobody recorded is refused', async () => {
        expect(await dispatch(await toSettled(), { retry: KEY })).toMatchObject({
          kind: 'refused',
          code: 'retry_invalid',
        });
      });

      test('only waits for a hold', async () => {
        const row = await toRetry();
        await subject.api.setHold(olga, '*', 'maintenance');
        expect(await dispatch(row, { retry: KEY })).toMatchObject({ kind: 'refused', code: 'on_hold' });
        await subject.api.setHold(olga, '*', null);
        expect((await load(row.run_id)).retry_allowed).toBe(true);
      });

      test('is the last one: two attempts that may have left are all', async () => {
        const row = await toUncertain(await dispatched(await toRetry(), { retry: KEY }));
        await subject.advanceMs(D_MS + SETTLE_MS);
        await unchanged(row, () => expect(recordRetry(row)).rejects.toEqual(CODE('CS004')));
      });

      test('that was refused is taken back for good', async () => {
        const row = await toRetry();
        const refused = await move('executor', row, 'retry_refused', { stop_reason: STOP });
        expect(refused.retry_allowed).toBe(false);
        expect((await load(row.run_id)).counters.retries_refused).toBe(1);
        await unchanged(refused, () => expect(recordRetry(refused)).rejects.toEqual(CODE('CS004')));
        await unchanged(refused, () =>
          expect(
            subject.stores.executor.commitStage(commitOf(refused, 'retry_refused', { stop_reason: STOP })),
          ).rejects.toEqual(CODE('CS003')),
        );
      });

      test('is taken back by parking', async () => {
        expect(await parked(await toRetry())).toMatchObject({
          retry_allowed: false,
          parked_reason: 'effect_not_found',
          wake_at: null,
        });
      });
    });

    // -------------------------------------------------------------------------------------------------------- rules 15, 22, 23

    describe('a sweep', () => {
      test('claims what is due, once, and moves its wake-up on', async () => {
        const row = await create();
        expect(await claim(row)).toBeUndefined();
        await subject.advanceMs(3_000);
        expect(await claim(row)).toMatchObject({ row: { revision: 1 }, overdue: null, attempt_id: null });
        expect(await claim(row)).toBeUndefined();
        await subject.advanceMs(3_000);
        expect(await claim(row)).toBeDefined();
        expect((await load(row.run_id)).revision).toBe(1);
      });

      test('lets tenants take turns: who has one run due does not wait for who has many', async () => {
        const [west, east] = [
          await subject.principal('requester', 'agent_west', 'shop_west'),
          await subject.principal('requester', 'agent_east', 'shop_east'),
        ];
        const asked = async (who: Principal) => {
          const outcome = await subject.api.createRun(newRun(who));
          if (outcome.kind !== 'created') throw new Error(`not created: ${outcome.kind}`);
          return outcome.row.run_id;
        };
        const many: RunId[] = [];
        for (let i = 0; i < 6; i++) many.push(await asked(west));
        await subject.advanceMs(1);
        const one = await asked(east);
        await subject.advanceMs(3_000);
        // One for each tenant of this suite; what others have due of theirs is taken before, too, and must not push this one out.
        const { due } = await subject.stores.reconciler.claimDue({ ...CLAIM, limit: 4 });
        const claimed = due.map(({ row }) => row.run_id);
        expect(claimed).toContain(one);
        const west_claimed = claimed.filter((run_id) => many.includes(run_id));
        expect(new Set(west_claimed)).toEqual(new Set(many.slice(0, west_claimed.length)));
      });

      test('finds an attempt overdue at its deadline and grace, not before', async () => {
        const row = await toExecuting();
        await subject.advanceMs(D_MS + G_MS - 1);
        expect(await claim(row)).toBeUndefined();
        await subject.advanceMs(1);
        const due = await claim(row);
        expect(due).toMatchObject({ overdue: 'attempt', attempt_id: await openAttempt(row) });
        const after = await move('reconciler', row, 'attempt_overdue', {
          ...(await outcomeOf(row, 'uncertain')),
          stop_reason: STOP,
        });
        expect(after.state).toBe('needs_reconciliation');
      });

      test('lost its swap where it would close an attempt before its deadline whose instance holds its lease', async () => {
        const row = await toExecuting();
        const facts = { ...(await outcomeOf(row, 'uncertain')), stop_reason: STOP };
        await unchanged(row, () =>
          expect(subject.stores.reconciler.commitStage(commitOf(row, 'attempt_overdue', facts))).resolves.toEqual({
            kind: 'stale_revision',
          }),
        );
      });

      test('looks early for the attempt of an instance that lost its session lease for long enough', async () => {
        const instance = `ins_lost_${testIds.uuid()}`;
        expect(await subject.takeLease(instance)).toBe(true);
        const row = await toExecuting({}, {}, subject.executorOf(instance));
        expect(await claim(row)).toBeUndefined();
        await subject.dropLease(instance);
        expect(await claim(row)).toBeUndefined();
        await subject.advanceMs(LEASE_LOSS_MS);
        expect(await claim(row)).toMatchObject({ overdue: 'attempt' });
        await move('reconciler', row, 'attempt_overdue', { ...(await outcomeOf(row, 'uncertain')), stop_reason: STOP });
      });

      test('leaves an instance alone that took its lease again', async () => {
        const instance = `ins_back_${testIds.uuid()}`;
        await subject.takeLease(instance);
        const row = await toExecuting({}, {}, subject.executorOf(instance));
        await subject.dropLease(instance);
        expect(await claim(row)).toBeUndefined();
        expect(await subject.takeLease(instance)).toBe(true);
        await subject.advanceMs(LEASE_LOSS_MS);
        expect(await claim(row)).toBeUndefined();
      });

      test('looks at once for the attempt of an instance whose end is recorded, and that instance never comes back', async () => {
        const instance = `ins_ended_${testIds.uuid()}`;
        await subject.takeLease(instance);
        const row = await toExecuting({}, {}, subject.executorOf(instance));
        await subject.dropLease(instance);
        await subject.endProcess(instance);
        expect(await claim(row)).toMatchObject({ overdue: 'attempt' });
        expect(await subject.takeLease(instance)).toBe(false);
      });

      test('finds an approval past its expiry, and a run past its deadline', async () => {
        const row = await toAwaiting({}, { lifeMs: 5_000 });
        expect(epochMs((await load(row.run_id)).wake_at ?? '') - (await nowMs(row.run_id))).toBe(5_000);
        await subject.advanceMs(5_000);
        expect(await claim(row)).toMatchObject({ overdue: 'approval' });
        expect(
          (await move('reconciler', row, 'approval_expired', { stop_reason: stopReason('approval_expired') }, null))
            .state,
        ).toBe('expired');
        const late = await create({ run_life_ms: 4_000, wake_in_ms: 4_000 });
        await subject.advanceMs(4_000);
        expect(await claim(late)).toMatchObject({ overdue: 'run' });
      });

      test('expires nothing before its time', async () => {
        const row = await toAwaiting({}, { lifeMs: 5_000 });
        const reason = { stop_reason: stopReason('approval_expired') };
        await subject.advanceMs(4_999);
        await unchanged(row, () =>
          expect(
            subject.stores.reconciler.commitStage(commitOf(row, 'approval_expired', reason, null)),
          ).rejects.toEqual(CODE('CS004')),
        );
        await unchanged(row, () =>
          expect(subject.stores.reconciler.commitStage(commitOf(row, 'deadline_passed', reason, null))).rejects.toEqual(
            CODE('CS004'),
          ),
        );
      });
    });

    describe('a wait', () => {
      test('moves the wake-up of an unchanged revision, without an event', async () => {
        const row = await toUncertain();
        expect(await subject.stores.reconciler.defer(row.run_id, row.revision, 7_000)).toBe(true);
        expect(epochMs((await load(row.run_id)).wake_at ?? '') - (await nowMs(row.run_id))).toBe(7_000);
        expect(await events(row)).toHaveLength(row.revision);
      });

      test.each<[string, Exclude<Service, 'api'>, number]>([
        ['of another revision', 'reconciler', 1],
        ['of a service that does not work on it', 'verifier', 0],
      ])('%s is refused', async (_, service, older) => {
        const row = await toUncertain();
        await unchanged(row, async () =>
          expect(await subject.stores[service].defer(row.run_id, row.revision - older, 7_000)).toBe(false),
        );
      });

      test('is never longer than an hour, the expiry or the run’s deadline', async () => {
        const row = await toApproved();
        const wake = async (run: HotRow) => epochMs((await load(run.run_id)).wake_at ?? '') - (await nowMs(run.run_id));
        await subject.stores.executor.defer(row.run_id, row.revision, 10_000_000);
        expect(await wake(row)).toBe(60_000);
        const long = await toUncertain(await toExecuting({ run_life_ms: 100_000_000 }));
        await subject.stores.reconciler.defer(long.run_id, long.revision, 10_000_000);
        expect(await wake(long)).toBe(3_600_000);
        const short = await toUncertain();
        await subject.stores.reconciler.defer(short.run_id, short.revision, 3_000_000);
        expect(await wake(short)).toBe(600_000);
      });

      test('of a closed run may end with nothing left to look at', async () => {
        const failed = await move(
          'reconciler',
          await toNotSent(),
          'never_sent',
          { stop_reason: stopReason('not_sent') },
          5_000,
        );
        expect(await subject.stores.reconciler.defer(failed.run_id, failed.revision, 9_000_000)).toBe(true);
        expect(await subject.stores.reconciler.defer(failed.run_id, failed.revision, null)).toBe(true);
        expect((await load(failed.run_id)).wake_at).toBeNull();
        expect(await subject.stores.reconciler.defer(failed.run_id, failed.revision, 1_000)).toBe(false);
      });

      test('set by a commit never passes the run’s deadline', async () => {
        const row = await move('preflight', await toPreflight({ run_life_ms: 50_000 }), 'checks_passed', {}, 90_000);
        expect(epochMs(row.wake_at ?? '') - (await nowMs(row.run_id))).toBe(50_000);
      });
    });

    // -------------------------------------------------------------------------------------------------------- rule 20

    describe('a person’s verdict', () => {
      test('that it landed leads to the verifier, with its waits anew', async () => {
        const row = await parked(await toUncertain());
        expect(await say(row, 'landed')).toMatchObject({
          result: 'recorded',
          row: { state: 'verifying', parked_reason: null },
        });
        expect((await load(row.run_id)).observations.at(-1)).toMatchObject({ kind: 'person' });
      });

      test('that it is still unknown keeps the run parked; to look again unparks it', async () => {
        const row = await toUncertain();
        expect(await say(row, 'still_unknown')).toMatchObject({
          result: 'recorded',
          row: { parked_reason: 'external_result_uncertain', wake_at: null },
        });
        const again = { ...row, revision: row.revision + 1 };
        const outcome = await say(again, 'look_again');
        expect(outcome).toMatchObject({ result: 'recorded', row: { parked_reason: null } });
        expect(outcome.row?.wake_at).not.toBeNull();
      });

      test.each<[string, Partial<VerdictCommit>]>([
        ['on an older revision', { expected: 1 }],
        ['with a look from the future', { observed_at: '2999-01-01T00:00:00Z' }],
      ])('%s is refused', async (_, change) => {
        const row = await parked(await toUncertain());
        const expected = 'expected' in change ? 'stale_revision' : 'observed_in_future';
        await unchanged(row, async () => expect((await say(row, 'landed', change)).result).toBe(expected));
      });

      test('is an operator’s, on a run in doubt', async () => {
        const row = await parked(await toUncertain());
        expect((await say(row, 'landed', {}, ada)).result).toBe('role_missing');
        expect((await say(await toAwaiting(), 'landed')).result).toBe('not_in_doubt');
      });

      test('"did not land" needs a look after the settle time', async () => {
        const row = await parked(await toUncertain());
        const early = await say(row, 'did_not_land');
        expect(early.result).toBe('not_settled');
        expect(epochMs(early.detail ?? '') - (await nowMs(row.run_id))).toBe(D_MS + SETTLE_MS);
        expect((await say(row, 'did_not_land', { observed_at: null })).result).toBe('not_settled');
      });

      test.each(['late_effect_found', 'effect_differs'] as const)(
        '"did not land" is refused while the last look showed an effect (%s), until a look finds none',
        async (reason) => {
          const row = await parked(await toSettled(), reason);
          expect(await say(row, 'did_not_land')).toMatchObject({ result: 'evidence_stands', detail: reason });
          const again = await say(row, 'look_again');
          const absent = await parked(again.row ?? row);
          expect((await say(absent, 'did_not_land')).result).not.toBe('evidence_stands');
        },
      );

      test('"did not land" is vetoed by evidence', async () => {
        const row = await toSettled();
        await evidence(row);
        expect((await say(row, 'did_not_land')).result).toBe('evidence_stands');
      });

      test('"did not land" needs the executor’s end, its heartbeat gone and its lease free', async () => {
        const instance = `ins_fence_${testIds.uuid()}`;
        await subject.takeLease(instance);
        const row = await toUncertain(await toExecuting({}, {}, subject.executorOf(instance)));
        await subject.advanceMs(D_MS + SETTLE_MS);
        expect(await say(row, 'did_not_land')).toMatchObject({ result: 'instance_not_fenced', detail: instance });
        const fence = { instance_id: instance, evidence: 'the host is off', credential_rotated: false, pause_ms: Z_MS };
        expect(await subject.api.fence(olga, fence)).toBe('instance_alive');
        await subject.dropLease(instance);
        expect(await subject.api.fence(ada, fence)).toBe('role_missing');
        expect(await subject.api.fence(olga, fence)).toBe('ended');
        expect(await subject.api.fence(olga, fence)).toBe('already_ended');
        await subject.advanceMs(SETTLE_MS);
        expect(await say(row, 'did_not_land')).toMatchObject({ result: 'recorded', row: { state: 'failed' } });
        expect((await load(row.run_id)).stop_reason?.code).toBe('person_absent');
      });

      test('"did not land" holds without a fence when the credential was rotated', async () => {
        const instance = `ins_rotated_${testIds.uuid()}`;
        await subject.takeLease(instance);
        const row = await toUncertain(await toExecuting({}, {}, subject.executorOf(instance)));
        await subject.advanceMs(D_MS + SETTLE_MS);
        expect(
          await subject.api.fence(olga, {
            instance_id: instance,
            evidence: 'rotated',
            credential_rotated: true,
            pause_ms: Z_MS,
          }),
        ).toBe('ended');
        await subject.advanceMs(SETTLE_MS);
        expect((await say(row, 'did_not_land')).result).toBe('recorded');
      });

      test('"did not land" needs a look from the instance’s end + settle on; one right after the end is not settled', async () => {
        const instance = `ins_ended_${testIds.uuid()}`;
        await subject.takeLease(instance);
        const row = await toUncertain(await toExecuting({}, {}, subject.executorOf(instance)));
        await subject.advanceMs(D_MS + SETTLE_MS);
        await subject.dropLease(instance);
        await subject.endProcess(instance);
        const endedMs = await nowMs(row.run_id);
        const early = await say(row, 'did_not_land');
        expect(early.result).toBe('not_settled');
        expect(epochMs(early.detail ?? '')).toBe(endedMs + SETTLE_MS);
        await subject.advanceMs(SETTLE_MS - 1);
        expect(await say(row, 'did_not_land')).toMatchObject({ result: 'not_settled', detail: early.detail });
        await subject.advanceMs(1);
        expect((await say(row, 'did_not_land')).result).toBe('recorded');
      });

      test('"did not land" holds without a fence when a second person takes that on themselves', async () => {
        const row = await toSettled();
        const waive = {
          run_id: row.run_id,
          expected: row.revision,
          kind: 'waive_fencing',
          effect_digest: null,
          reason: 'seen',
        } as const;
        expect((await say(row, 'did_not_land')).result).toBe('instance_not_fenced');
        expect(await subject.api.support(olga, waive)).toBe('recorded');
        expect((await say(row, 'did_not_land')).result).toBe('instance_not_fenced');
        expect(await subject.api.support(ada, waive)).toBe('role_missing');
        expect(await subject.api.support(otto, { ...waive, expected: 1 })).toBe('stale_revision');
        expect(await subject.api.support(otto, waive)).toBe('recorded');
        expect((await say(row, 'did_not_land')).result).toBe('recorded');
      });

      test('a second person’s word is void after another attempt', async () => {
        const row = await toSettled();
        await subject.api.support(otto, {
          run_id: row.run_id,
          expected: row.revision,
          kind: 'waive_fencing',
          effect_digest: null,
          reason: 'seen',
        });
        const recorded = await recordRetry(row);
        if (recorded.kind !== 'committed') throw new Error('lost');
        const again = await toUncertain(await dispatched(recorded.row, { retry: KEY }));
        await subject.advanceMs(D_MS + SETTLE_MS);
        expect((await say(again, 'did_not_land')).result).toBe('instance_not_fenced');
      });

      test('that it landed differently needs a second person above the tier', async () => {
        const approved = await decide(await toAwaiting({}, { approvals: 2 }));
        const { row: both } = await decide(
          approved.row ?? (await toAwaiting()),
          await subject.principal('approver', 'bo'),
        );
        if (both === null) throw new Error('not decided');
        const row = await toUncertain(await dispatched(both));
        const effect = { amount_minor: 4199 };
        const effect_digest = digestOf('cs.body.v1', canonicalJson(effect));
        const seen = { effect, effect_digest, provider_ref: 're_1' };
        expect(await say(row, 'landed_differently', seen)).toMatchObject({
          result: 'second_person_needed',
          detail: effect_digest,
        });
        const confirm = {
          run_id: row.run_id,
          expected: row.revision,
          kind: 'confirm_difference',
          reason: 'seen',
        } as const;
        await subject.api.support(otto, { ...confirm, effect_digest: digestOf('cs.body.v1', '{}') });
        expect((await say(row, 'landed_differently', seen)).result).toBe('second_person_needed');
        await subject.api.support(otto, { ...confirm, effect_digest });
        expect(await say(row, 'landed_differently', seen)).toMatchObject({
          result: 'recorded',
          row: { state: 'failed' },
        });
      });
    });

    // -------------------------------------------------------------------------------------------------------- requests

    describe('a request', () => {
      test('that comes twice is the same run; with another body it conflicts', async () => {
        const created = newRun(requester);
        const { row } = (await subject.api.createRun(created)) as { row: HotRow };
        const again = { ...created, run_id: newRun(requester).run_id };
        expect(await subject.api.createRun(again)).toMatchObject({ kind: 'existing', row: { run_id: row.run_id } });
        expect(await subject.api.createRun({ ...again, body_digest: digestOf('cs.body.v1', 'x') })).toMatchObject({
          kind: 'idempotency_conflict',
        });
        expect(await subject.api.createRun({ ...newRun(requester), principal_id: 'prn_nobody' })).toEqual({
          kind: 'principal_unknown',
        });
      });

      test('succeeds only a run that is closed without an effect, in the next generation', async () => {
        const first = await toAwaiting();
        const { request_id } = await load(first.run_id);
        const successor = { ...newRun(requester), request_id, supersedes: first.run_id };
        expect(await subject.api.createRun(successor)).toEqual({ kind: 'supersedes_invalid' });
        await decide(first, ada, 'reject');
        expect(await subject.api.createRun({ ...successor, request_id: 'case_other' })).toEqual({
          kind: 'supersedes_invalid',
        });
        expect(await subject.api.createRun(successor)).toMatchObject({ kind: 'created' });
        expect((await load(successor.run_id)).generation).toBe(2);
      });

      test('succeeds a run that may have sent only after a look at + settle found nothing', async () => {
        const executing = await toExecuting();
        const facts = { ...(await outcomeOf(executing, 'rejected')), stop_reason: stopReason('effect_rejected') };
        const failed = await move('executor', executing, 'effect_rejected', facts, 5_000);
        const { request_id } = await load(failed.run_id);
        const successor = { ...newRun(requester), request_id, supersedes: failed.run_id, settle_ms: SETTLE_MS };
        const looked = async (code: string) => {
          const loaded = await subject.stores.reconciler.load(failed.run_id);
          await subject.stores.reconciler.audit({
            tenant_id: 'shop_north',
            principal_id: null,
            run_id: failed.run_id,
            what: 'closure_audit',
            code,
            detail: { observed_at: loaded?.now ?? '' },
          });
        };
        await looked('looked');
        expect(await subject.api.createRun(successor)).toEqual({ kind: 'supersedes_invalid' });
        await subject.advanceMs(D_MS + SETTLE_MS);
        await looked('given_up');
        expect(await subject.api.createRun(successor)).toEqual({ kind: 'supersedes_invalid' });
        await looked('looked');
        expect(await subject.api.createRun(successor)).toMatchObject({ kind: 'created' });
      });
    });
  });
}

function proposal(body: JsonObject): NonNullable<CommitFacts['proposal']> {
  const body_canonical = canonicalJson(body);
  return {
    proposal_id: testIds.id('proposal'),
    author: 'rules',
    author_kind: 'rules',
    body_canonical,
    body_digest: digestOf('cs.proposal.v1', body_canonical),
  };
}

/** The facts of `action_fixed` with other things bound, and the digest that fits them. */
function rebound(facts: CommitFacts, change: (bound: JsonObject) => JsonObject): CommitFacts {
  const { approval_request } = facts;
  if (approval_request === undefined) throw new Error('no approval request');
  const canonical = canonicalJson(change(JSON.parse(approval_request.canonical) as JsonObject));
  return {
    ...facts,
    approval_request: { ...approval_request, canonical, approval_digest: digestOf('cs.approval.v1', canonical) },
  };
}
