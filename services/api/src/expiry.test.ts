import { afterAll, beforeAll, expect, test } from 'vitest';
import { settableClock } from '../../../testing/store-fixture.ts';
import { type ApiFixture, apiFixture, type RunningApi } from '../testing/api-fixture.ts';

/** Life of the approval, milliseconds. */
const LIFE_MS = 60_000;

let fixture: ApiFixture;
let api: RunningApi;
let approver: string;
let clock: Awaited<ReturnType<typeof settableClock>>;

beforeAll(async () => {
  fixture = await apiFixture();
  api = await fixture.start();
  approver = (await fixture.store.principal('approver')).key;
  clock = await settableClock(fixture.store);
  // From here on the database's clock stands still unless a test moves it. Nothing sweeps.
  await clock.advanceMs(0);
});
afterAll(() => fixture.close());

async function asked() {
  const { run_id } = await fixture.store.toAwaitingApproval({}, { lifeMs: LIFE_MS });
  const { approval } = await api.client(approver).getRun(run_id);
  if (approval === null) throw new Error('nothing to decide');
  const { approval_id, approval_digest, action_digest, action_revision, expires_at } = approval;
  const decide = (decision: 'approve' | 'reject') =>
    api.post(`/v1/runs/${run_id}/decisions`, approver, {
      approval_id,
      approval_digest,
      action_digest,
      action_revision,
      decision,
    });
  return { run_id, expiresMs: Date.parse(expires_at), decide };
}

test.each([
  ['O09 a', 'five seconds after', 5_000, 'approve'],
  ['O09 c', 'at exactly', 0, 'approve'],
  ['O09 c', 'at exactly', 0, 'reject'],
] as const)(
  '%s a click %s the expiry (+ %i ms) to %s is refused though no sweeper ran: expired, no job',
  async (_, __, afterMs, decision) => {
    const { run_id, expiresMs, decide } = await asked();
    await clock.set(new Date(expiresMs + afterMs));
    const hints = api.hints.length;
    expect(await decide(decision)).toMatchObject({ status: 410, body: { code: 'approval_expired' } });
    await api.api.drain();
    expect(api.hints).toHaveLength(hints);
    const run = await api.client(approver).getRun(run_id);
    expect([run.state, run.stop_reason?.code, run.approval?.decisions]).toEqual(['expired', 'approval_expired', []]);
  },
);

test('O09 a millisecond before the expiry is before the expiry', async () => {
  const { expiresMs, decide } = await asked();
  await clock.set(new Date(expiresMs - 1));
  expect(await decide('approve')).toMatchObject({ status: 200, body: { state: 'awaiting_approval' } });
});
