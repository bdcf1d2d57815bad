import type { Observation } from '@counterstamp/connectors';
import { keepText, type Manifest } from '@counterstamp/manifest-core';
import { inSpan, type LookResult } from '@counterstamp/telemetry';
import type { Workflow } from './define-workflow.ts';
import { refuseOperation } from './dispatcher.ts';

/** A look in one word, as metrics count it. */
export function lookResult(observation: Observation): LookResult {
  return observation.kind === 'found' ? observation.match : observation.kind;
}

/**
 * One independent look at the business record of a run that may have had an effect: another credential and another code path than the answer
 * to the send. Never acts.
 */
export async function observeEffect(run: Manifest, workflow: Workflow | undefined): Promise<Observation> {
  if (workflow === undefined)
    return { kind: 'unknown', reason: `workflow ${run.workflow} version ${run.workflow_version} is not installed` };
  if (run.action === null) throw new Error('a run may have had an effect without an action');
  const refused = refuseOperation(workflow, run, workflow.observeOperation, 'read');
  if (refused !== undefined) return { kind: 'unknown', reason: refused };
  const binding = {
    run_id: run.run_id,
    action_digest: run.action.digest,
    attempts: run.attempts,
    fields: workflow.verifiedFields,
  };
  const { fields } = run.action;
  try {
    return await inSpan('look-up', { operation: workflow.observeOperation }, async (span) => {
      const observation = await workflow.connector.observe(fields, binding);
      span.set({ result: lookResult(observation) });
      return observation;
    });
  } catch (error) {
    // A connector's bug is a look that showed nothing: counted like any other, so that it cannot keep a run for ever.
    return {
      kind: 'unknown',
      reason: `connector_failed: ${error instanceof Error ? keepText(error.message, 200) : 'unknown'}`,
    };
  }
}
