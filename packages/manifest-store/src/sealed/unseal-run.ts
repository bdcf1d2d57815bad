import type { KeyObject } from 'node:crypto';
import { type ContextEntry, factsDigest, type JsonObject, type JsonValue } from '@counterstamp/manifest-core';
import { open, placeOf, SealBroken } from './seal.ts';
import { DataKeyMissing, type Sealing } from './sealing.ts';

/** A run's record as `loadRun` reads it: each value either in plain text or sealed; bytes as base64. */
export interface StoredRecord {
  run_id: string;
  tenant_id: string;
  /** The run's subject and its key; null where the run has no subject, or the subject no key. */
  subject_key: { subject: string; wrapped_key: string | null; erased_at: string | null } | null;
  sealed_input: string | null;
  input: JsonObject | null;
  context: ContextEntry[] | null;
  evidence: StoredEvidence[];
  proposals: { proposal_id: string; body: JsonValue; sealed: string | null }[];
  observations: unknown[];
}

/** What is stored of one piece of evidence; nulls once it is gone. */
export interface StoredEvidence {
  evidence_id: string;
  facts_digest: string;
  salt: string | null;
  facts_canonical: string | null;
  sealed: string | null;
}

/** What opens a run's values; `erased`: nothing does any more. `plain`: nothing needs opening. */
export type Opener = KeyObject | 'erased' | 'plain';

/**
 * The record with its values opened, in the manifest's form. Evidence that is not what was recorded is marked and withheld, so that a worker
 * can stop the run for it; anything else that does not open is an error.
 * @throws {DataKeyMissing} when values are sealed under a key that this process does not hold.
 * @throws {SealBroken} when the input, a proposal or the subject's key is not what was sealed.
 */
export function unsealRecord(record: StoredRecord, sealing: Sealing | undefined): object {
  const { subject_key, sealed_input: _sealed, evidence, proposals, ...plain } = record;
  const opener = openerOf(record, sealing);
  return {
    ...plain,
    ...inputOf(record, opener),
    erased_at: opener === 'erased' ? (subject_key?.erased_at ?? null) : null,
    evidence: evidence.map((item) => evidenceOf(item, opener)),
    proposals: proposals.map(({ sealed, ...proposal }) => {
      const text = sealed === null ? undefined : opened(opener, sealed, placeOf('proposal', proposal.proposal_id));
      return text === undefined ? proposal : { ...proposal, body: JSON.parse(text) as JsonValue };
    }),
  };
}

/** @throws {DataKeyMissing} @throws {SealBroken} see `unsealRecord`. */
export function openerOf(
  {
    run_id,
    tenant_id,
    subject_key,
    sealed_input,
  }: Pick<StoredRecord, 'run_id' | 'tenant_id' | 'subject_key' | 'sealed_input'>,
  sealing: Sealing | undefined,
): Opener {
  if (sealed_input === null) return 'plain';
  if (subject_key === null) throw new SealBroken(`${run_id}: the key of its subject is not in the database`);
  const { subject, wrapped_key } = subject_key;
  if (wrapped_key === null) return 'erased';
  if (sealing === undefined)
    throw new DataKeyMissing(`${run_id} holds sealed personal data, and this process has no COUNTERSTAMP_DATA_KEY`);
  return sealing.unwrap(Buffer.from(wrapped_key, 'base64'), { tenant_id, subject });
}

function inputOf(
  { run_id, sealed_input, input, context }: StoredRecord,
  opener: Opener,
): { input: JsonObject | null; context: ContextEntry[] | null } {
  if (sealed_input === null) return { input, context };
  const text = opened(opener, sealed_input, placeOf('run_input', run_id));
  if (text === undefined) return { input: {}, context: [] };
  const kept = JSON.parse(text) as { context: ContextEntry[]; input_canonical: string };
  return { input: JSON.parse(kept.input_canonical) as JsonObject, context: kept.context };
}

function evidenceOf({ salt, facts_canonical, sealed, ...item }: StoredEvidence, opener: Opener): object {
  try {
    const kept = factsTextOf({ ...item, salt, facts_canonical, sealed }, opener);
    if (kept === undefined) return { ...item, facts: null };
    return factsDigest(kept.salt, kept.facts_canonical) === item.facts_digest
      ? { ...item, facts: JSON.parse(kept.facts_canonical) as JsonValue }
      : { ...item, facts: null, altered: true };
  } catch (error) {
    if (error instanceof SealBroken) return { ...item, facts: null, altered: true };
    throw error;
  }
}

/**
 * The two texts that the digest of a piece of evidence is over, as they are stored now; `undefined` once they are gone.
 * @throws {SealBroken} when the value is not what was sealed.
 */
export function factsTextOf(
  { evidence_id, salt, facts_canonical, sealed }: StoredEvidence,
  opener: Opener,
): { salt: string; facts_canonical: string } | undefined {
  const text = sealed === null ? undefined : opened(opener, sealed, placeOf('evidence_value', evidence_id));
  if (text !== undefined) return JSON.parse(text) as { salt: string; facts_canonical: string };
  return salt === null || facts_canonical === null ? undefined : { salt, facts_canonical };
}

/** The text that was sealed; `undefined` once it is erased. */
function opened(opener: Opener, sealed: string, place: string): string | undefined {
  if (opener === 'erased') return undefined;
  if (opener === 'plain') throw new SealBroken('a sealed value belongs to a run in plain text');
  return open(Buffer.from(sealed, 'base64'), opener, place).toString('utf8');
}
