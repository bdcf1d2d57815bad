import type { RunView } from '@counterstamp/api-contract';
import type { RunId } from '@counterstamp/manifest-core';
import type { ScenarioGroup } from './scenario.ts';
import { createRun, refusalOf, seedCase, type Tools, waitFor } from './tools.ts';

const REQUESTED = 'shop_north/requester';
const APPROVER = 'shop_north/approver';

async function decideOnShown(tools: Tools, run_id: RunId, decision: 'approve' | 'reject', after = 0): Promise<RunView> {
  const run = await waitFor(
    tools,
    run_id,
    (seen) => seen.state === 'awaiting_approval' && (seen.action_revision ?? 0) > after,
  );
  if (run.approval === null || run.state !== 'awaiting_approval')
    throw new Error(`${run_id} is ${run.state} and asks nobody`);
  const { approval_id, approval_digest, action_digest, action_revision } = run.approval;
  await tools.decide(APPROVER, run_id, { approval_id, approval_digest, action_digest, action_revision, decision });
  return run;
}

async function endOf(tools: Tools, run_id: RunId): Promise<string> {
  const run = await waitFor(tools, run_id, () => false);
  return `${run.state}${run.stop_reason === null ? '' : ` (${run.stop_reason.code})`}`;
}

/** Runs that have to do with each other. */
export const SEVERAL_RUNS: ScenarioGroup = {
  title: 'More than one run',
  scenarios: [
    {
      kind: 'story',
      name: 'the same request again, and another body under its id',
      expected: 'the same run, 409 idempotency_conflict at /request_id',
      async tell(tools) {
        const id = tools.unique();
        await seedCase(tools, id);
        const first = await createRun(tools, id);
        const again = await createRun(tools, id);
        const other = await refusalOf(createRun(tools, id, { amount_minor: 1 }));
        await tools
          .as(REQUESTED)
          .cancelRun(first.run_id)
          .catch(() => undefined);
        return `${again.run_id === first.run_id && !again.created ? 'the same run' : 'another run'}, ${other}`;
      },
    },
    {
      kind: 'story',
      name: 'a successor after a rejection',
      expected: 'rejected (approval_rejected), then generation 2 completed',
      async tell(tools) {
        const id = tools.unique();
        await seedCase(tools, id);
        const first = await createRun(tools, id);
        await decideOnShown(tools, first.run_id, 'reject');
        const ended = await endOf(tools, first.run_id);
        const successor = await createRun(tools, id, {}, { supersedes: first.run_id });
        await decideOnShown(tools, successor.run_id, 'approve');
        return `${ended}, then generation ${successor.generation} ${await endOf(tools, successor.run_id)}`;
      },
    },
    {
      kind: 'story',
      name: 'two refunds of one order at once',
      expected: 'the first completed, the second waited, then failed (precondition_failed), one refund',
      async tell(tools) {
        const id = tools.unique();
        await seedCase(tools, id, { fault: { kind: 'hang_after_accept', hold_ms: 1_200 } });
        const second_id = tools.unique();
        await seedCase(tools, second_id, { order_id: `order_${id}`, fault: { kind: 'none' } });
        const [first, second] = [
          await createRun(tools, id),
          await createRun(tools, second_id, {}, { order_id: `order_${id}` }),
        ];
        await waitFor(tools, second.run_id, (run) => run.state === 'awaiting_approval');
        await decideOnShown(tools, first.run_id, 'approve');
        await waitFor(tools, first.run_id, (run) => run.state === 'executing');
        await decideOnShown(tools, second.run_id, 'approve');
        const [one, two] = [await endOf(tools, first.run_id), await endOf(tools, second.run_id)];
        const refunds = await tools.sandbox.refunds(`pay_order_${id}`);
        const requests = await tools.sandbox.requests(`pay_order_${id}`);
        const waited = requests.every((request) => request.run_id === first.run_id);
        return `the first ${one}, the second ${waited ? 'waited' : 'did not wait'}, then ${two}, ${refunds.length === 1 ? 'one refund' : `${refunds.length} refunds`}`;
      },
    },
  ],
};
