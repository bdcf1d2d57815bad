import type { Command } from 'commander';
import { type AccessOptions, openApi, withAccess } from '../api-access.ts';
import { printJson, printText } from '../output/print.ts';

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
      const view = await (await openApi(options, 'auditor')).getRun(run_id);
      if (options.json) printJson(view);
      else printText(runPage(view));
    });
}
