import type { FaultInput } from '@counterstamp/sandbox';

/** How a target may behave, as far as recovery depends on it. */
export const PROVIDER_KINDS = [
  'key_with_retention',
  'strong_without_key',
  'eventual_without_key',
  'pending_then_failed',
  'partial_effect',
  'key_forgotten',
  'slower_than_declared',
] as const;
export type ProviderKind = (typeof PROVIDER_KINDS)[number];

/** How a run may end, with what the provider's ledger shows then. Numbers are [least, most]. */
export interface End {
  state: 'completed' | 'failed' | 'expired' | 'parked';
  /** Stop or park reasons that are right; empty: any. */
  reasons: readonly string[];
  sends: readonly [number, number];
  /** Effects in the books, failed ones included. */
  effects: readonly [number, number];
}

export interface KindFacts {
  what: string;
  workflow: 'refund' | 'credit';
  /** What meets the requests of a run, in order. */
  faults: readonly FaultInput[];
  /** By how much the credits' look-up lags, in milliseconds. */
  lag_ms: number;
  /** The request was sent and answered, or lost sight of after the effect was there. */
  seen: End;
  /** The first attempt never left: a key permits one retry, otherwise a person is asked. */
  unsent: End;
}

const completed: End = { state: 'completed', reasons: [], sends: [1, 1], effects: [1, 1] };
const parkedAbsent: End = { state: 'parked', reasons: ['effect_not_found'], sends: [0, 0], effects: [0, 0] };

/** Milliseconds by which the slow provider is late: beyond D + Z + P + ε of the fast profile, so that absence is concluded wrongly. */
const SLOW_MS = 6_000;

export const KINDS: Readonly<Record<ProviderKind, KindFacts>> = {
  key_with_retention: {
    what: 'refunds: key with retention and body check, strong look-up',
    workflow: 'refund',
    faults: [],
    lag_ms: 0,
    seen: completed,
    unsent: completed,
  },
  strong_without_key: {
    what: 'credits: no key; the sandbox shows a grant at once, though the contract still grants its lag',
    workflow: 'credit',
    faults: [],
    lag_ms: 0,
    seen: completed,
    unsent: parkedAbsent,
  },
  eventual_without_key: {
    what: 'credits: no key, a look-up that lags 900 ms',
    workflow: 'credit',
    faults: [],
    lag_ms: 900,
    seen: completed,
    unsent: parkedAbsent,
  },
  pending_then_failed: {
    what: 'refunds that are pending for 800 ms and then fail',
    workflow: 'refund',
    faults: [{ kind: 'pending_then_failed', after_ms: 800 }],
    lag_ms: 0,
    seen: { state: 'failed', reasons: ['settlement_failed'], sends: [1, 1], effects: [1, 1] },
    unsent: { state: 'failed', reasons: ['settlement_failed'], sends: [1, 1], effects: [1, 1] },
  },
  partial_effect: {
    what: 'refunds of another amount than asked for',
    workflow: 'refund',
    faults: [{ kind: 'other_amount', amount: 4_100 }],
    lag_ms: 0,
    seen: { state: 'parked', reasons: ['effect_differs', 'verification_mismatch'], sends: [1, 1], effects: [1, 1] },
    unsent: { state: 'parked', reasons: ['effect_differs', 'verification_mismatch'], sends: [1, 1], effects: [1, 1] },
  },
  key_forgotten: {
    what: 'refunds whose first request is dropped and whose key is forgotten before the second',
    workflow: 'refund',
    faults: [{ kind: 'cut_before_accept' }, { kind: 'key_forgotten' }],
    lag_ms: 0,
    seen: { state: 'completed', reasons: [], sends: [2, 2], effects: [1, 1] },
    // What was never sent meets the first fault with its retry; two attempts are all.
    unsent: { state: 'parked', reasons: ['effect_not_found'], sends: [1, 1], effects: [0, 0] },
  },
  slower_than_declared: {
    what: `refunds that take effect ${SLOW_MS} ms late, beyond P`,
    workflow: 'refund',
    faults: [{ kind: 'accept_late', delay_ms: SLOW_MS }],
    lag_ms: 0,
    // Absence is concluded wrongly and the request sent again: the key, still known and in use, keeps it one effect.
    seen: { state: 'completed', reasons: [], sends: [1, 2], effects: [1, 1] },
    // The second attempt is late as well, and there is no third: a person is asked, and the effect comes after that.
    unsent: { state: 'parked', reasons: ['effect_not_found'], sends: [1, 1], effects: [0, 1] },
  },
};
