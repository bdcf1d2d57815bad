import type { Attempt } from '@counterstamp/manifest-core';
import type { Finding } from './checks.ts';
import { microseconds, type RunHistory, sendable } from './history.ts';
import { type LedgerEffect, type LedgerRequest, type LedgerShare, stands } from './ledger.ts';

/** Assumptions A1 and A2 of the protocol, in milliseconds, as the fleet was configured. */
export interface SettleTerms {
  /** Z: longest pause between the deadline check and the write. */
  pause_ms: number;
  /** P: within this time of the write the provider has processed a request or dropped it. */
  provider_ms: number;
  /**
   * How far the provider's clock may be from the database's. Default 1: the same clock, cut to the millisecond.
   */
  skew_ms?: number;
}

/** Where a request comes from. Each attempt has at most one. */
type Origin =
  | { kind: 'on_time' | 'late'; attempt: Attempt }
  /** Every attempt that could have sent it has sent another one. */
  | { kind: 'second'; attempt: Attempt }
  /** Nothing that may have left had started. */
  | { kind: 'none' };

/**
 * Gives each request an attempt that started before it, in the order of their arrival: among those that may still have arrived the one whose
 * deadline comes first, so that no other choice would leave fewer late or unexplained.
 */
function originsOf(
  history: RunHistory,
  requests: readonly LedgerRequest[],
  terms: SettleTerms,
): Map<LedgerRequest, Origin> {
  const skewUs = (terms.skew_ms ?? 1) * 1_000;
  const graceUs = (terms.pause_ms + terms.provider_ms) * 1_000 + skewUs;
  const attempts = sendable(history).sort((a, b) => microseconds(a.call_deadline) - microseconds(b.call_deadline));
  const used = new Set<Attempt>();
  const origins = new Map<LedgerRequest, Origin>();
  const inOrder = [...requests].sort(
    (a, b) => microseconds(a.arrived_at) - microseconds(b.arrived_at) || a.seq - b.seq,
  );
  for (const request of inOrder) {
    const arrivedUs = microseconds(request.arrived_at);
    const started = attempts.filter(
      (attempt) => request.provider === history.run.connector && microseconds(attempt.started_at) <= arrivedUs + skewUs,
    );
    const free = started.filter((attempt) => !used.has(attempt));
    const onTime = free.find((attempt) => arrivedUs <= microseconds(attempt.call_deadline) + graceUs);
    const attempt = onTime ?? free.at(-1) ?? started.at(-1);
    if (attempt === undefined) origins.set(request, { kind: 'none' });
    else if (used.has(attempt)) origins.set(request, { kind: 'second', attempt });
    else origins.set(request, { kind: onTime === undefined ? 'late' : 'on_time', attempt });
    if (attempt !== undefined) used.add(attempt);
  }
  return origins;
}

/**
 * H4: every request at the provider has an attempt that may have been sent and started before it (`no_attempt`), and arrived within
 * Z + P of that attempt's call deadline. A later one is an alarm, `late_send`: the sender paused for longer than the protocol's assumptions
 * grant, so no conclusion of absence was safe.
 */
export function sentInTime(
  history: RunHistory,
  requests: readonly LedgerRequest[],
  terms: SettleTerms,
): Finding<'H4'>[] {
  const found: ReturnType<typeof sentInTime> = [];
  for (const [request, origin] of originsOf(history, requests, terms)) {
    const what = `request ${request.seq} arrived at ${request.provider} at ${request.arrived_at}`;
    if (origin.kind === 'none')
      found.push({ code: 'no_attempt', message: `${what}, and no attempt that may have left had started` });
    if (origin.kind === 'late')
      found.push({
        code: 'late_send',
        message: `${what}, more than Z + P = ${terms.pause_ms + terms.provider_ms} ms after the call deadline ${origin.attempt.call_deadline} of attempt ${origin.attempt.n}`,
      });
  }
  return found;
}

/** H4, for what arrived and belongs to no run: somebody sent without an attempt. */
export function strayRequests(requests: readonly LedgerRequest[]): Finding<'H4'>[] {
  return requests.map(({ seq, provider, arrived_at, idempotency_key, run_id }) => ({
    code: 'no_attempt',
    message: `request ${seq} arrived at ${provider} at ${arrived_at} with the key ${idempotency_key ?? 'none'} and the tag ${run_id ?? 'none'}, and belongs to no run`,
  }));
}

/** H7: each attempt has at most one request at the provider. */
export function oneRequestPerAttempt(
  history: RunHistory,
  requests: readonly LedgerRequest[],
  terms: SettleTerms,
): Finding<'H7'>[] {
  return [...originsOf(history, requests, terms)].flatMap(([request, origin]) =>
    origin.kind === 'second'
      ? [
          {
            code: 'sent_twice' as const,
            message: `request ${request.seq} arrived at ${request.provider} at ${request.arrived_at}, and attempt ${origin.attempt.n} had sent one already`,
          },
        ]
      : [],
  );
}

/** Effects that requests made; what a person made at the provider by hand is nobody's send. */
function sent(effects: readonly LedgerEffect[]): LedgerEffect[] {
  return effects.filter((effect) => effect.request_seq !== null);
}

/** H3, within a run: at most one effect under one key, and at most one for the approved action whatever the keys. */
export function oneEffect({ effects, requests }: LedgerShare): Finding<'H3'>[] {
  const ours = sent(effects);
  const [first, ...more] = ours;
  if (first === undefined || more.length === 0) return [];
  const keyOf = (effect: LedgerEffect) =>
    effect.idempotency_key ??
    requests.find((request) => request.provider === effect.provider && request.seq === effect.request_seq)
      ?.idempotency_key ??
    null;
  const key = keyOf(first);
  const names = ours.map((effect) => `${effect.ref} (request ${effect.request_seq})`).join(', ');
  return key !== null && more.every((effect) => keyOf(effect) === key)
    ? [{ code: 'key_twice', message: `the key ${key} had ${ours.length} effects: ${names}` }]
    : [{ code: 'action_twice', message: `one approved action had ${ours.length} effects: ${names}` }];
}

/**
 * H3, across the generations of a request: at most one run's effect stands. One that a person settled as different is recorded as that run's
 * outcome, and a successor may complete what it left open.
 * @returns one finding per request, named on its newest run.
 */
export function oneEffectPerRequest(
  generations: readonly { history: RunHistory; effects: readonly LedgerEffect[] }[],
): { run_id: RunHistory['run']['run_id']; finding: Finding<'H3'> }[] {
  const standing = generations
    .filter(({ history }) => history.run.stop_reason?.code !== 'settled_with_difference')
    .flatMap(({ history, effects }) =>
      sent(effects)
        .filter(stands)
        .map((effect) => ({ run: history.run, effect })),
    )
    .sort((a, b) => a.run.generation - b.run.generation);
  const newest = standing.at(-1)?.run;
  if (newest === undefined || standing.every(({ run }) => run.run_id === newest.run_id)) return [];
  const names = standing.map(({ run, effect }) => `${effect.ref} of generation ${run.generation}`).join(', ');
  const message = `request ${newest.request_id} of ${newest.tenant_id} has effects of several runs that stand: ${names}`;
  return [{ run_id: newest.run_id, finding: { code: 'request_twice', message } }];
}
