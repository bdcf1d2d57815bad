import type { Command } from 'commander';
import { type AccessOptions, openApi, withAccess } from '../api-access.ts';
import { printJson, printText } from '../output/print.ts';

/** `counterstamp run events`. */
export function addRunEvents(run: Command): void {
  withAccess(
    run
      .command('events')
      .description('The history of one run, one event per revision, with what happened.')
      .argument('<run_id>')
      .option('--json', 'the API’s answer as JSON, with payloads and hashes'),
  )
    .addHelpText('after', '\nExample:\n  counterstamp run events run_0191c0de-0000-7000-8000-000000000000')
    .action(async (id: string, options: AccessOptions & { json?: true }) => {
      const [{ parseRunId }, { historyPage }] = await Promise.all([
        import('./run-id.ts'),
        import('../output/history-page.ts'),
      ]);
      const run_id = parseRunId(id);
      const found = await (await openApi(options, 'auditor')).runEvents(run_id);
      if (options.json) return printJson(found);
      printText(historyPage(found.events));
    });
}
