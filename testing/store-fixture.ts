import { randomUUID } from 'node:crypto';
import {
  type CommitFacts,
  canonicalJson,
  type DispatchCommit,
  type DispatchOutcome,
  digestOf,
  type EvidenceDraft,
  factsDigest,
  type HotRow,
  idempotencyKey,
  type JsonObject,
  type NewRun,
  type RunId,
  runIdFromUuid,
  SERVICES,
  type Service,
  type State,
  type Store,
  type Trigger,
} from '@counterstamp/manifest-core';
import {
  type ApiStore,
  connect,
  createApiKey,
  createWorkerStore,
  migrate,
  type Principal,
  type Role,
  type Sealing,
  type Sql,
  serviceUrl,
} from '@counterstamp/manifest-store';
import { createApiStore } from '@counterstamp/manifest-store/api';
import { type PostgresVersion, testDatabase } from './services.ts';
import { testIds } from './test-ids.ts';

export { testIds } from './test-ids.ts';

/** One prefix for all tests of a server: the roles are cluster-wide and stay, so they must not pile up. */
export const TEST_ROLE_PREFIX = 'cs_test_';
export const TEST_SECRET = 'only-for-tests-and-nothing-else';

export const ACTION: JsonObject = {
  operation: 'refund_order',
  order_id: 'order_913',
  amount_minor: 4200,
  currency: 'USD',
};

/** What a dispatch of the fixture may do otherwise than the executor would. */
export interface DispatchChange {
  request?: string;
  marginMs?: number;
  countDevKeys?: boolean;
  /** A dispatch from needs_reconciliation: the recorded retry. */
  retry?: DispatchCommit['retry'];
  /** Instead of what belongs to the action and the bytes. */
  forged?: Partial<Pick<DispatchCommit, 'idempotency_key' | 'request_digest' | 'action_digest' | 'operation'>>;
  /** The executor's login under another instance id than `ins_executor`. */
  by?: Store;
}

/** A migrated database with every service's own login, and the moves that bring a run to where a test needs it. */
export interface StoreFixture {
  version: PostgresVersion;
  url: string;
  owner: Sql;
  api: ApiStore;
  stores: Record<Exclude<Service, 'api'>, Store>;
  serviceSql: Record<Service, Sql>;
  principal(role: Role, name?: string, tenant?: string): Promise<Principal & { key: string }>;
  createRun(change?: Partial<NewRun>): Promise<HotRow>;
  /** Commits one move at the run's present revision. */
  move(
    service: Exclude<Service, 'api'>,
    row: HotRow,
    on: Trigger,
    to: State,
    facts?: CommitFacts,
    wake_in_ms?: number | null,
  ): Promise<HotRow>;
  toAwaitingApproval(change?: Partial<NewRun>, wanted?: FixedActionChange): Promise<HotRow>;
  toApproved(
    change?: Partial<NewRun>,
    wanted?: { action?: JsonObject; lifeMs?: number; resource?: string },
  ): Promise<HotRow>;
  approve(row: HotRow, who?: Principal): Promise<HotRow>;
  dispatch(row: HotRow, change?: DispatchChange): Promise<DispatchOutcome>;
  /** From a committed dispatch on. */
  toExecuting(): Promise<{ row: HotRow; attempt_id: string }>;
  close(): Promise<void>;
}

/** @param options `sealing` for an installation that seals personal data; absent: everything is in plain text. */
export async function storeFixture(
  version: PostgresVersion,
  options: { sealing?: Sealing } = {},
): Promise<StoreFixture> {
  const database = await testDatabase({
    version,
    name: 'manifest-store',
    prepare: async (url) => {
      await migrate(url, { rolePrefix: TEST_ROLE_PREFIX, secret: TEST_SECRET });
    },
  });
  const owner = connect(database.url, { max: 4, applicationName: 'test-owner' });
  // A clone has its own database name: logins need no grant for it, CONNECT is public by default.
  const serviceSql = Object.fromEntries(
    SERVICES.map((service) => [
      service,
      connect(serviceUrl(database.url, service, TEST_SECRET, TEST_ROLE_PREFIX), {
        max: 25,
        applicationName: `test-${service}`,
      }),
    ]),
  ) as Record<Service, Sql>;
  const api = createApiStore(serviceSql.api, options);
  const storeOf = (service: Service) =>
    createWorkerStore(serviceSql[service], { instance_id: `ins_${service}`, ids: testIds, ...options });
  const stores = {
    preflight: storeOf('preflight'),
    executor: storeOf('executor'),
    verifier: storeOf('verifier'),
    reconciler: storeOf('reconciler'),
  };

  const principals = new Map<string, Principal & { key: string }>();
  async function principal(
    role: Role,
    name: string = role,
    tenant = 'shop_north',
  ): Promise<Principal & { key: string }> {
    const known = principals.get(`${tenant}/${name}/${role}`);
    if (known !== undefined) return known;
    const { key, principal_id } = await createApiKey(owner, testIds, { tenant_id: tenant, name, role });
    const made = { tenant_id: tenant, principal_id, role, key };
    principals.set(`${tenant}/${name}/${role}`, made);
    return made;
  }

  async function createRun(change: Partial<NewRun> = {}): Promise<HotRow> {
    const requester = await principal('requester', 'requester', change.tenant_id);
    const outcome = await api.createRun({ ...newRun(requester), ...change });
    if (outcome.kind !== 'created') throw new Error(`run not created: ${outcome.kind}`);
    return outcome.row;
  }

  const requestRecord = (): CommitFacts => ({ evidence: [evidenceDraft('request_record', { status: 'open' })] });
  const move: StoreFixture['move'] = async (
    service,
    row,
    on,
    to,
    facts = on === 'request_loaded' ? requestRecord() : {},
    wake_in_ms = 3_000,
  ) => {
    const outcome = await stores[service].commitStage({
      run_id: row.run_id,
      expected: row.revision,
      from: row.state,
      on,
      to,
      facts,
      wake_in_ms,
    });
    if (outcome.kind !== 'committed') throw new Error(`${on} lost its swap`);
    return outcome.row;
  };

  const toAwaitingApproval: StoreFixture['toAwaitingApproval'] = async (change = {}, wanted = {}) => {
    let row = await createRun(change);
    row = await move('preflight', row, 'request_loaded', 'preflight');
    row = await move('preflight', row, 'checks_passed', 'collecting');
    row = await move('preflight', row, 'evidence_recorded', 'collecting', {
      evidence: [evidenceDraft('order_record', { refundable: 4200 })],
      evidence_complete: true,
    });
    const body_canonical = canonicalJson(wanted.action ?? ACTION);
    const proposal = {
      proposal_id: testIds.id('proposal'),
      author: 'rules',
      author_kind: 'rules' as const,
      body_canonical,
      body_digest: digestOf('cs.proposal.v1', body_canonical),
    };
    row = await move('preflight', row, 'proposal_received', 'proposed', { proposal });
    const now = (await stores.preflight.load(row.run_id))?.nowMs ?? 0;
    return await move(
      'preflight',
      row,
      'action_fixed',
      'awaiting_approval',
      fixedAction(row, now, { ...wanted, tenant: change.tenant_id ?? 'shop_north' }),
    );
  };

  const approve: StoreFixture['approve'] = async (row, who) => {
    const approver = who ?? (await principal('approver'));
    const loaded = await api.load(approver.tenant_id, row.run_id);
    const approval = loaded?.manifest.approval;
    if (approval === null || approval === undefined) throw new Error('nothing to approve');
    const outcome = await api.decide(
      approver,
      {
        run_id: row.run_id,
        approval_id: approval.approval_id,
        decision_id: testIds.id('decision'),
        decision: 'approve',
        method: 'dev_key',
        break_glass: false,
        assertion: null,
        approval_digest: approval.approval_digest,
        action_digest: approval.action_digest,
        action_revision: approval.action_revision,
        reason: null,
      },
      3_000,
    );
    if (outcome.result !== 'recorded' || outcome.row === null) throw new Error(`not recorded: ${outcome.result}`);
    return outcome.row;
  };

  const toApproved: StoreFixture['toApproved'] = async (change, wanted) =>
    approve(await toAwaitingApproval(change, wanted));

  const dispatch: StoreFixture['dispatch'] = async (row, change = {}) => {
    const loaded = await stores.executor.load(row.run_id);
    const action = loaded?.manifest.action;
    const action_revision = loaded?.manifest.action_revision;
    if (!action || !action_revision) throw new Error('no action');
    const request_bytes = new TextEncoder().encode(change.request ?? action.canonical);
    return await (change.by ?? stores.executor).commitDispatch({
      run_id: row.run_id,
      expected: row.revision,
      attempt_id: testIds.id('attempt'),
      idempotency_key: idempotencyKey(row.run_id, action_revision, action.digest),
      action_digest: action.digest,
      request_bytes,
      request_digest: digestOf('cs.request-bytes.v1', request_bytes),
      operation: 'refund_order',
      call_deadline_ms: 2_000,
      expiry_margin_ms: change.marginMs ?? 1_200,
      sweep_grace_ms: 500,
      count_dev_keys: change.countDevKeys ?? true,
      decision_ids: loaded?.manifest.approval?.decisions.map((decision) => decision.decision_id) ?? [],
      approval_digest: loaded?.manifest.approval?.approval_digest ?? digestOf('cs.approval.v1', ''),
      retry: change.retry ?? null,
      ...change.forged,
    });
  };

  return {
    version,
    url: database.url,
    owner,
    api,
    stores,
    serviceSql,
    principal,
    createRun,
    move,
    toAwaitingApproval,
    toApproved,
    approve,
    dispatch,
    async toExecuting() {
      const outcome = await dispatch(await toApproved());
      if (outcome.kind !== 'committed') throw new Error(`not dispatched: ${outcome.kind}`);
      const loaded = await stores.executor.load(outcome.row.run_id);
      return { row: outcome.row, attempt_id: loaded?.manifest.attempts[0]?.attempt_id ?? '' };
    },
    async close() {
      await Promise.all([owner, ...Object.values(serviceSql)].map((sql) => sql.end({ timeout: 2 })));
      await database.drop();
    },
  };
}

export function newRun(who: Principal): NewRun {
  const input: JsonObject = {
    order_id: 'order_913',
    requested_amount_minor: 4200,
    currency: 'USD',
    reason: 'item arrived damaged',
  };
  const input_canonical = canonicalJson(input);
  const request_id = `case_${randomUUID()}`;
  return {
    run_id: newRunId(),
    tenant_id: who.tenant_id,
    principal_id: who.principal_id,
    on_behalf_of: null,
    request_id,
    subject: request_id,
    supersedes: null,
    workflow: 'refund',
    workflow_version: 1,
    connector: 'sandbox-payments',
    connector_version: '1',
    proposer: 'rules',
    input_canonical,
    body_digest: digestOf('cs.body.v1', input_canonical),
    allowed_operations: ['read_order', 'refund_order', 'read_refund_status'],
    context: [],
    proposal: null,
    run_life_ms: 600_000,
    approval_life_ms: null,
    wake_in_ms: 3_000,
    settle_ms: 2_000,
    open_runs_max: null,
    trace_context: null,
  };
}

export function newRunId(): RunId {
  return runIdFromUuid(randomUUID());
}

export function evidenceDraft(kind: string, facts: JsonObject, observed_at = new Date().toISOString()): EvidenceDraft {
  const salt = testIds.salt();
  const facts_canonical = canonicalJson(facts);
  return {
    evidence_id: testIds.id('evidence'),
    kind,
    source_ref: `test:${kind}`,
    observed_at,
    version_marker: '1',
    trusted: true,
    salt,
    facts_canonical,
    facts_digest: factsDigest(salt, facts_canonical),
  };
}

/** What a test's approval request binds otherwise than the fixture's. */
export interface FixedActionChange {
  action?: JsonObject;
  lifeMs?: number;
  resource?: string;
  approvals?: number;
  tenant?: string;
  /** Further members of the bound record: `method`, `break_glass`, `groups_required`. */
  bound?: JsonObject;
}

/** The facts of `action_fixed`: an action and an approval request that binds it. */
export function fixedAction(
  row: Pick<HotRow, 'run_id' | 'revision'>,
  nowMs: number,
  wanted: FixedActionChange = {},
): CommitFacts {
  const canonical = canonicalJson(wanted.action ?? ACTION);
  const digest = digestOf('cs.action.v1', canonical);
  const approval_id = testIds.id('approval');
  const display_canonical = canonicalJson([
    { field: 'amount_minor', label: 'Amount', value: 'USD 42.00', flagged: false },
  ]);
  const bound = canonicalJson({
    profile: 'cs.approval.v1',
    approval_id,
    run_id: row.run_id,
    tenant_id: wanted.tenant ?? 'shop_north',
    action_digest: digest,
    action_revision: row.revision + 1,
    evidence_set_digest: digestOf('cs.evidence-set.v1', ''),
    display_digest: digestOf('cs.display.v1', display_canonical),
    policy: 'refund',
    policy_version: 1,
    policy_rule: 'one_person',
    approvals_required: wanted.approvals ?? 1,
    connector: 'sandbox-payments',
    connector_version: '1',
    expires_at: new Date(nowMs + (wanted.lifeMs ?? 60_000)).toISOString(),
    nonce: testIds.salt(),
    ...wanted.bound,
  });
  return {
    action: { canonical, digest },
    approval_request: {
      approval_id,
      canonical: bound,
      approval_digest: digestOf('cs.approval.v1', bound),
      display_canonical,
      resource_key: wanted.resource ?? `shop_north/sandbox-payments/${randomUUID()}`,
    },
  };
}

/** Makes the one clock settable: until `set` is called it runs; afterwards it stands. For the database of this fixture only. */
export async function settableClock(
  fixture: StoreFixture,
): Promise<{ set(at: Date): Promise<void>; advanceMs(ms: number): Promise<void> }> {
  await fixture.owner.unsafe(`
    create table if not exists public.test_clock (at timestamptz);
    grant select on public.test_clock to public;
    create or replace function cs.clock() returns timestamptz language sql volatile as $$ select coalesce((select max(at) from public.test_clock), clock_timestamp()) $$`);
  const set = async (at: Date) => {
    await fixture.owner`delete from public.test_clock`;
    await fixture.owner`insert into public.test_clock values (${at.toISOString()})`;
  };
  return {
    set,
    async advanceMs(ms) {
      const [row] = await fixture.owner<{ at: string }[]>`select cs.iso(cs.clock()) as at`;
      await set(new Date(Date.parse(row?.at ?? '') + ms));
    },
  };
}
