import type { JsonObject, Refusal } from '@counterstamp/manifest-core';
import type { z } from 'zod';

/** What the api must know of a workflow to let a request in. It decides nothing: every check is made again by the stages. */
export interface WorkflowDoor {
  name: string;
  version: number;
  connector: { name: string; version: string };
  /** Every operation that a run of it may be allowed. */
  operations: readonly string[];
  /** V: how long the external system may hide an effect from reads, milliseconds. */
  visibilityMs: number;
  /** A fault is reported below `/input`. */
  input: z.ZodType<JsonObject>;
  /** Shape of a proposal from outside; a fault is reported below `/proposal`. */
  proposal: z.ZodType<JsonObject>;
  /** What the shape cannot say, such as a currency that the connector does not carry. The refusal's `path` starts at the input. */
  checkInput(input: JsonObject): Refusal | undefined;
}
