import type { ApiClient } from '@counterstamp/api-contract';
import type { RunId } from '@counterstamp/manifest-core';
import type { Command } from 'commander';
import { type AccessOptions, openApi, withAccess } from '../api-access.ts';
import { printJson, printText } from '../output/print.ts';
import type { CardView } from '../output/run-page.ts';

/** `counterstamp run show`. */
export function addRunShow(run: Command): void {
  withAccess(
    run
      .command('show')
      .description(
        'Everything about one run: why it stopped, what is safe to do next, and each condition of its dispatch.',
      )
      .argument('<run_id>')
      .option('--json', 'the API’s answer as JSON'),
  )
    .addHelpText('after', '\nExample:\n  counterstamp run show run_0191c0de-0000-7000-8000-000000000000')
    .action(async (id: string, options: AccessOptions & { json?: true }) => {
      const [{ parseRunId }, { runPage }] = await Promise.all([import('./run-id.ts'), import('../output/run-page.ts')]);
      const run_id = parseRunId(id);
      const client = await openApi(options, 'auditor');
      const view = await client.getRun(run_id);
      if (options.json) printJson(view);
      else printText(runPage(view, view.approval === null ? undefined : await cardOf(client, run_id)));
    });
}

/** The run's card; without one, what the run itself shows has to do, unless that is not what was bound. */
async function cardOf(client: ApiClient, run_id: RunId): Promise<CardView> {
  try {
    return await client.approvalCard(run_id);
  } catch (error) {
    // The client has loaded the contract already.
    const { ProblemError } = await import('@counterstamp/api-contract');
    if (!(error instanceof ProblemError)) throw error;
    const { code, detail } = error.problem;
    if (code === 'card_not_bound') return { not_bound: `${detail} (${code})` };
    // Voided since the run was read.
    if (code === 'approval_not_found') return undefined;
    throw error;
  }
}
