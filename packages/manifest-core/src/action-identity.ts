import { digestOf } from './digest.ts';
import type { Digest } from './ids.ts';

/**
 * The key that makes repeated sends one effect. From (run, revision that fixed the action, action digest) alone, so that a lost
 * commit cannot mint a second one; the same on every attempt (protocol rule 11). `cs-` and 64 hex digits, no personal data.
 */
export function idempotencyKey(runId: string, actionRevision: number, actionDigest: Digest): string {
  const digest = digestOf('cs.idempotency.v1', `${runId}\n${actionRevision}\n${actionDigest}`);
  return `cs-${digest.slice('sha256:'.length)}`;
}

/** Digest over the evidence that an action was checked against, in the order of its ids. */
export function evidenceSetDigest(evidence: readonly { evidence_id: string; facts_digest: string }[]): Digest {
  const lines = evidence.map((item) => `${item.evidence_id} ${item.facts_digest}`).sort();
  return digestOf('cs.evidence-set.v1', lines.join('\n'));
}

/** Salted digest of recorded facts: the chain commits to it, and erasing salt and facts leaves nothing to guess from. */
export function factsDigest(salt: string, factsCanonical: string): Digest {
  return digestOf('cs.evidence.v1', `${salt}\n${factsCanonical}`);
}

/** What the chain commits to for an input that is sealed: salted as facts are, and for the same reason. The salt is sealed with the input. */
export function inputDigest(salt: string, inputCanonical: string): Digest {
  return digestOf('cs.input.v1', `${salt}\n${inputCanonical}`);
}
