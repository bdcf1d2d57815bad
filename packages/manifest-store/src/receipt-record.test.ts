import { randomBytes } from 'node:crypto';
import { canonicalJson, digestOf, factsDigest, type RunId, verifyChain } from '@counterstamp/manifest-core';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { newRunId, type StoreFixture, storeFixture } from '../../../testing/store-fixture.ts';
import { createApiStore } from './api-store.ts';
import { checkpointDue, commitCheckpoint } from './checkpoints.ts';
import { eraseSubject } from './erase.ts';
import type { ReceiptRecord } from './receipt-record.ts';
import { parseDataKeys } from './sealed/data-keys.ts';
import { createSealing, DataKeyMissing } from './sealed/sealing.ts';

const TENANT = 'shop_north';

function freshSealing() {
  const parsed = parseDataKeys(randomBytes(32).toString('base64url'));
  if (!parsed.ok) throw new Error(parsed.fault);
  return createSealing(parsed.keys);
}

describe.each([18, 15] as const)('on PostgreSQL %i', (version) => {
  let db: StoreFixture;
  beforeAll(async () => {
    db = await storeFixture(version, { sealing: freshSealing() });
  });
  afterAll(() => db.close());

  async function receipt(run_id: RunId, disclose = true): Promise<ReceiptRecord> {
    const record = await db.api.receipt(TENANT, run_id, disclose);
    if (record === undefined) throw new Error('no such run');
    return record;
  }
  const holds = ({ facts_digest, facts }: ReceiptRecord['evidence'][number]) =>
    typeof facts === 'object' ? factsDigest(facts.salt, facts.canonical) === facts_digest : facts;

  test('a dispatched run is shown with all that stands, and the display with the text that the request bound', async () => {
    const approved = await db.toApproved();
    const outcome = await db.dispatch(approved);
    const { run_id } = approved;
    const record = await receipt(run_id);
    expect(record.run).toMatchObject({ run_id, tenant_id: TENANT, state: 'executing', revision: record.events.length });
    expect(outcome.kind).toBe('committed');
    expect(digestOf('cs.action.v1', record.action?.canonical ?? '')).toBe(record.action?.digest);
    const bound = JSON.parse(record.approval?.canonical ?? '{}') as { display_digest?: string };
    expect(digestOf('cs.display.v1', record.approval?.display_canonical ?? '')).toBe(bound.display_digest);
    expect(record.decisions).toMatchObject([{ decision: 'approve', method: 'dev_key', signed: null, reason: null }]);
    expect(record.attempts).toMatchObject([{ n: 1, status: 'started', action_digest: record.action?.digest }]);
    expect(record.evidence.map(({ round }) => round)).toEqual([1, 2]);
    expect(record.evidence.map(holds)).toEqual([true, true]);
    expect(verifyChain(record.events, record.chain_head)).toEqual([]);
    expect(record.covering).toBeNull();
  });

  test('a run that stopped early has neither action nor approval', async () => {
    const { run_id } = await db.createRun();
    expect(await receipt(run_id)).toMatchObject({
      run: { revision: 1, stop_reason: null },
      action: null,
      approval: null,
      evidence: [],
      decisions: [],
      attempts: [],
      outcome: null,
    });
  });

  test('the newest checkpoint that covers it comes with it, and never one of a later moment', async () => {
    const { run_id } = await db.toAwaitingApproval();
    const due = await checkpointDue(db.serviceSql.reconciler, { interval_ms: 0, heartbeat_ms: 0, limit: 1_000 });
    if (due === undefined) throw new Error('no checkpoint is due');
    await commitCheckpoint(db.serviceSql.reconciler, due, { payload: 'one' });
    const { covering, chain_head } = await receipt(run_id);
    expect(covering).toEqual({ envelope: { payload: 'one' }, leaves: due.leaves });
    expect(covering?.leaves.find((leaf) => leaf.run_id === run_id)?.chain_head).toBe(chain_head);
  });

  test('without disclosure the facts and the words stay, and no data key is asked for', async () => {
    const { run_id } = await db.approve(await db.toAwaitingApproval());
    await db.owner.unsafe('alter table cs.decision disable trigger user');
    await db.owner`update cs.decision set reason = 'Zoë asked for it' where 'run_' || run_id = ${run_id}`;
    await db.owner.unsafe('alter table cs.decision enable trigger user');
    expect((await receipt(run_id)).decisions[0]?.reason).toEqual({ text: 'Zoë asked for it' });
    const blind = createApiStore(db.serviceSql.api);
    await expect(blind.receipt(TENANT, run_id, true)).rejects.toThrow(DataKeyMissing);
    const record = await blind.receipt(TENANT, run_id, false);
    expect(record?.evidence.map(({ facts }) => facts)).toEqual(['not_disclosed', 'not_disclosed']);
    expect(record?.decisions[0]?.reason).toBe('not_disclosed');
  });

  test('after an erasure the facts are erased, their digests stay', async () => {
    const { run_id } = await db.toAwaitingApproval({ subject: 'customer_erased' });
    const before = await receipt(run_id);
    const whose = { tenant_id: TENANT, subject: 'customer_erased' };
    await eraseSubject(db.owner, whose, { evenOpen: true, apply: true });
    const after = await receipt(run_id);
    expect(after.evidence).toEqual(before.evidence.map((item) => ({ ...item, facts: 'erased' })));
  });

  test('evidence that was altered is shown so that its digest fails, whether it still opens or not', async () => {
    const { run_id } = await db.toAwaitingApproval();
    const [first, second] = (await receipt(run_id)).evidence;
    await db.owner`update cs.evidence_value set sealed = set_byte(sealed, 20, get_byte(sealed, 20) # 1) where evidence_id = ${first?.evidence_id ?? ''}`;
    await db.owner`update cs.evidence_value set sealed = null, salt = 'ff', facts_canonical = ${canonicalJson({ refundable: 9 })} where evidence_id = ${second?.evidence_id ?? ''}`;
    const { evidence } = await receipt(run_id);
    expect(evidence.map(holds)).toEqual([false, false]);
    expect(evidence[1]?.facts).toEqual({ salt: 'ff', canonical: '{"refundable":9}' });
  });

  test('another tenant’s run is as unknown as none', async () => {
    const { run_id } = await db.createRun();
    expect(await db.api.receipt('shop_south', run_id, true)).toBeUndefined();
    expect(await db.api.receipt(TENANT, newRunId(), true)).toBeUndefined();
  });
});
