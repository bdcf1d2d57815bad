import { type KeyObject, randomBytes } from 'node:crypto';
import {
  type CommitFacts,
  canonicalJson,
  type EvidenceDraft,
  inputDigest,
  type NewRun,
  type ProposalDraft,
  type RunId,
  uuidOfRunId,
} from '@counterstamp/manifest-core';
import { answered, type Sql } from '../connection.ts';
import { placeOf, seal } from './seal.ts';
import { keyNobodyHas, type Sealing } from './sealing.ts';

/** Under which key new values of a run are sealed. */
interface RunKey {
  tenant_id: string;
  key: KeyObject;
}

/**
 * A new run as `create_run` takes it, its input, context and proposal sealed under its subject's key. Of what it says the chain names a
 * salted digest (`inputDigest`; the salt is in the sealed text) and digests under the data key. One round trip more than a run in plain text.
 */
export async function sealRun(sql: Sql, sealing: Sealing, created: NewRun): Promise<object> {
  const { input_canonical, context, proposal, body_digest, ...plain } = created;
  const { run_id, tenant_id, principal_id, subject } = plain;
  const [row] = await answered(sql<{ wrapped_key: Buffer | null }[]>`
    select cs.subject_key_for(${tenant_id}, ${principal_id}, ${subject}, ${sealing.freshKey({ tenant_id, subject })}) as wrapped_key`);
  // An erased subject has none. The request may still be one that is known already: create_run says so, and takes nothing new.
  const key = row?.wrapped_key == null ? keyNobodyHas() : sealing.unwrap(row.wrapped_key, { tenant_id, subject });
  const salt = randomBytes(16).toString('hex');
  const text = canonicalJson({ context: context.map((entry) => ({ ...entry })), input_canonical, salt });
  const [digest, ...others] = sealing.keyedDigests(tenant_id, body_digest);
  return {
    ...plain,
    sealed: seal(text, key, placeOf('run_input', run_id)).toString('base64'),
    input_digest: inputDigest(salt, input_canonical),
    body_digest: digest,
    // The same request, as it was recorded before the data key changed or while there was none.
    other_digests: [...others, body_digest],
    proposal: proposal === null ? null : sealedProposal(sealing, { tenant_id, key }, proposal),
  };
}

/**
 * What a commit carries, its evidence and proposal sealed when the run is. One round trip more for a commit that carries any.
 * @param tenant the api's; null for a worker.
 */
export async function sealFacts(
  sql: Sql,
  sealing: Sealing | undefined,
  tenant: string | null,
  run_id: RunId,
  facts: CommitFacts,
): Promise<object> {
  const { evidence = [], proposal } = facts;
  if (sealing === undefined || (evidence.length === 0 && proposal === undefined)) return facts;
  const run = await keyOfRun(sql, sealing, tenant, run_id);
  if (run === null) return facts;
  return {
    ...facts,
    ...(facts.evidence === undefined ? {} : { evidence: evidence.map((draft) => sealedEvidence(run.key, draft)) }),
    ...(proposal === undefined ? {} : { proposal: sealedProposal(sealing, run, proposal) }),
  };
}

/** One late piece of evidence, sealed when the run is. */
export async function sealLateEvidence(
  sql: Sql,
  sealing: Sealing | undefined,
  run_id: RunId,
  draft: Pick<EvidenceDraft, 'evidence_id' | 'salt' | 'facts_canonical'>,
): Promise<object> {
  const run = sealing === undefined ? null : await keyOfRun(sql, sealing, null, run_id);
  return run === null ? draft : sealedEvidence(run.key, draft);
}

/** Null: the run is in plain text, or there is no such run (which the commit will say). */
async function keyOfRun(sql: Sql, sealing: Sealing, tenant: string | null, run_id: RunId): Promise<RunKey | null> {
  const [row] = await answered(
    sql<
      { tenant_id: string; subject: string; sealed: boolean; wrapped_key: Buffer | null }[]
    >`select tenant_id, subject, sealed, wrapped_key from cs.key_of_run(${tenant}, ${uuidOfRunId(run_id)}::uuid)`,
  );
  if (row === undefined || !row.sealed) return null;
  // Erased meanwhile: what still arrives is recorded, and erased with the rest.
  const key = row.wrapped_key === null ? keyNobodyHas() : sealing.unwrap(row.wrapped_key, row);
  return { tenant_id: row.tenant_id, key };
}

function sealedEvidence(
  key: KeyObject,
  { salt, facts_canonical, ...draft }: Pick<EvidenceDraft, 'evidence_id' | 'salt' | 'facts_canonical'>,
): object {
  const text = canonicalJson({ facts_canonical, salt });
  return { ...draft, sealed: seal(text, key, placeOf('evidence_value', draft.evidence_id)).toString('base64') };
}

function sealedProposal(sealing: Sealing, { tenant_id, key }: RunKey, draft: ProposalDraft): object {
  const { body_canonical, body_digest, ...plain } = draft;
  return {
    ...plain,
    sealed: seal(body_canonical, key, placeOf('proposal', draft.proposal_id)).toString('base64'),
    body_digest: sealing.keyedDigests(tenant_id, body_digest)[0],
  };
}
