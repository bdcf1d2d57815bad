import { WORKFLOW_DOORS } from '@counterstamp/workflows';
import type { WorkflowDoor } from '../src/index.ts';

/** The doors of the real workflows, as `main.ts` opens them. */
export const realDoors: ReadonlyMap<string, WorkflowDoor> = new Map(
  [...WORKFLOW_DOORS.values()].map((door) => {
    const { name, version, contract, operations, visibilityMs, input, proposal } = door;
    return [
      name,
      {
        name,
        version,
        connector: { name: contract.name, version: contract.version },
        operations: Object.keys(operations),
        visibilityMs,
        input,
        proposal,
        checkInput: (value) => door.checkInput(value),
      },
    ];
  }),
);
