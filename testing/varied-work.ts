import type { ApiClient } from '@counterstamp/api-contract';
import { createClient } from '@counterstamp/api-contract';
import type { RunId } from '@counterstamp/manifest-core';
import { createApiKey } from '@counterstamp/manifest-store';
import type { Fleet } from './fleet.ts';
import { testIds } from './test-ids.ts';

/** Milliseconds for one of the ways below on a machine that does much else; the longest one settles for 4 s. */
const WAY_MS = 40_000;

/** An operator of the fleet's tenant. */
export async function operatorOf(fleet: Fleet): Promise<ApiClient> {
  const { key } = await createApiKey(fleet.owner, testIds, {
    tenant_id: 'shop_north',
    name: 'operator',
    role: 'operator',
  });
  return createClient({ baseUrl: fleet.apiUrl, key, fetch });
}

/** A run that is asked for, with what the provider will do to it. */
export async function asked(fleet: Fleet, fault?: unknown, change: Record<string, unknown> = {}): Promise<RunId> {
  const seeded = await fleet.seed();
  if (fault !== undefined) await fleet.fault(seeded.payment_id, fault);
  return await fleet.request(seeded, change);
}

export async function approved(fleet: Fleet, fault?: unknown): Promise<RunId> {
  const run_id = await asked(fleet, fault);
  await fleet.approve(run_id);
  return run_id;
}

export async function completed(fleet: Fleet, fault?: unknown): Promise<RunId> {
  const run_id = await approved(fleet, fault);
  await fleet.until(run_id, ['completed'], WAY_MS);
  return run_id;
}

/** The provider booked another amount than was approved: parked for a person. */
export async function mismatched(fleet: Fleet): Promise<RunId> {
  const run_id = await approved(fleet, { kind: 'other_amount', amount: 4_300 });
  await fleet.until(run_id, (run) => run.parked_reason === 'verification_mismatch', WAY_MS);
  return run_id;
}

/** What a person records who saw the other amount at the provider. */
export async function settleMismatch(fleet: Fleet, operator: ApiClient, run_id: RunId): Promise<void> {
  const { revision } = await fleet.requester.getRun(run_id);
  await operator.verdict(run_id, {
    verdict: 'landed_differently',
    revision,
    evidence: 'the provider shows a refund of 43.00',
    effect: { provider_ref: 're_seen', status: 'succeeded', amount_minor: 4_300, currency: 'USD' },
  });
  await fleet.until(run_id, ['failed'], WAY_MS);
}

/** Some of everything that may become of a run, at the same time: completed, rejected, expired, refused, uncertain and found, uncertain and sent again, held. */
export async function workInAllWays(fleet: Fleet, operator: ApiClient): Promise<void> {
  const rejected = async () => {
    const run_id = await asked(fleet);
    const { approval } = await fleet.until(run_id, ['awaiting_approval'], WAY_MS);
    if (approval === null) throw new Error('nothing to decide');
    const { approval_id, approval_digest, action_digest, action_revision } = approval;
    const bound = { approval_id, approval_digest, action_digest, action_revision };
    await fleet.approver.decide(run_id, { ...bound, decision: 'reject' });
  };
  const expired = async () => {
    const run_id = await asked(fleet, undefined, { approval_life_ms: 1_500 });
    await fleet.until(run_id, ['expired'], WAY_MS);
  };
  const refused = async () => {
    const run_id = await approved(fleet, { kind: 'reject', status: 402, code: 'charge_disputed' });
    await fleet.until(run_id, ['failed'], WAY_MS);
  };
  await Promise.all([
    ...Array.from({ length: 4 }, () => completed(fleet)),
    rejected(),
    expired(),
    refused(),
    completed(fleet, { kind: 'cut_after_accept' }),
    completed(fleet, { kind: 'cut_before_accept' }),
    completed(fleet, { kind: 'pending_then_succeeded', after_ms: 1_000 }),
  ]);
  await operator.setHold('all', { reason: 'a test looks at the brake' });
  const held = await approved(fleet);
  await fleet.until(held, (run) => run.decisions_sufficient, WAY_MS);
  await operator.releaseHold('all');
  await fleet.until(held, ['completed'], WAY_MS);
}
