import { Checkpoints, PublicKeys, SignedEnvelope } from '@counterstamp/api-contract';
import { canonicalJson, digestOf, evidenceSetDigest, type RunId, uuidOfRunId } from '@counterstamp/manifest-core';
import { checkpointDue, commitCheckpoint } from '@counterstamp/manifest-store';
import {
  CheckpointLeaf,
  makeCheckpoint,
  type ReceiptVerification,
  verifyCheckpointChain,
  verifyReceipt,
} from '@counterstamp/receipts';
import {
  Envelope,
  generateSigningKey,
  parseSigningKey,
  parseTrustedKeys,
  publicJwk,
  trustedKeysText,
} from '@counterstamp/signatures';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { ORIGIN } from '../../../testing/browser.ts';
import { ACTION, fixedAction, newRunId, testIds } from '../../../testing/store-fixture.ts';
import { type ApiFixture, apiFixture, type RunningApi, testSignIn } from '../testing/api-fixture.ts';

const checkpointKey = parseSigningKey(generateSigningKey());
const signIn = testSignIn();
const trusted = parseTrustedKeys(
  trustedKeysText([publicJwk(signIn.key, ['credential', 'receipt']), publicJwk(checkpointKey, ['checkpoint'])]),
);

let fixture: ApiFixture;
let api: RunningApi;
let auditor: string;
beforeAll(async () => {
  fixture = await apiFixture();
  api = await fixture.start({ signIn });
  auditor = (await fixture.store.principal('auditor')).key;
});
afterAll(() => fixture.close());

/** Signs where every run stands, as the reconciler does. */
async function checkpoint(): Promise<void> {
  const sql = fixture.store.serviceSql.reconciler;
  const due = await checkpointDue(sql, { interval_ms: 0, heartbeat_ms: 0, limit: 1_000 });
  if (due === undefined) throw new Error('no checkpoint is due');
  const previous = due.previous === null ? null : Envelope.parse(due.previous);
  const leaves = due.leaves.map((leaf) => CheckpointLeaf.parse(leaf));
  await commitCheckpoint(sql, due, makeCheckpoint(previous, leaves, due.at, checkpointKey));
}

/** A completed run whose approval request binds what a receipt is checked for. */
async function completed(): Promise<RunId> {
  const { store } = fixture;
  const { run_id } = await store.createRun();
  let row = await fixture.toCollected(run_id);
  const evidence = (await store.stores.executor.load(run_id))?.manifest.evidence ?? [];
  const body_canonical = canonicalJson(ACTION);
  const proposal_id = testIds.id('proposal');
  const body_digest = digestOf('cs.proposal.v1', body_canonical);
  const proposal = { proposal_id, author: 'rules', author_kind: 'rules' as const, body_canonical, body_digest };
  row = await store.move('preflight', row, 'proposal_received', 'proposed', { proposal });
  const nowMs = (await store.stores.executor.load(run_id))?.nowMs ?? 0;
  const bound = {
    workflow: 'refund',
    workflow_version: 1,
    groups_required: {},
    method: 'session',
    break_glass: false,
    // Two rounds were gathered; the last one counts.
    evidence_set_digest: evidenceSetDigest(evidence.filter(({ round }) => round === 2)),
  };
  row = await store.move('preflight', row, 'action_fixed', 'awaiting_approval', fixedAction(row, nowMs, { bound }));
  const outcome = await store.dispatch(await store.approve(row));
  if (outcome.kind !== 'committed') throw new Error(`not dispatched: ${outcome.kind}`);
  const attempt_id = (await store.stores.executor.load(run_id))?.manifest.attempts[0]?.attempt_id ?? '';
  const attempt_outcome = { attempt_id, status: 'succeeded' as const, provider_ref: 're_1', response: {} };
  row = await store.move('executor', outcome.row, 'effect_accepted', 'verifying', { attempt_outcome });
  const observation = { kind: 'matched' as const, provider_ref: 're_1', body: { amount_minor: 4200 } };
  await store.move('verifier', row, 'effect_verified', 'completed', { observation }, null);
  return run_id;
}

const receiptOf = async (run_id: RunId, query = '') =>
  SignedEnvelope.parse((await api.get(`/v1/runs/${run_id}/receipt${query}`, auditor)).body);
const verified = (envelope: unknown): Promise<ReceiptVerification> =>
  verifyReceipt(envelope, trusted, { origin: ORIGIN });
const standing = ({ checks }: ReceiptVerification) => Object.fromEntries(checks.map(({ check, ok }) => [check, ok]));

test('a completed run’s receipt verifies, check by check, with nothing but public keys', async () => {
  const run_id = await completed();
  await checkpoint();
  const verification = await verified(await receiptOf(run_id));
  expect(verification.checks.filter(({ ok }) => ok !== true)).toMatchObject([
    { check: 'decision_signatures', ok: 'absent', sentence: expect.stringContaining('not signed') },
  ]);
  expect(verification.ok).toBe(true);
});

test('a run that stopped early, and one on its way, have a receipt as well', async () => {
  const { run_id } = await fixture.store.createRun();
  const early = await verified(await receiptOf(run_id));
  expect(early.ok).toBe(true);
  expect(standing(early)).toMatchObject({ event_chain: true, action: 'absent', checkpoint: 'absent' });
});

test('without disclosure the facts stay here, and all else holds as before', async () => {
  const run_id = await completed();
  const envelope = await receiptOf(run_id, '?disclose=none');
  const verification = await verified(envelope);
  expect(verification.ok).toBe(true);
  expect(verification.checks.find(({ check }) => check === 'evidence')?.sentence).toContain('are not disclosed');
  expect(Buffer.from(envelope.payload, 'base64').toString()).not.toContain('refundable');
  const unknown = await api.get(`/v1/runs/${run_id}/receipt?disclose=some`, auditor);
  expect([unknown.status, unknown.body.code, unknown.body.path]).toEqual([400, 'value_invalid', '/disclose']);
});

test.each([
  [
    'event',
    (run: string) => `update cs.run_event set actor = 'preflight/ins_x' where run_id = '${run}' and revision = 7`,
    'event_chain',
  ],
  [
    'evidence',
    (run: string) =>
      `update cs.evidence_value v set facts_canonical = '{"refundable":9}' from cs.evidence e where e.evidence_id = v.evidence_id and e.run_id = '${run}' and e.round = 2`,
    'evidence',
  ],
  ['display', (run: string) => `update cs.approval_request set display = '[]' where run_id = '${run}'`, 'approval'],
])('a changed %s in the database is named by the receipt’s check', async (_, statement, check) => {
  const run_id = await completed();
  await fixture.store.owner.begin(async (tx) => {
    await tx`set local session_replication_role = replica`;
    await tx.unsafe(statement(uuidOfRunId(run_id)));
  });
  const { checks } = await verified(await receiptOf(run_id));
  expect(checks.filter(({ ok }) => ok === false).map((one) => one.check)).toContain(check);
});

test('another tenant’s run is answered like one that does not exist, byte for byte', async () => {
  const { run_id } = await fixture.store.createRun();
  const { key } = await fixture.store.principal('auditor', 'auditor', 'shop_south');
  const replies = [
    await api.get(`/v1/runs/${run_id}/receipt`, key),
    await api.get(`/v1/runs/${newRunId()}/receipt`, key),
  ];
  expect(replies.map(({ status }) => status)).toEqual([404, 404]);
  expect(replies[0]?.body).toEqual(replies[1]?.body);
});

test('checkpoints are handed out in order, page by page, and verify as one chain', async () => {
  await checkpoint();
  await checkpoint();
  const page = async (query: string) => Checkpoints.parse((await api.get(`/v1/checkpoints${query}`, auditor)).body);
  const all = await page('');
  expect(verifyCheckpointChain(all.checkpoints, trusted)).toEqual([]);
  const first = await page('?limit=1');
  const rest = await page(`?after=${first.next_after}`);
  expect([...first.checkpoints, ...rest.checkpoints]).toEqual(all.checkpoints);
  expect(await page(`?after=${rest.next_after}`)).toEqual({ checkpoints: [], next_after: rest.next_after });
  for (const query of ['?after=-1', '?after=x', '?limit=1001'])
    expect((await api.get(`/v1/checkpoints${query}`, auditor)).body.code).toBe('value_invalid');
});

test('the keys are told to anybody, and hold no private part', async () => {
  const { status, body } = await api.get('/v1/keys');
  expect(status).toBe(200);
  expect(PublicKeys.parse(body)).toEqual({ keys: [publicJwk(signIn.key, ['credential', 'receipt'])] });
});

test('without the installation’s key there is no receipt and no set of keys, and the code says so', async () => {
  const bare = await fixture.start({ signIn: undefined });
  const { run_id } = await fixture.store.createRun();
  for (const path of [`/v1/runs/${run_id}/receipt`, '/v1/keys']) {
    const { status, body } = await bare.get(path, auditor);
    expect([status, body.code]).toEqual([503, 'sign_in_unavailable']);
  }
});
