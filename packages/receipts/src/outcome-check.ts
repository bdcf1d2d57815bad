import { isDeepStrictEqual } from 'node:util';
import { absent, type Finding, failed, judge } from './finding.ts';
import type { ReceiptEvent, ReceiptPredicate } from './predicate.ts';
import { members, recordedBy } from './recorded.ts';

/** The outcome is the last observation that the history recorded; and a completed run was completed by one that matched. */
export function outcomeMatches({ run, outcome, events }: ReceiptPredicate): Finding {
  const last = events.findLast((event) => observationOf(event) !== undefined);
  if (outcome === null)
    return last === undefined && run.state !== 'completed'
      ? absent('Nothing was observed of an effect.')
      : failed(
          last === undefined
            ? 'The run is completed without an observation.'
            : `What event ${last.revision} observed is missing.`,
        );
  const faults: string[] = [];
  const { revision, kind, at, provider_ref } = outcome;
  const shown = { kind, provider_ref, body: bodyOf(outcome.kind, outcome.body) };
  if (revision !== last?.revision || at !== last.at || !isDeepStrictEqual(shown, observationOf(last)))
    faults.push(`The outcome is not what event ${last?.revision ?? 'none'} observed last.`);
  const completing = events.findLast((event) => event.to === 'completed');
  if (run.state === 'completed' && (kind !== 'matched' || completing?.revision !== revision))
    faults.push('The run is completed, and no own look that matched completed it.');
  return judge(faults, `An own look at ${at} found the effect ${provider_ref ?? 'without a name'}: ${kind}.`);
}

/** What an event observed. A person's verdict is kept as an observation of the kind `person`, with the verdict whole in the event. */
function observationOf(event: ReceiptEvent): Record<string, unknown> | undefined {
  const { observation, verdict } = recordedBy(event).refs;
  if (verdict !== undefined)
    return { kind: 'person', provider_ref: members(verdict).provider_ref ?? null, body: bodyOf('person', verdict) };
  if (observation === undefined) return undefined;
  const { kind, provider_ref = null, body } = members(observation);
  return { kind, provider_ref, body: body ?? null };
}

/** Of a person's words those that the observation and its event spell alike: the time of the look is written differently. */
function bodyOf(kind: string, body: unknown): unknown {
  if (kind !== 'person') return body;
  const { verdict, evidence = null, effect = null } = members(body);
  return { verdict, evidence, effect };
}
