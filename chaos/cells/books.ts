import type { RunId } from '@counterstamp/manifest-core';
import type { GrantEffectView, GrantLedgerEntry } from '@counterstamp/sandbox';
import { admin, type ChaosFleet } from '../harness.ts';

/** What a provider's books hold of one run. */
export interface Books {
  sends: { idempotency_key: string | null; body_sha256: string | null }[];
  /** Failed ones included. */
  effects: number;
}

/** Requests and effects of one run at the sandbox. */
export async function booksOf(
  { fleet }: ChaosFleet,
  workflow: 'refund' | 'credit',
  seeded: { order_id: string; payment_id: string },
  run_id: RunId,
): Promise<Books> {
  if (workflow === 'refund') {
    const [sends, effects] = await Promise.all([fleet.ledger(seeded.payment_id), fleet.effects(seeded.payment_id)]);
    return {
      sends: sends.filter((entry) => entry.run_id === run_id || entry.run_id === null),
      effects: effects.length,
    };
  }
  const of = `customer_id=cus_${seeded.order_id}`;
  const { entries } = await admin<{ entries: GrantLedgerEntry[] }>(fleet, 'GET', `/admin/credits/ledger?${of}`);
  const { effects } = await admin<{ effects: GrantEffectView[] }>(fleet, 'GET', `/admin/credits/effects?${of}`);
  return {
    sends: entries.map((entry) => ({ idempotency_key: null, body_sha256: entry.body_sha256 })),
    effects: effects.length,
  };
}
