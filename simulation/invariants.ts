import { type Digest, digestOf, isClosed, type JsonObject, type StoredEvent } from '@counterstamp/manifest-core';
import { evidenceOfEffect, type MemoryRun } from './memory-run.ts';
import type { MemoryStore } from './memory-store.ts';
import type { Provider, ProviderEffect } from './provider.ts';

/** The invariants of protocol.md section 3, and those of architecture.md section 10 that one run alone cannot break. */
export const INVARIANTS = {
  I1: 'at most one effect per approved action',
  I2: 'a valid, unexpired, matching approval at dispatch; no effect without an attempt',
  I3: 'the effect’s body is the approved body',
  I4: 'completed means a matching final effect',
  I5: 'terminal is left only by reopening',
  I6: 'every commit is one revision and one event',
  I7: 'no effect after reject or expiry',
  I8: 'failed means no effect',
  I9: 'positive evidence is never ignored',
  HOLD: 'nothing is dispatched while held',
  ONE_IN_FLIGHT: 'one effect in doubt per resource',
  LIVE: 'terminal or parked, always',
  SURFACE: 'an effect behind a failed run, or one undone behind a completed run, is found',
  BUG: 'no worker asks the database for what it refuses',
  HISTORY: 'the history checker finds nothing',
} as const;
export type Invariant = keyof typeof INVARIANTS;

export interface Violation {
  invariant: Invariant;
  detail: string;
}

export class InvariantViolation extends Error {
  override readonly name = 'InvariantViolation';
  readonly violation: Violation;
  constructor(violation: Violation) {
    super(`${violation.invariant} (${INVARIANTS[violation.invariant]}): ${violation.detail}`);
    this.violation = violation;
  }
}

function violation(invariant: Invariant, detail: string): InvariantViolation {
  return new InvariantViolation({ invariant, detail });
}

function broken(invariant: Invariant, detail: string): never {
  throw violation(invariant, detail);
}

const REOPENING: ReadonlySet<string> = new Set(['late_effect_found', 'effect_reversed']);
const DISPATCHING: ReadonlySet<string> = new Set(['dispatched', 'retry_dispatched']);
/** Conclusions that there is no effect, or sends that would make another. */
const DENYING: ReadonlySet<string> = new Set([
  'retry_recorded',
  'resend_recorded',
  'retry_dispatched',
  'never_sent',
  'person_absent',
]);

/** Checks what one commit did, on the row as it stands right after it. `nowMs`: the database's clock. */
export function checkCommit(
  store: MemoryStore,
  provider: Provider,
  run: MemoryRun,
  event: StoredEvent,
  nowMs: number,
): void {
  const { run_id } = event;
  const before = run.events.at(-2);
  const expected = (before?.revision ?? 0) + 1;
  if (event.revision !== expected || run.revision !== expected)
    broken('I6', `${run_id} went to revision ${event.revision}, not ${expected}`);
  if ((before?.to ?? null) !== event.from)
    broken('I6', `${run_id}: ${event.trigger} from ${event.from}, the event before went to ${before?.to}`);
  if (
    event.from !== null &&
    isClosed(event.from as MemoryRun['state']) &&
    event.from !== event.to &&
    !REOPENING.has(event.trigger)
  )
    broken('I5', `${run_id}: ${event.from} to ${event.to} by ${event.trigger}`);
  if (DENYING.has(event.trigger) && evidenceOfEffect(run))
    broken('I9', `${run_id}: ${event.trigger} although the provider said that it was applied`);
  if (DISPATCHING.has(event.trigger)) checkDispatch(store, run, nowMs);
  if (event.trigger === 'effect_verified') checkCompleted(provider, run);
}

/** I2 and what else must hold at the moment of a dispatch; asked of the records, never of the guards. */
function checkDispatch(store: MemoryStore, run: MemoryRun, nowMs: number): void {
  const { run_id, tenant_id, principal_id } = run.made;
  const approval = run.approval_id === null ? undefined : run.approvals.get(run.approval_id);
  const action = run.action_revision === null ? undefined : run.actions.get(run.action_revision);
  if (approval === undefined || action === undefined)
    throw violation('I2', `${run_id} was dispatched without an approval`);
  const decisions = run.decisions.get(approval.approval_id) ?? [];
  const people = new Set(
    decisions
      .filter(
        (decision) =>
          decision.decision === 'approve' &&
          decision.action_digest === approval.action_digest &&
          decision.principal_id !== principal_id &&
          store.isApprover(tenant_id, decision.principal_id),
      )
      .map((decision) => decision.principal_id),
  );
  if (decisions.some((decision) => decision.decision === 'reject'))
    broken('I2', `${run_id} was dispatched although a person rejected`);
  if (people.size < approval.approvals_required)
    broken('I2', `${run_id} was dispatched with ${people.size} of ${approval.approvals_required} approvals`);
  if (nowMs >= approval.expiresMs)
    broken('I2', `${run_id} was dispatched ${nowMs - approval.expiresMs} ms after its approval expired`);
  const digest = digestOf('cs.action.v1', action.canonical);
  const attempt = run.attemptRows.at(-1);
  if (digest !== approval.action_digest || attempt?.action_digest !== approval.action_digest)
    broken('I2', `${run_id}: what was dispatched is not what was approved`);
  if (store.isHeld(run.made.connector)) broken('HOLD', `${run_id} was dispatched while dispatch was held`);
  for (const other of store.runs.values())
    if (
      other !== run &&
      other.resource_key === run.resource_key &&
      (other.state === 'executing' || other.state === 'needs_reconciliation')
    )
      broken('ONE_IN_FLIGHT', `${run_id} was dispatched while ${other.made.run_id} is in doubt on the same resource`);
}

/** I4: judged when the run completes; a provider that undoes a settled effect later breaks nothing. */
function checkCompleted(provider: Provider, run: MemoryRun): void {
  const { run_id } = run.made;
  const action = run.action_revision === null ? undefined : run.actions.get(run.action_revision);
  const matching = provider.effects.filter(
    (effect) =>
      effect.run_id === run_id &&
      effect.finalMs !== null &&
      action !== undefined &&
      equalsAction(effect, action.fields),
  );
  if (matching.length === 0) broken('I4', `${run_id} completed without a final effect that equals the approved action`);
}

function equalsAction(effect: ProviderEffect, action: JsonObject): boolean {
  const sameThing =
    action.operation === 'grant_credit'
      ? effect.destination === action.customer_id && effect.memo === taggedMemo(effect, action)
      : effect.destination === action.destination && effect.reason === action.reason;
  return sameThing && effect.amount === action.amount_minor && effect.currency === action.currency;
}

/** The memo that a credit system shows for an action: our tag and the approved text. */
function taggedMemo({ run_id }: ProviderEffect, { memo }: JsonObject): string | null {
  return run_id !== null && typeof memo === 'string' ? `${run_id} ${memo}` : null;
}

/** Checks one new effect against the attempts of its run. */
export function checkEffect(store: MemoryStore, provider: Provider, effect: ProviderEffect): void {
  const run = [...store.runs.values()].find(({ made }) => made.run_id === effect.run_id);
  if (run === undefined) throw violation('I2', `${effect.ref} carries no run that exists`);
  const { run_id } = run.made;
  const sent = run.attemptRows.filter((attempt) => attempt.startedMs <= effect.appliedMs);
  if (sent.length === 0) broken('I2', `${effect.ref}: an effect of ${run_id} without an attempt`);
  const digest: Digest = digestOf('cs.request-bytes.v1', new TextEncoder().encode(effect.body));
  if (!sent.some((attempt) => attempt.request_digest === digest))
    broken('I3', `${effect.ref}: what arrived is not what ${run_id} stored for sending`);
  const approved = [...run.actions.values()].some(({ fields, digest: of }) => {
    const requested = effect.body === '' ? undefined : (JSON.parse(effect.body) as JsonObject);
    const isApproved = [...run.approvals.values()].some(
      (approval) =>
        approval.action_digest === of &&
        (run.decisions.get(approval.approval_id) ?? []).some(({ decision }) => decision === 'approve'),
    );
    return isApproved && requested?.amount === fields.amount_minor && requested?.currency === fields.currency;
  });
  if (!approved) broken('I3', `${effect.ref}: what arrived for ${run_id} is no approved action`);
  const standing = provider.effects.filter((other) => other.run_id === effect.run_id && stands(other));
  if (standing.length > 1)
    broken('I1', `${run_id} has ${standing.length} effects: ${standing.map(({ ref }) => ref).join(', ')}`);
  const intent = provider.effects.filter((other) => stands(other) && requestOf(store, other) === run.made.request_id);
  if (intent.length > 1)
    broken(
      'I1',
      `request ${run.made.request_id} has ${intent.length} effects: ${intent.map(({ ref }) => ref).join(', ')}`,
    );
}

function requestOf(store: MemoryStore, effect: ProviderEffect): string | undefined {
  return [...store.runs.values()].find(({ made }) => made.run_id === effect.run_id)?.made.request_id;
}

/** An effect that the world shows and that nobody took back. */
function stands(effect: ProviderEffect): boolean {
  return effect.status !== 'failed';
}

/** I7 and I8: what the states say about the world now. Asked after every step. */
export function checkStates(store: MemoryStore, provider: Provider): void {
  if (provider.effects.length === 0) return;
  for (const run of store.runs.values()) {
    const { state } = run;
    if (state !== 'failed' && state !== 'rejected' && state !== 'expired') continue;
    const effect = provider.effects.find((item) => item.run_id === run.made.run_id && stands(item));
    if (effect === undefined) continue;
    if (state !== 'failed') broken('I7', `${run.made.run_id} is ${state} and has the effect ${effect.ref}`);
    if (run.stop_reason?.code !== 'settled_with_difference')
      broken('I8', `${run.made.run_id} failed (${run.stop_reason?.code}) and has the effect ${effect.ref}`);
  }
}

/** I9 on states: evidence of an effect behind a failed run that nothing records. */
export function checkEvidence(store: MemoryStore): void {
  for (const run of store.runs.values()) {
    if (
      run.state !== 'failed' ||
      run.stop_reason?.code === 'settled_with_difference' ||
      run.stop_reason?.code === 'settlement_failed'
    )
      continue;
    if (evidenceOfEffect(run))
      broken('I9', `${run.made.run_id} is failed although the provider said that it was applied`);
  }
}

/** Whether a run is where it may stay: closed, or with a person who knows why. */
export function rests(run: MemoryRun): boolean {
  return isClosed(run.state) || (run.state === 'needs_reconciliation' && run.parked_reason !== null);
}

/** SURFACE: every effect behind a run that is closed without one must have been found by now, and every settled effect that was undone. */
export function checkSurfaced(store: MemoryStore, provider: Provider): void {
  for (const run of store.runs.values()) {
    if (run.state === 'completed' && !provider.effects.some((item) => item.run_id === run.made.run_id && stands(item)))
      broken('SURFACE', `nobody noticed that the effect of the completed ${run.made.run_id} was undone`);
    if (run.state !== 'failed' || run.stop_reason?.code === 'settled_with_difference') continue;
    const effect = provider.effects.find((item) => item.run_id === run.made.run_id && stands(item));
    if (effect !== undefined) broken('SURFACE', `nobody found ${effect.ref} behind the failed ${run.made.run_id}`);
  }
}

export function checkLive(store: MemoryStore, why: string): void {
  for (const run of store.runs.values())
    if (!rests(run)) broken('LIVE', `${run.made.run_id} is still ${run.state} (revision ${run.revision}) ${why}`);
}
