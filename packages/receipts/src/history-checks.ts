import { isDeepStrictEqual } from 'node:util';
import { type ChainFault, transitionRule, verifyChain } from '@counterstamp/manifest-core';
import { counted, type Finding, judge } from './finding.ts';
import { instantOfMicroseconds } from './instant.ts';
import type { ReceiptEvent, ReceiptPredicate } from './predicate.ts';
import { folded, recordedBy } from './recorded.ts';

/** Every event hashes to what the next one names, they are all of this run, and the last hash is the head. */
export function eventChain({ run, events, chain_head }: ReceiptPredicate): Finding {
  const faults = verifyChain(events, chain_head).map(chainSentence);
  for (const { run_id, revision, at, at_us } of events) {
    if (run_id !== run.run_id) faults.push(`Event ${revision} is of another run, ${run_id}.`);
    if (at !== instantOfMicroseconds(at_us))
      faults.push(`Event ${revision} says ${at}, hashed was ${instantOfMicroseconds(at_us)}.`);
  }
  return judge(faults, `${counted(events.length, 'event')} without a gap lead to the chain head ${chain_head}.`);
}

function chainSentence(fault: ChainFault): string {
  switch (fault.kind) {
    case 'payload_changed':
      return `The payload of event ${fault.revision} is not what was hashed.`;
    case 'event_changed':
      return `Event ${fault.revision} is not what was hashed.`;
    case 'link_broken':
      return `Event ${fault.revision} does not name the hash of the one before it.`;
    case 'revision_gap':
      return `Event ${fault.found} stands where event ${fault.expected} belongs.`;
    case 'head_differs':
      return `The chain head is ${fault.expected ?? 'none'}, but the last event hashes to ${fault.found ?? 'none'}.`;
  }
}

/** Each event starts from where the one before led, and is a legal move by a service that may make it. */
export function legalMoves({ events }: ReceiptPredicate): Finding {
  const faults: string[] = [];
  let state: ReceiptEvent['from'] = null;
  for (const { revision, from, to, trigger, actor } of events) {
    const rule = transitionRule(from, trigger);
    const move = `Event ${revision}, ${from ?? 'nothing'} to ${to} on ${trigger},`;
    if (from !== state) faults.push(`${move} does not start from ${state ?? 'nothing'}.`);
    if (rule?.to !== to) faults.push(`${move} is no legal move.`);
    else if (!(rule.by as readonly string[]).includes(serviceOf(actor)))
      faults.push(`${move} may not be made by ${actor}.`);
    state = to;
  }
  return judge(faults, 'Every event is a legal move from where the one before it led.');
}

/** A principal acts through the api. */
function serviceOf(actor: string): string {
  const [kind = ''] = actor.split('/', 1);
  return kind === 'principal' ? 'api' : kind;
}

const IDENTITY = [
  'tenant_id',
  'request_id',
  'generation',
  'workflow',
  'workflow_version',
  'connector',
  'connector_version',
  'requested_by',
] as const;

/** The run is who its first event says, and stands where its events led. */
export function runState({ run, events }: ReceiptPredicate): Finding {
  const [first] = events;
  const last = events.at(-1);
  const created = recordedBy(first);
  const now = folded(events);
  const recorded: Partial<Record<keyof typeof run, unknown>> = {
    ...Object.fromEntries(IDENTITY.map((name) => [name, created.set[name] ?? null])),
    on_behalf_of: created.refs.on_behalf_of ?? null,
    created_at: first?.at,
    revision: last?.revision,
    state: last?.to,
    stop_reason: now.stop_reason ?? null,
    parked_reason: now.parked_reason ?? null,
  };
  const faults = Object.entries(recorded)
    .filter(([name, value]) => !isDeepStrictEqual(run[name as keyof typeof run], value))
    .map(
      ([name, value]) =>
        `The run's ${name} is ${JSON.stringify(run[name as keyof typeof run])}, its events say ${JSON.stringify(value)}.`,
    );
  const why = run.stop_reason === null ? '' : ` (${run.stop_reason.code})`;
  return judge(faults, `Run ${run.run_id} is ${run.state}${why} at revision ${run.revision}, as its events say.`);
}
