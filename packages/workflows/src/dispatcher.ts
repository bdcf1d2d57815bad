import type { Read } from '@counterstamp/connectors';
import { type JsonObject, keepText, type Manifest } from '@counterstamp/manifest-core';
import { inSpan } from '@counterstamp/telemetry';
import type { Call, OperationKind, Workflow } from './define-workflow.ts';

/** States in which an operation of each kind may be called. */
const STATES: Readonly<Record<OperationKind, readonly Manifest['state'][]>> = {
  read: [
    'queued',
    'preflight',
    'collecting',
    'awaiting_approval',
    'verifying',
    'needs_reconciliation',
    'failed',
    'completed',
  ],
  write: ['awaiting_approval', 'needs_reconciliation'],
};

/**
 * Whether a run may use an operation now: declared by the workflow as this kind, among the run's allowed operations, in a state that permits it.
 * The list in the run declares; this check, at the point of use, permits. `undefined`: permitted; else the reason.
 */
export function refuseOperation(
  workflow: Workflow,
  run: Manifest,
  operation: string,
  kind: OperationKind,
): string | undefined {
  const declared = Object.hasOwn(workflow.operations, operation) ? workflow.operations[operation] : undefined;
  if (declared === undefined) return `${operation} is not an operation of workflow ${workflow.name}`;
  if (declared !== kind) return `${operation} is a ${declared} operation`;
  if (!run.allowed_operations.includes(operation)) return `${operation} is not among the run's allowed operations`;
  if (!STATES[kind].includes(run.state)) return `${operation} may not be used while the run is ${run.state}`;
  // In doubt, only the retry that was recorded (protocol rule 19).
  if (kind === 'write' && run.state === 'needs_reconciliation' && !run.retry_allowed)
    return `${operation} may not be used while the run is ${run.state} without a recorded retry`;
  return undefined;
}

/** The one way of a worker to read the outside for a run. */
export function callFor(workflow: Workflow, run: Manifest, reads: Readonly<Record<string, Read>>): Call {
  return (operation, args) =>
    inSpan('facts', { operation }, async (span) => {
      const outcome = await called(operation, args);
      span.set({ result: outcome.kind });
      return outcome;
    });

  async function called(operation: string, args: JsonObject): ReturnType<Call> {
    const refused = refuseOperation(workflow, run, operation, 'read');
    if (refused !== undefined) return { kind: 'not_permitted', reason: refused };
    if ('tenant_id' in args && args.tenant_id !== run.tenant_id)
      return { kind: 'not_permitted', reason: `${operation} was asked for another tenant` };
    const read = Object.hasOwn(reads, operation) ? reads[operation] : undefined;
    if (read === undefined) return { kind: 'not_permitted', reason: `no system offers ${operation}` };
    try {
      return await read(args);
    } catch (error) {
      // A connector's bug is a read that failed: counted like any other, so that it cannot keep a run for ever.
      return {
        kind: 'failed',
        reason: `connector_failed: ${error instanceof Error ? keepText(error.message, 200) : 'unknown'}`,
      };
    }
  }
}
