import { factsDigest } from '@counterstamp/manifest-core';
import { absent, counted, type Finding, judge } from './finding.ts';
import type { ReceiptPredicate } from './predicate.ts';
import { evidenceRounds } from './recorded.ts';

const RECORDED = ['source_ref', 'version_marker', 'facts_digest'] as const;

/**
 * All evidence is what the history recorded, and facts that are disclosed have the digest that it committed to. Erased facts leave their
 * digest, which holds as well as before. No event names an item's kind and time, and none names an item of round 0, which came too late for
 * one: for these the receipt's signer vouches alone.
 */
export function evidenceMatches({ evidence, events }: ReceiptPredicate): Finding {
  const recorded = evidenceRounds(events).flatMap((round, index) =>
    round.evidence.map((item) => ({ item, round: index + 1 })),
  );
  if (evidence.length === 0 && recorded.length === 0) return absent('No evidence was recorded.');
  const faults: string[] = [];
  for (const item of evidence) {
    const whose = `Evidence ${item.evidence_id}`;
    const { facts } = item;
    if (typeof facts === 'object' && factsDigest(facts.salt, facts.canonical) !== item.facts_digest)
      faults.push(`${whose}: the facts shown do not have the digest ${item.facts_digest}.`);
    if (item.round === 0) continue;
    const match = recorded.find((one) => one.item.evidence_id === item.evidence_id);
    if (match?.round !== item.round || RECORDED.some((name) => match.item[name] !== item[name]))
      faults.push(`${whose} is not what the history recorded in round ${item.round}.`);
  }
  for (const { item } of recorded)
    if (!evidence.some((one) => one.evidence_id === item.evidence_id))
      faults.push(`Evidence ${String(item.evidence_id)} of the history is missing.`);
  const withheld = (how: 'erased' | 'not_disclosed') => evidence.filter(({ facts }) => facts === how).length;
  const [erased, undisclosed] = [withheld('erased'), withheld('not_disclosed')];
  return judge(
    faults,
    [
      `${counted(evidence.length, 'piece')} of evidence as recorded; ${evidence.length - erased - undisclosed} disclosed, with the facts that were committed to.`,
      ...(erased === 0 ? [] : [`Of ${erased} the facts were erased: their digests still hold.`]),
      ...(undisclosed === 0 ? [] : [`Of ${undisclosed} the facts are not disclosed here.`]),
    ].join(' '),
  );
}
