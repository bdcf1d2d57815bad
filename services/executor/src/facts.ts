import { currentEvidence, type JsonObject, type Manifest } from '@counterstamp/manifest-core';
import { callFor, type Fact, type Gathered, type Systems, type Workflow } from '@counterstamp/workflows';

/** The preconditions, read again right before the send. */
export async function gatherFresh(run: Manifest, workflow: Workflow, systems: Systems): Promise<Gathered> {
  return await workflow.readEvidence(run, callFor(workflow, run, systems.reads));
}

/** What the approval was based on; `undefined` when its values were erased. */
export function approvedFacts(run: Manifest): Fact[] | undefined {
  const trusted = currentEvidence(run).filter((item) => item.trusted);
  if (trusted.some((item) => item.facts === null)) return undefined;
  return trusted.map((item) => ({ kind: item.kind, facts: item.facts as JsonObject }));
}
