import { randomBytes } from 'node:crypto';
import { canonicalJson, type NewRun, type RunId } from '@counterstamp/manifest-core';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { type StoreFixture, settableClock, storeFixture } from '../../../testing/store-fixture.ts';
import { retain } from './retention.ts';
import { parseDataKeys } from './sealed/data-keys.ts';
import { createSealing } from './sealed/sealing.ts';

const DAY_MS = 86_400_000;
const START = new Date('2026-01-01T00:00:00Z');
const parsed = parseDataKeys(randomBytes(32).toString('base64url'));
if (!parsed.ok) throw new Error(parsed.fault);
const sealing = createSealing(parsed.keys);

describe.each([18, 15] as const)('on PostgreSQL %i', (version) => {
  let db: StoreFixture;
  let clock: Awaited<ReturnType<typeof settableClock>>;
  beforeAll(async () => {
    db = await storeFixture(version, { sealing });
    clock = await settableClock(db);
    await clock.set(START);
  });
  afterAll(() => db.close());

  const input_canonical = canonicalJson({ order_id: 'order_1' });
  /** A run of a case: its subject is its request id. */
  const create = (subject: string, change: Partial<NewRun> = {}) =>
    db.createRun({ subject, request_id: subject, input_canonical, run_life_ms: 400 * DAY_MS, ...change });
  const end = async (subject: string, change?: Partial<NewRun>) => {
    const stop_reason = { code: 'invalid_input' as const, message: 'test' };
    const row = await create(subject, change);
    await db.move('preflight', row, 'checks_failed', 'failed', { stop_reason }, null);
    return row.run_id;
  };
  const isErased = async (run_id: RunId) => (await db.stores.verifier.load(run_id))?.manifest.erased_at !== null;

  test('personal data goes with the last run of its subject, and stays while one is open or young', async () => {
    const old = await end('old');
    const reopened = await end('open');
    const young = await end('young');
    const person = await end('customer_17', { request_id: 'case_of_customer_17' });
    await create('open', { supersedes: reopened });
    await clock.advanceMs(29 * DAY_MS);
    await end('young', { supersedes: young });
    await clock.advanceMs(2 * DAY_MS);

    const due = [{ class: 'evidence', days: 30, before: expect.any(String), count: 1 }];
    expect(await retain(db.owner, { evidence: 30 }, { apply: false })).toEqual(due);
    expect(await isErased(old)).toBe(false);
    expect(await retain(db.owner, { evidence: 30 }, { apply: true })).toEqual(due);
    // Whoever stands behind more than one case may come again; erasing them is a decision of its own.
    expect(await Promise.all([old, reopened, young, person].map(isErased))).toEqual([true, false, false, false]);
    expect(await retain(db.owner, { evidence: 30 }, { apply: true })).toMatchObject([{ count: 0 }]);
  });

  test('more than one batch goes in one call', async () => {
    await db.owner`insert into cs.challenge (challenge, purpose, subject, created_at, expires_at)
      select 'many_' || n, 'decide', '{}', ${START}::timestamptz, ${START}::timestamptz from generate_series(1, 1203) n`;
    expect(await retain(db.owner, { challenges: 1 }, { apply: true })).toMatchObject([{ count: 1203 }]);
    expect(await db.owner`select from cs.challenge`).toHaveLength(0);
  });

  test('sessions, challenges and invitations go by when they ended or were used up, each class by its own days', async () => {
    const { principal_id } = await db.principal('approver');
    const [row] = await db.owner<{ now: string }[]>`select cs.iso(cs.clock()) as now`;
    const nowMs = Date.parse(row?.now ?? '');
    const ago = (days: number) => new Date(nowMs - days * DAY_MS).toISOString();
    const rows = [
      { id: 'ended', until: ago(10), early: null },
      { id: 'ended_early', until: ago(-10), early: ago(10) },
      { id: 'lasting', until: ago(-10), early: null },
      { id: 'just_ended', until: ago(2), early: null },
    ];
    for (const { id, until, early } of rows) {
      await db.owner`insert into cs.session (session_id, secret_hash, tenant_id, principal_id, method, created_at, authenticated_at, last_seen_at, expires_at, revoked_at)
        values (${id}, ${id}, 'shop_north', ${principal_id}, 'oidc', ${ago(20)}, ${ago(20)}, ${ago(20)}, ${until}, ${early})`;
      await db.owner`insert into cs.challenge (challenge, purpose, subject, created_at, expires_at, consumed_at)
        values (${id}, 'decide', '{}', ${ago(20)}, ${until}, ${early})`;
      await db.owner`insert into cs.invitation (invitation_id, tenant_id, principal_id, token_hash, created_at, expires_at, consumed_at)
        values (${id}, 'shop_north', ${principal_id}, ${id}, ${ago(20)}, ${until}, ${early})`;
    }
    const keep = { sessions: 5, challenges: 1, invitations: 5 };
    const counts = [{ count: 2 }, { count: 3 }, { count: 2 }];
    expect(await retain(db.owner, keep, { apply: false })).toMatchObject(counts);
    expect(await retain(db.owner, keep, { apply: true })).toMatchObject(counts);
    const left = await db.owner<{ id: string }[]>`
      select session_id as id from cs.session union all select challenge from cs.challenge union all select invitation_id from cs.invitation`;
    expect(left.map(({ id }) => id).sort()).toEqual(['just_ended', 'just_ended', 'lasting', 'lasting', 'lasting']);
  });
});
