import { createHash } from 'node:crypto';
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import { GRANT, REFUND, type SandboxUnderTest, sandboxUnderTest } from '../testing/sandbox-under-test.ts';
import type { ProviderHistory } from './provider-history.ts';

let sandbox: SandboxUnderTest;
beforeAll(async () => {
  sandbox = await sandboxUnderTest();
});
afterAll(async () => sandbox.close());
beforeEach(async () => {
  await sandbox.reset();
  await sandbox.seed();
});

const RUN = 'run_00000000-0000-7000-8000-000000000001';
const history = async () => (await sandbox.call('GET', '/admin/history')).json as unknown as ProviderHistory;
const digest = (body: string) => `sha256:${createHash('sha256').update(`cs.request-bytes.v1\0${body}`).digest('hex')}`;

test('holds what arrived at both providers and what was booked, with each request’s bytes, key and run', async () => {
  const refund = JSON.stringify({ ...REFUND, metadata: { run_id: RUN, action_digest: 'sha256:1' } });
  const grant = JSON.stringify({ ...GRANT, memo: `${RUN} sorry` });
  await sandbox.refund(refund, { key: 'a' });
  await sandbox.grant(grant);
  expect(await history()).toEqual({
    since: '2026-01-01T00:00:00.000Z',
    requests: [
      {
        provider: 'sandbox-payments',
        seq: 1,
        arrived_at: '2026-01-01T00:00:00.000Z',
        run_id: RUN,
        idempotency_key: 'a',
        body_digest: digest(refund),
      },
      {
        provider: 'legacy-credits',
        seq: 1,
        arrived_at: '2026-01-01T00:00:00.000Z',
        run_id: RUN,
        idempotency_key: null,
        body_digest: digest(grant),
      },
    ],
    effects: [
      {
        provider: 'sandbox-payments',
        ref: 're_00000001',
        request_seq: 1,
        run_id: RUN,
        idempotency_key: 'a',
        action_digest: 'sha256:1',
        settlement: 'final',
        fields: { amount_minor: 1999, currency: 'USD', destination: 'pay_1', reason: 'duplicate_charge' },
      },
      {
        provider: 'legacy-credits',
        ref: 'cg_00000001',
        request_seq: 1,
        run_id: RUN,
        idempotency_key: null,
        action_digest: null,
        settlement: 'final',
        fields: { customer_id: 'cus_ord_1', amount_minor: 500, currency: 'USD', memo: 'sorry' },
      },
    ],
  });
});

test('says when a request arrived by the clients’ clock, however far the provider’s own was moved', async () => {
  await sandbox.advance(3_600_000);
  await sandbox.refund(REFUND);
  expect((await sandbox.ledger())[0]?.received_at).toBe('2026-01-01T01:00:00.000Z');
  expect((await history()).requests[0]?.arrived_at).toBe('2026-01-01T00:00:00.000Z');
});

test.each([
  ['succeeded', 'final'],
  ['pending', 'pending'],
  ['requires_action', 'pending'],
  ['failed', 'failed'],
  ['canceled', 'failed'],
  ['on_its_way', 'unrecognised'],
])('a refund that is %s is %s', async (status, settlement) => {
  await sandbox.arm({ kind: 'other_status', status });
  await sandbox.refund(REFUND);
  expect((await history()).effects).toMatchObject([{ settlement }]);
});

test('shows an effect as it stands now', async () => {
  await sandbox.arm({ kind: 'succeeded_then_failed', after_ms: 1_000 });
  await sandbox.refund(REFUND);
  expect((await history()).effects).toMatchObject([{ settlement: 'final' }]);
  await sandbox.advance(1_000);
  expect((await history()).effects).toMatchObject([{ settlement: 'failed' }]);
});

test('holds refused requests, which name no run when they could not be read, and effects made by hand', async () => {
  await sandbox.refund('{"payment_id":"pay_1"', { key: 'a' });
  await sandbox.grant({ ...GRANT, memo: `see ${RUN}` }, null);
  await sandbox.call('POST', '/admin/refunds', { payment_id: 'pay_1', metadata: { run_id: RUN } });
  await sandbox.call('POST', '/admin/credits/grants', { customer_id: 'cus_ord_1', amount: 5, currency: 'USD' });
  const { requests, effects } = await history();
  expect(requests.map(({ provider, run_id }) => [provider, run_id])).toEqual([
    ['sandbox-payments', null],
    ['legacy-credits', null],
  ]);
  expect(effects).toMatchObject([
    { ref: 're_00000001', request_seq: null, run_id: RUN },
    { ref: 'cg_00000001', request_seq: null, run_id: null, fields: { memo: '' } },
  ]);
});
