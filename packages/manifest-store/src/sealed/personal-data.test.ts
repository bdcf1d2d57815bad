import { randomBytes } from 'node:crypto';
import {
  canonicalJson,
  digestOf,
  factsDigest,
  inputDigest,
  type JsonObject,
  type Manifest,
  type RunId,
  sha256Text,
  uuidOfRunId,
  verifyChain,
} from '@counterstamp/manifest-core';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import {
  ACTION,
  evidenceDraft,
  newRun,
  type StoreFixture,
  storeFixture,
  testIds,
} from '../../../../testing/store-fixture.ts';
import { createApiStore } from '../api-store.ts';
import { eraseSubject } from '../erase.ts';
import { verifyHistory } from '../history.ts';
import { createWorkerStore } from '../worker-store.ts';
import { parseDataKeys } from './data-keys.ts';
import { SealBroken } from './seal.ts';
import { createSealing, DataKeyMissing, type Sealing } from './sealing.ts';
import { sealingFault } from './sealing-fault.ts';

const [FIRST, SECOND] = [randomBytes(32).toString('base64url'), randomBytes(32).toString('base64url')];
function sealingWith(...keys: string[]): Sealing {
  const parsed = parseDataKeys(keys.join(','));
  if (!parsed.ok) throw new Error(parsed.fault);
  return createSealing(parsed.keys);
}
const TENANT = 'shop_north';
const PRIVATE = 'Zoë Öztürk of 17 Elm Street says it arrived damaged';
const INPUT: JsonObject = { order_id: 'order_913', reason: PRIVATE };
const input_canonical = canonicalJson(INPUT);
const CONTEXT = [{ source: 'mail', text: `${PRIVATE}, and more` }];
const personal = (subject: string) => ({
  subject,
  input_canonical,
  context: CONTEXT,
  body_digest: digestOf('cs.body.v1', input_canonical),
});
let counted = 0;
const freshSubject = () => `customer_${++counted}`;

describe.each([18, 15] as const)('on PostgreSQL %i', (version) => {
  let db: StoreFixture;
  const sealing = sealingWith(FIRST);
  beforeAll(async () => {
    db = await storeFixture(version, { sealing });
  });
  afterAll(() => db.close());

  const load = async (run_id: RunId): Promise<Manifest> => {
    const loaded = await db.stores.executor.load(run_id);
    if (loaded === undefined) throw new Error('no such run');
    return loaded.manifest;
  };
  /** Everything that any table of the schema holds, as text. */
  const wholeDatabase = async (): Promise<string> => {
    const tables = await db.owner<{ name: string }[]>`
      select c.relname as name from pg_class c where c.relnamespace = 'cs'::regnamespace and c.relkind = 'r'`;
    const texts: string[] = [];
    for (const { name } of tables) {
      const rows = await db.owner<{ row: string }[]>`select to_jsonb(t)::text as row from ${db.owner(`cs.${name}`)} t`;
      texts.push(...rows.map(({ row }) => row));
    }
    return texts.join('\n');
  };
  const events = async (run_id: RunId) => (await db.api.events(TENANT, run_id)) ?? [];
  const refsOf = async (run_id: RunId) =>
    (await events(run_id)).map((event) => (JSON.parse(event.payload) as { refs: JsonObject }).refs);
  const erase = (subject: string, evenOpen = false, apply = true) =>
    eraseSubject(db.owner, { tenant_id: TENANT, subject }, { evenOpen, apply });
  /** From the request to a closed run: with evidence, a proposal, an action and an outcome that came late. */
  async function closedRun(subject: string): Promise<{ run_id: RunId; attempt_id: string }> {
    const before = await db.toApproved(personal(subject));
    const outcome = await db.dispatch(before);
    if (outcome.kind !== 'committed') throw new Error(`not dispatched: ${outcome.kind}`);
    const { run_id } = outcome.row;
    const attempt_id = (await load(run_id)).attempts[0]?.attempt_id ?? '';
    const stop_reason = { code: 'effect_rejected' as const, message: 'test' };
    const attempt_outcome = { attempt_id, status: 'rejected' as const, provider_ref: null, response: {} };
    await db.move('executor', outcome.row, 'effect_rejected', 'failed', { attempt_outcome, stop_reason });
    return { run_id, attempt_id };
  }

  test('nothing personal is stored or chained in plain text, and a load shows it all', async () => {
    const { run_id, attempt_id } = await closedRun(freshSubject());
    const facts = { customer: PRIVATE };
    await db.stores.reconciler.appendEvidence({ run_id, attempt_id, applied: true, provider_ref: 'rf_1', body: facts });
    const run = await load(run_id);
    expect(run).toMatchObject({ input: INPUT, context: CONTEXT, erased_at: null });
    expect(run.evidence.map((item) => item.facts)).toEqual([{ status: 'open' }, { refundable: 4200 }, facts]);
    expect(run.evidence.some((item) => item.altered)).toBe(false);
    expect(run.proposals.map((proposal) => proposal.body)).toEqual([ACTION]);
    expect((await db.api.load(TENANT, run_id))?.manifest.input).toEqual(INPUT);
    expect(await wholeDatabase()).not.toContain('Elm Street');
  });

  test('what the chain commits to can be checked with the salt and guessed without it by nobody', async () => {
    const { run_id } = await closedRun(freshSubject());
    const [accepted] = await refsOf(run_id);
    const guesses = [
      digestOf('cs.body.v1', input_canonical),
      digestOf('cs.input.v1', input_canonical),
      digestOf('cs.proposal.v1', canonicalJson(ACTION)),
      sha256Text(input_canonical),
      factsDigest('', input_canonical),
      inputDigest('', input_canonical),
    ];
    expect(JSON.stringify(await refsOf(run_id))).not.toMatch(new RegExp(guesses.join('|')));
    expect(accepted).toMatchObject({ input_digest: expect.stringMatching(/^sha256:/) });
    const again = await closedRun(freshSubject());
    const [other] = await refsOf(again.run_id);
    expect(other?.input_digest).not.toBe(accepted?.input_digest);
    // Under the data key the same text is still the same text.
    expect(other?.body_digest).toBe(accepted?.body_digest);
  });

  test('a subject has one key, whoever asks first, and its runs open under it alone', async () => {
    const subject = freshSubject();
    const rows = await Promise.all(Array.from({ length: 8 }, () => db.createRun(personal(subject))));
    for (const row of rows) expect((await load(row.run_id)).input).toEqual(INPUT);
    const keys = await db.owner`select from cs.subject_key where tenant_id = ${TENANT} and subject = ${subject}`;
    expect(keys).toHaveLength(1);
  });

  describe('the same request again', () => {
    test('is known while the data key stays, after it was replaced, and when sealing began meanwhile', async () => {
      const requester = await db.principal('requester');
      const sql = db.serviceSql.api;
      const plainApi = createApiStore(sql);
      const rotated = createApiStore(sql, { sealing: sealingWith(SECOND, FIRST) });
      const sealedFirst = { ...newRun(requester), ...personal(freshSubject()) };
      const plainFirst = { ...newRun(requester), ...personal(freshSubject()) };
      expect((await db.api.createRun(sealedFirst)).kind).toBe('created');
      expect((await plainApi.createRun(plainFirst)).kind).toBe('created');
      for (const store of [db.api, rotated])
        for (const first of [sealedFirst, plainFirst]) {
          const run_id = newRun(requester).run_id;
          expect((await store.createRun({ ...first, run_id })).kind).toBe('existing');
          const changed = digestOf('cs.body.v1', 'another body');
          expect((await store.createRun({ ...first, run_id, body_digest: changed })).kind).toBe('idempotency_conflict');
        }
    });
  });

  describe('an erased subject', () => {
    test('leaves digests, events and the action, and nothing of what was sealed, on every way to it', async () => {
      const subject = freshSubject();
      const { run_id } = await closedRun(subject);
      const before = await load(run_id);
      expect(await erase(subject, false, false)).toMatchObject({ result: 'would_erase', runs: 1, sealed_values: 4 });
      expect((await load(run_id)).erased_at).toBeNull();

      const done = await erase(subject);
      expect(done).toMatchObject({ result: 'erased', runs: 1, sealed_values: 4, open_runs: 0, unsealed: 0 });
      for (const after of [await load(run_id), (await db.api.load(TENANT, run_id))?.manifest])
        expect(after).toEqual({
          ...before,
          erased_at: done.erased_at,
          input: {},
          context: [],
          evidence: before.evidence.map((item) => ({ ...item, facts: null })),
          proposals: before.proposals.map((proposal) => ({ ...proposal, body: null })),
        });
      expect(verifyChain(await events(run_id), before.chain_head)).toEqual([]);
      for await (const report of verifyHistory(db.owner, run_id))
        expect(report).toMatchObject({ faults: [], erased_at: done.erased_at });
      const [audited] = await db.owner<{ detail: JsonObject }[]>`
        select detail from cs.audit_event where what = 'erase' and detail ->> 'subject' = ${subject}`;
      expect(audited?.detail).toEqual({ subject, runs: 1, open_runs: 0, sealed_values: 4 });
    });

    test('is erased once and stays erased, also for who owns the database', async () => {
      const subject = freshSubject();
      await closedRun(subject);
      const first = await erase(subject);
      expect(await erase(subject)).toMatchObject({ result: 'already_erased', erased_at: first.erased_at });
      for (const statement of [
        db.owner`update cs.subject_key set wrapped_key = ${Buffer.alloc(69)}, erased_at = null where subject = ${subject}`,
        db.owner`delete from cs.subject_key where subject = ${subject}`,
        db.owner`truncate cs.subject_key`,
      ])
        await expect(statement).rejects.toMatchObject({ code: 'CS006' });
    });

    test('keeps its open runs from being erased by mistake, and those of another tenant from being erased at all', async () => {
      const subject = freshSubject();
      const row = await db.createRun(personal(subject));
      expect(await erase(subject)).toMatchObject({ result: 'open_runs', open_runs: 1 });
      const foreign = { tenant_id: 'shop_south', subject };
      const options = { evenOpen: true, apply: true };
      expect(await eraseSubject(db.owner, foreign, options)).toMatchObject({
        result: 'unknown',
        runs: 0,
        open_runs: 0,
      });
      expect((await load(row.run_id)).input).toEqual(INPUT);
      expect(await erase(subject, true)).toMatchObject({ result: 'erased', open_runs: 1 });
      expect(await load(row.run_id)).toMatchObject({ input: {}, state: 'queued' });
    });

    test('gets no new run, while a request that is known already is still known', async () => {
      const subject = freshSubject();
      const requester = await db.principal('requester');
      const created = { ...newRun(requester), ...personal(subject) };
      expect((await db.api.createRun(created)).kind).toBe('created');
      await erase(subject, true);
      expect(await db.api.createRun({ ...newRun(requester), ...personal(subject) })).toEqual({
        kind: 'subject_erased',
      });
      expect((await db.api.createRun({ ...created, run_id: newRun(requester).run_id })).kind).toBe('existing');
    });

    test('and a request at the same moment leave either a run that opens or none', async () => {
      const requester = await db.principal('requester');
      for (let round = 0; round < 10; round++) {
        const subject = freshSubject();
        await db.createRun(personal(subject));
        const created = { ...newRun(requester), ...personal(subject) };
        const [outcome, erased] = await Promise.all([db.api.createRun(created), erase(subject, true)]);
        expect(erased.result).toBe('erased');
        // Created before the erasure saw it, and counted; or refused.
        expect([outcome.kind, erased.open_runs]).toEqual(
          outcome.kind === 'created' ? ['created', 2] : ['subject_erased', 1],
        );
      }
    });

    test('takes what still arrives, and nobody can read it', async () => {
      const subject = freshSubject();
      const { run_id, attempt_id } = await closedRun(subject);
      await erase(subject);
      const body = { customer: PRIVATE };
      const late = { run_id, attempt_id, applied: true, provider_ref: 'rf_1', body };
      expect(await db.stores.reconciler.appendEvidence(late)).toBe('reopened');
      const item = (await load(run_id)).evidence.at(-1);
      expect(item).toMatchObject({ kind: 'late_effect', facts: null });
      expect(item?.altered).toBeUndefined();
    });
  });

  test('runs that were recorded in plain text are named: no key erases them', async () => {
    const subject = freshSubject();
    const requester = await db.principal('requester');
    await createApiStore(db.serviceSql.api).createRun({ ...newRun(requester), ...personal(subject) });
    expect(await erase(subject)).toMatchObject({ result: 'unknown', runs: 0, unsealed: 1 });
    await db.createRun(personal(subject));
    expect(await erase(subject, true)).toMatchObject({ result: 'erased', runs: 1, unsealed: 1 });
  });

  describe('with SQL as the owner', () => {
    const plain = 'alter table cs.run_input disable trigger user; alter table cs.proposal disable trigger user';

    test('a changed or moved piece of evidence is withheld and marked', async () => {
      const [one, two] = [
        await load((await closedRun(freshSubject())).run_id),
        await load((await closedRun(freshSubject())).run_id),
      ];
      const [flipped, moved] = [one.evidence[0]?.evidence_id ?? '', one.evidence[1]?.evidence_id ?? ''];
      const source = two.evidence[1]?.evidence_id ?? '';
      await db.owner`update cs.evidence_value set sealed = set_byte(sealed, 20, get_byte(sealed, 20) # 1) where evidence_id = ${flipped}`;
      await db.owner`update cs.evidence_value set sealed = (select sealed from cs.evidence_value where evidence_id = ${source}) where evidence_id = ${moved}`;
      const run = await load(one.run_id);
      expect(run.evidence.map(({ facts, altered }) => [facts, altered])).toEqual([
        [null, true],
        [null, true],
      ]);
    });

    test('a changed input does not open, and neither does a key of another subject', async () => {
      const subjects = [freshSubject(), freshSubject()] as const;
      const [{ run_id }, { run_id: other }] = [await closedRun(subjects[0]), await closedRun(subjects[1])];
      await db.owner.unsafe(plain);
      await db.owner`update cs.run_input set sealed = set_byte(sealed, 20, get_byte(sealed, 20) # 1) where run_id = ${uuidOfRunId(run_id)}::uuid`;
      await expect(load(run_id)).rejects.toThrow(SealBroken);
      await db.owner`update cs.subject_key set wrapped_key = (select k.wrapped_key from cs.subject_key k where k.subject = ${subjects[0]}) where subject = ${subjects[1]}`;
      await expect(load(other)).rejects.toThrow(SealBroken);
      await db.owner.unsafe(plain.replaceAll('disable', 'enable'));
    });
  });

  describe('a process without the data key', () => {
    test('is told so at its start and at a load, and can put nothing in plain text beside what is sealed', async () => {
      const subject = freshSubject();
      let row = await db.createRun(personal(subject));
      row = await db.move('preflight', row, 'request_loaded', 'preflight');
      const sql = db.serviceSql.preflight;
      const wrong = sealingWith(SECOND);
      expect(await sealingFault(sql, sealing)).toBeUndefined();
      for (const given of [undefined, wrong]) {
        expect(await sealingFault(sql, given)).toContain(sealing.key_ids[0]);
        const store = createWorkerStore(sql, { instance_id: 'ins_x', ids: testIds, sealing: given });
        await expect(store.load(row.run_id)).rejects.toThrow(DataKeyMissing);
      }
      const blind = createWorkerStore(sql, { instance_id: 'ins_x', ids: testIds });
      row = await db.move('preflight', row, 'checks_passed', 'collecting');
      const facts = { evidence: [evidenceDraft('order_record', { customer: PRIVATE })], evidence_complete: true };
      const commit = {
        run_id: row.run_id,
        expected: row.revision,
        from: row.state,
        on: 'evidence_recorded',
        to: row.state,
      } as const;
      await expect(blind.commitStage({ ...commit, facts, wake_in_ms: 3_000 })).rejects.toMatchObject({ code: 'CS003' });
    });

    test('reads an erased run like any other: there is nothing to open', async () => {
      const subject = freshSubject();
      const { run_id } = await closedRun(subject);
      await erase(subject);
      const blind = createWorkerStore(db.serviceSql.verifier, { instance_id: 'ins_x', ids: testIds });
      expect((await blind.load(run_id))?.manifest.erased_at).not.toBeNull();
    });
  });
});

test('without a data key everything is in plain text, and changed evidence is marked all the same', async () => {
  const db = await storeFixture(18);
  try {
    const row = await db.toAwaitingApproval(personal('customer_1'));
    expect(await sealingFault(db.serviceSql.api, undefined)).toBeUndefined();
    const load = async () => (await db.stores.executor.load(row.run_id))?.manifest;
    const before = await load();
    expect(before).toMatchObject({ input: INPUT, context: CONTEXT, erased_at: null });
    expect(
      await eraseSubject(db.owner, { tenant_id: TENANT, subject: 'customer_1' }, { evenOpen: true, apply: true }),
    ).toMatchObject({
      result: 'unknown',
      unsealed: 1,
    });
    const changed = before?.evidence[0]?.evidence_id ?? '';
    await db.owner`update cs.evidence_value set facts_canonical = '{"status":"closed"}' where evidence_id = ${changed}`;
    expect((await load())?.evidence.map(({ facts, altered }) => [facts, altered])).toEqual([
      [null, true],
      [{ refundable: 4200 }, undefined],
    ]);
  } finally {
    await db.close();
  }
});
