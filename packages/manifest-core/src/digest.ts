import { createHash } from 'node:crypto';
import type { Digest } from './ids.ts';

/**
 * Domain tags: the same bytes under two tags have two digests, so a digest made for one purpose never passes for another.
 * A published tag never changes its meaning.
 */
export const DOMAINS = [
  'cs.action.v1',
  'cs.approval.v1',
  'cs.body.v1',
  'cs.checkpoint.v1',
  'cs.display.v1',
  'cs.evidence.v1',
  'cs.evidence-set.v1',
  'cs.idempotency.v1',
  'cs.input.v1',
  'cs.observed-effect.v1',
  'cs.proposal.v1',
  'cs.reason.v1',
  'cs.request-bytes.v1',
] as const;
export type Domain = (typeof DOMAINS)[number];

/** SHA-256 over the domain tag, a zero byte and the bytes; text is taken as UTF-8. Written `sha256:<hex>`. */
export function digestOf(domain: Domain, bytes: string | Uint8Array): Digest {
  return `sha256:${createHash('sha256').update(domain, 'utf8').update('\0').update(bytes).digest('hex')}` as Digest;
}

/** SHA-256 of UTF-8 text without a tag, in the same spelling; used for event hashes, whose pre-image names its own format. */
export function sha256Text(text: string): Digest {
  return `sha256:${createHash('sha256').update(text, 'utf8').digest('hex')}` as Digest;
}
