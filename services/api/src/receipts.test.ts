import { Checkpoints, PublicKeys, SignedEnvelope } from '@counterstamp/api-contract';
import { evidenceSetDigest, type RunId, uuidOfRunId } from '@counterstamp/manifest-core';
import { checkpointDue, commitCheckpoint } from '@counterstamp/manifest-store';
import { makeCheckpoint, type ReceiptVerification, verifyReceipt } from '@counterstamp/receipts';
import {
  Envelope,
  generateSigningKey,
  parseSigningKey,
  parseTrustedKeys,
  publicJwk,
  trustedKeysText,
} from '@counterstamp/signatures';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { newRunId, testIds } from '../../../testing/store-fixture.ts';
import { type ApiFixture, apiFixture, ORIGIN, type RunningApi, testSigning } from '../testing/api-fixture.ts';

const checkpointKey = parseSigningKey(generateSigningKey());
const { signIn, receipts } = testSigning();
const trusted = parseTrustedKeys(
  trustedKeysText([publicJwk(receipts.key, ['credential', 'receipt']), publicJwk(checkpointKey, ['checkpoint'])]),
);

let fixture: ApiFixture;
let api: RunningApi;
let auditor: string;
beforeAll(async () => {
  fixture = await apiFixture();
  api = await fixture.start({ signIn, receipts });
  auditor = (await fixture.store.principal('auditor')).key;
});
afterAll(() => fixture.close());

/** Signs where every run stands, as the reconciler does. */
async function checkpoint(): Promise<void> {
  const sql = fixture.store.serviceSql.reconciler;
  const due = await checkpointDue(sql, { interval_ms: 0, heartbeat_ms: 0, limit: 1_000 });
  if (due === undefined) throw new Error('no checkpoint is due');
  const previous = due.previous === null ? null : Envelope.parse(due.previous);
  await commitCheckpoint(sql, due, makeCheckpoint(previous, due.leaves as never, due.at, checkpointKey));
}

/** A run that waits for its effect: two people approved, it was dispatched, and the approval request binds what it should. */
async function dispatched(): Promise<RunId> {
  const { store } = fixture;
  const bound = {
    workflow: 'refund',
    workflow_version: 1,
    groups_required: {},
    method: 'session',
    break_glass: false,
  };
  const collected = await fixture.toCollected((await store.createRun({})).run_id);
  const evidence = (await store.stores.executor.load(collected.run_id))?.manifest.evidence ?? [];
  const last = evidence.filter(({ round }) => round === collected.revision - 2).map((item) => item);
  const set = evidenceSetDigest(last.length === 0 ? evidence.slice(-1) : last);
  const waiting = await store.toActionFixed(collected, { bound: { ...bound, evidence_set_digest: set } });
  const approved = await store.approve(waiting);
  const outcome = await store.dispatch(approved);
  if (outcome.kind !== 'committed') throw new Error(`not dispatched: ${outcome.kind}`);
  return approved.run_id;
}
