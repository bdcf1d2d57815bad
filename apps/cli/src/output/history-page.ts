import type { RunEvent } from '@counterstamp/api-contract';
import type { Trigger } from '@counterstamp/manifest-core';
import { z } from 'zod';
import { table } from './table.ts';

const Reason = z.looseObject({ code: z.string() }).nullish();
/** What a sentence needs of an event's payload; the rest is for the hash. */
const Payload = z.looseObject({
  set: z.looseObject({ attempts: z.number().optional(), parked_reason: z.string().nullish(), stop_reason: Reason }),
  refs: z.looseObject({
    attempt_id: z.string().optional(),
    call_deadline: z.string().optional(),
    attempt: z.looseObject({ attempt_id: z.string(), response: z.unknown().optional() }).optional(),
    observation: z.looseObject({ body: z.unknown().optional() }).optional(),
    verdict: z.looseObject({ verdict: z.string(), evidence: z.string() }).optional(),
    read_failure: z.looseObject({ operation: z.string(), reason: z.string() }).optional(),
  }),
});
type Payload = z.infer<typeof Payload>;

/** One event with what the events before it say about its attempt. */
interface Told extends Payload {
  /** Number of the attempt that the event is about; 0: none. */
  n: number;
  /** Whether the attempt's call deadline lay ahead still. */
  early: boolean;
}

/** Why the run stopped or is parked now, as a code. */
const why = ({ set }: Told) => set.parked_reason ?? set.stop_reason?.code ?? '';
const parkedAs = (told: Told) => (told.set.parked_reason == null ? '' : `; parked: ${told.set.parked_reason}`);
const said = ({ refs }: Told) => refs.verdict?.evidence ?? '';

/** What each move is to a reader who knows the business and not the protocol. */
const SENTENCES: Readonly<Record<Trigger, (told: Told) => string>> = {
  request_accepted: () => 'the request was taken',
  request_loaded: () => 'the business request was read',
  checks_passed: () => 'scope and operations were checked',
  checks_failed: (told) => `a check failed: ${why(told)}; nothing was sent`,
  read_failed: ({ refs }) => `a read failed: ${refs.read_failure?.operation ?? ''} ${refs.read_failure?.reason ?? ''}`,
  evidence_recorded: () => 'the facts were read and kept',
  proposal_asked_again: () => 'no proposal came; asked again',
  proposal_received: () => 'an action was proposed',
  proposal_refused: () => 'the proposal did not pass its checks',
  proposal_superseded: () => 'another proposal replaced the one that waited',
  action_fixed: () => 'the exact action was fixed; a person is asked',
  evidence_changed: () => 'a fact behind the action changed; asked again from the start',
  decision_recorded: () => 'a person decided',
  decision_voided: () => 'a decision no longer counted',
  approval_rejected: () => 'a person rejected; nothing was sent',
  approval_expired: () => 'the approval expired unused; nothing was sent',
  cancelled: () => 'cancelled; nothing was sent',
  deadline_passed: () => 'the deadline of the whole run passed',
  dispatch_refused: (told) => `the dispatch was refused: ${why(told)}; nothing was sent`,
  dispatched: ({ n }) => `attempt ${n} was committed; its request may leave from here on`,
  effect_accepted: ({ n }) => `attempt ${n}: the provider accepted; an independent read must prove it`,
  effect_rejected: ({ n }) => `attempt ${n}: the provider clearly refused; no effect`,
  outcome_uncertain: (told) =>
    `attempt ${told.n}: the answer is missing or unclear (${reasonOf(told)})${parkedAs(told)}`,
  nothing_sent: (told) => `attempt ${told.n}: no byte left (${reasonOf(told)})`,
  attempt_overdue: ({ n, early }) =>
    early
      ? `attempt ${n}: its executor is gone; looked up early, before the call deadline`
      : `attempt ${n}: no outcome was recorded in time; looked up`,
  verification_pending: (told) => `not proven yet: ${lookOf(told)}`,
  effect_verified: () => 'an independent read showed exactly the approved effect',
  settlement_failed: () => 'accepted, then failed for good at the provider',
  verification_failed: (told) => `not proven: ${why(told)}`,
  look_inconclusive: (told) => `looked up: ${lookOf(told)}`,
  effect_found: () => 'looked up: the effect is there; an independent read must prove it',
  retry_recorded: () => 'looked up: absent and settled; a retry with the same key and bytes is recorded',
  resend_recorded: () => 'nothing had left; another send of the same bytes is recorded',
  retry_refused: (told) => `the retry was refused: ${why(told)}`,
  retry_dispatched: ({ n }) =>
    `attempt ${n}, same key and same bytes, was committed; its request may leave from here on`,
  never_sent: () => 'no byte ever left and no retry is left; closed without effect',
  parked: (told) => `parked for a person: ${why(told)}`,
  person_unsure: (told) =>
    told.refs.verdict?.verdict === 'look_again'
      ? `a person asked for another look: ${said(told)}`
      : `a person could not tell: ${said(told)}`,
  person_landed: (told) => `a person saw the effect: ${said(told)}; an independent read must prove it`,
  person_absent: (told) => `a person saw that nothing happened: ${said(told)}`,
  person_settled_with_difference: (told) => `a person saw a different effect: ${said(told)}`,
  late_effect_found: (told) => `an effect turned up late; reopened and parked: ${why(told)}`,
  effect_reversed: () => 'the effect was undone at the provider after completion; reopened and parked',
};

function reasonOf({ refs }: Told): string {
  return fieldOf(refs.attempt?.response, 'reason') ?? 'no reason given';
}

function lookOf({ refs }: Told): string {
  return fieldOf(refs.observation?.body, 'why') ?? 'nothing conclusive';
}

function fieldOf(value: unknown, name: string): string | undefined {
  const found = z.looseObject({ [name]: z.string() }).safeParse(value);
  return found.success ? found.data[name] : undefined;
}

/** What happened at each event, in order; empty where this version does not know the move. */
export function whatHappened(events: readonly Pick<RunEvent, 'trigger' | 'at' | 'payload'>[]): string[] {
  const attempts = new Map<string, { n: number; call_deadline: string }>();
  return events.map(({ trigger, at, payload }) => {
    const parsed = Payload.safeParse(jsonOf(payload));
    if (!parsed.success || !isKnown(trigger)) return '';
    const { set, refs } = parsed.data;
    if (refs.attempt_id !== undefined && refs.call_deadline !== undefined && set.attempts !== undefined)
      attempts.set(refs.attempt_id, { n: set.attempts, call_deadline: refs.call_deadline });
    const attempt = attempts.get(refs.attempt_id ?? refs.attempt?.attempt_id ?? '');
    // Instants of one format and length: their order is that of their texts.
    const early = attempt !== undefined && at < attempt.call_deadline;
    return SENTENCES[trigger]({ set, refs, n: attempt?.n ?? 0, early });
  });
}

/** A run's history as a person reads it. Pure. */
export function historyPage(events: readonly RunEvent[]): string {
  const happened = whatHappened(events);
  return table(
    ['REV', 'AT', 'FROM', 'TO', 'TRIGGER', 'ACTOR', 'WHAT HAPPENED'],
    events.map((one, index) => [
      String(one.revision),
      one.at,
      one.from ?? '',
      one.to,
      one.trigger,
      one.actor,
      happened[index] ?? '',
    ]),
  );
}

function isKnown(trigger: string): trigger is Trigger {
  return Object.hasOwn(SENTENCES, trigger);
}

function jsonOf(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
