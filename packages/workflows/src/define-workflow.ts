import type { Connector, ConnectorContract, ReadOutcome, SourceRecord } from '@counterstamp/connectors';
import type {
  DisplayField,
  Evidence,
  JsonObject,
  JsonValue,
  Limits,
  Refusal,
  StopReasonCode,
} from '@counterstamp/manifest-core';
import type { z } from 'zod';
import type { ApprovalTerms } from './approval-policy.ts';

/** What an operation may do to the outside world. */
export type OperationKind = 'read' | 'write';

/** A judgement of facts: go on, stop for good, or the facts could not be had. */
export type Verdict =
  | { kind: 'pass' }
  | { kind: 'stop'; code: StopReasonCode; detail: string }
  | { kind: 'read_failed'; operation: string; reason: string };

/** Runs a read operation for one run, through the dispatcher that checks whether it may. */
export type Call = (
  operation: string,
  args: JsonObject,
) => Promise<ReadOutcome | { kind: 'not_permitted'; reason: string }>;

export type Gathered =
  | { kind: 'records'; records: SourceRecord[] }
  | { kind: 'stop'; code: StopReasonCode; detail: string }
  | { kind: 'read_failed'; operation: string; reason: string };

export type ProposalVerdict =
  | { kind: 'accepted'; action: JsonObject; terms: ApprovalTerms }
  | { kind: 'refused'; code: StopReasonCode; message: string }
  | { kind: 'stop'; code: StopReasonCode; detail: string };

/** A fact as the checks see it: a recorded piece of evidence, or a fresh read that is compared with it. */
export type Fact = Pick<SourceRecord, 'kind' | 'facts'>;

/** What a door must know of a workflow to let a request in: shapes and names, no system behind them. */
export interface WorkflowDoor {
  name: string;
  version: number;
  contract: ConnectorContract;
  /** Every operation that a run of this workflow may name, and what it may do. */
  operations: Readonly<Record<string, OperationKind>>;
  /** How long an effect may stay invisible to the look-up, in milliseconds (protocol's V). */
  visibilityMs: number;
  input: z.ZodType<JsonObject>;
  proposal: z.ZodType<JsonObject>;
  /** What the input schema cannot say: currencies and granularity of the connector. Paths start at the input. */
  checkInput(input: JsonObject): Refusal | undefined;
}

/**
 * One kind of consequential action, from request to verified effect. Everything but the three `read…` is pure; those reach
 * the outside only through `call`.
 */
export interface Workflow extends WorkflowDoor {
  connector: Connector;
  /** The operation that makes the effect. */
  effectOperation: string;
  /** The read operation that looks the effect up. */
  observeOperation: string;
  /** Members of the action that the observed effect must equal, beside our own reference. The connector can observe each of them. */
  verifiedFields: readonly string[];
  limits: Pick<Limits, 'proposal_cycles_max'>;
  action: z.ZodType<JsonObject>;
  /** Loads the request and what it names in the tenant's own scope. */
  readRequest(run: { tenant_id: string; request_id: string; input: JsonObject }, call: Call): Promise<Gathered>;
  checkRequest(run: { tenant_id: string; input: JsonObject }, records: readonly Fact[]): Verdict;
  /** What the scope and the bounds are judged by beside the request's record, which is recorded by then. */
  readScope(run: { tenant_id: string; request_id: string; input: JsonObject }, call: Call): Promise<Gathered>;
  checkScope(run: { tenant_id: string; input: JsonObject }, records: readonly Fact[]): Verdict;
  readEvidence(run: { tenant_id: string; request_id: string; input: JsonObject }, call: Call): Promise<Gathered>;
  /** Whether the authoritative records agree with each other and with the request. */
  checkEvidence(run: { tenant_id: string; input: JsonObject }, records: readonly Fact[]): Verdict;
  /** The proposer `rules`: a proposal from the input and the recorded evidence. Checked like any other. */
  propose(input: JsonObject, evidence: readonly Evidence[]): JsonObject;
  /** Checks every field against recorded evidence and policy, and completes what only the application may fill. Nothing is corrected. */
  checkProposal(
    run: { input: JsonObject; allowed_operations: readonly string[] },
    proposal: JsonValue,
    evidence: readonly Evidence[],
  ): ProposalVerdict;
  /** The preconditions of the approved action on a fresh read, right before the send, and whom the policy of today would ask. */
  preconditions(
    action: JsonObject,
    fresh: readonly Fact[],
  ): { kind: 'hold'; terms: ApprovalTerms } | { kind: 'fail'; detail: string };
  /** Facts that the approver relied on and that must not have changed meanwhile, as one comparable value. */
  materialFacts(records: readonly Fact[]): JsonValue;
  display(action: JsonObject): DisplayField[];
  /** One effect in doubt at a time on this. */
  resourceKey(tenant_id: string, action: JsonObject): string;
}

/**
 * Checks a workflow's definition once, when it is made.
 * @throws {Error} when it contradicts itself: an effect operation that is not a declared write, a cycle limit below one.
 */
export function defineWorkflow(workflow: Workflow): Workflow {
  if (workflow.operations[workflow.effectOperation] !== 'write')
    throw new Error(`${workflow.name}: ${workflow.effectOperation} is not declared as a write`);
  if (workflow.operations[workflow.observeOperation] !== 'read')
    throw new Error(`${workflow.name}: ${workflow.observeOperation} is not declared as a read`);
  if (workflow.verifiedFields.length === 0)
    throw new Error(`${workflow.name}: an effect of which nothing is compared proves nothing`);
  const { consistency } = workflow.contract.lookup;
  if (consistency.kind === 'eventual' && workflow.visibilityMs < consistency.settleMs)
    throw new Error(
      `${workflow.name}: visibilityMs (${workflow.visibilityMs}) is below the ${consistency.settleMs} ms that the look-up may lag`,
    );
  if (workflow.limits.proposal_cycles_max < 1)
    throw new Error(`${workflow.name}: a run needs at least one proposal cycle`);
  return workflow;
}
