import type { SourceRecord } from '@counterstamp/connectors';
import {
  canonicalJson,
  currentEvidence,
  digestOf,
  type EvidenceDraft,
  factsDigest,
  type Ids,
  type JsonObject,
  type JsonValue,
  type LoadedRun,
  type Manifest,
  type ProposalDraft,
} from '@counterstamp/manifest-core';
import { callFor, type Fact, type Gathered, type Systems, type Workflow } from '@counterstamp/workflows';

/** Loads the request's record in its tenant's own scope. */
export async function gatherRequest(run: Manifest, workflow: Workflow, systems: Systems): Promise<Gathered> {
  return await workflow.readRequest(run, callFor(workflow, run, systems.reads));
}

/** Facts of the recorded evidence that may be relied on. */
export function recordedFacts(run: Manifest): Fact[] {
  return currentEvidence(run).flatMap((item) =>
    item.trusted && item.facts !== null ? [{ kind: item.kind, facts: item.facts as JsonObject }] : [],
  );
}

/** Reads what scope and bounds are judged by beside the request's record. */
export async function gatherScope(run: Manifest, workflow: Workflow, systems: Systems): Promise<Gathered> {
  return await workflow.readScope(run, callFor(workflow, run, systems.reads));
}

/** Reads the authoritative records that the action will be checked against. */
export async function gatherEvidence(run: Manifest, workflow: Workflow, systems: Systems): Promise<Gathered> {
  return await workflow.readEvidence(run, callFor(workflow, run, systems.reads));
}

/**
 * Evidence as it will be recorded: the records read and, when the evidence for a proposal is collected, the text that came with the request,
 * marked untrusted. `observed_at` is the database's time at the load that preceded the reads.
 */
export function evidenceDrafts(
  run: LoadedRun,
  records: readonly SourceRecord[],
  context: Manifest['context'],
  ids: Ids,
): EvidenceDraft[] {
  const draft = (
    kind: string,
    source_ref: string,
    version_marker: string | null,
    trusted: boolean,
    facts: JsonValue,
  ): EvidenceDraft => {
    const salt = ids.salt();
    const facts_canonical = canonicalJson(facts);
    return {
      evidence_id: ids.id('evidence'),
      kind,
      source_ref,
      observed_at: run.now,
      version_marker,
      trusted,
      salt,
      facts_canonical,
      facts_digest: factsDigest(salt, facts_canonical),
    };
  };
  return [
    ...records.map((record) => draft(record.kind, record.source_ref, record.version_marker, true, record.facts)),
    ...context.map((entry) => draft('untrusted_context', `request:${entry.source}`, null, false, { text: entry.text })),
  ];
}

/** The proposal of the proposer `rules`, as untrusted as any other. */
export function rulesProposal(run: Manifest, workflow: Workflow, ids: Ids): ProposalDraft {
  const body: JsonObject = workflow.propose(run.input, currentEvidence(run));
  const body_canonical = canonicalJson(body);
  return {
    proposal_id: ids.id('proposal'),
    author: 'rules',
    author_kind: 'rules',
    body_canonical,
    body_digest: digestOf('cs.proposal.v1', body_canonical),
  };
}
