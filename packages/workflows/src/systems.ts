import { createLegacyCredits, createSandboxPayments, createShop, type Read } from '@counterstamp/connectors';
import type { ReadHttp } from '@counterstamp/manifest-core';
import { creditWorkflow } from './credit/credit.ts';
import { creditDoor } from './credit/door.ts';
import type { Workflow, WorkflowDoor } from './define-workflow.ts';
import { refundDoor } from './refund/door.ts';
import { refundWorkflow } from './refund/refund.ts';

/** Where the external systems are and which credentials a process holds for them. */
export interface SystemsOptions {
  shop_url: string;
  payments_url: string;
  payments_read_key: string;
  /** Only the executor's process has one. */
  payments_write_key: string | null;
  /** Absent: this process knows no credit system, and a run of the workflow `credit` stops or is parked with that reason. */
  credits?: { url: string; read_key: string; write_key: string | null };
  read_timeout_ms: number;
  http: ReadHttp;
}

/** The workflows of this installation and the reads that they may call. */
export interface Systems {
  workflows: ReadonlyMap<string, Workflow>;
  reads: Readonly<Record<string, Read>>;
}

/** The doors of this installation's workflows, by name. A new workflow is one more line here. */
export const WORKFLOW_DOORS: ReadonlyMap<string, WorkflowDoor> = new Map(
  [refundDoor, creditDoor].map((door) => [door.name, door]),
);

/** Wires every workflow to its systems. A new workflow is one more line here. */
export function createSystems(options: SystemsOptions): Systems {
  const shop = createShop({ url: options.shop_url, http: options.http, timeoutMs: options.read_timeout_ms });
  const payments = createSandboxPayments({
    url: options.payments_url,
    writeKey: options.payments_write_key,
    readKey: options.payments_read_key,
    http: options.http,
    timeoutMs: options.read_timeout_ms,
  });
  const workflows = [refundWorkflow(payments)];
  if (options.credits !== undefined) {
    const { url, read_key, write_key } = options.credits;
    const credits = createLegacyCredits({
      url,
      writeKey: write_key,
      readKey: read_key,
      http: options.http,
      timeoutMs: options.read_timeout_ms,
    });
    workflows.push(creditWorkflow(credits));
  }
  return {
    workflows: new Map(workflows.map((workflow) => [workflow.name, workflow])),
    reads: { ...shop.reads, ...payments.reads },
  };
}

/** The workflow that a run was created under, in this version. */
export function workflowOf(
  systems: Pick<Systems, 'workflows'>,
  run: { workflow: string; workflow_version: number },
): Workflow | undefined {
  const workflow = systems.workflows.get(run.workflow);
  return workflow?.version === run.workflow_version ? workflow : undefined;
}
