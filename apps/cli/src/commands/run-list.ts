import type { Command } from 'commander';
import { type AccessOptions, openApi, withAccess } from '../api-access.ts';
import { CliFailure, EXIT } from '../failure.ts';
import { printJson, printText } from '../output/print.ts';
import { wholeNumber } from './numbers.ts';

/** `counterstamp run list`. */
export function addRunList(run: Command): void {
  withAccess(
    run
      .command('list')
      .description('The tenant’s runs, newest first.')
      .option('--state <state>', 'only those in this state')
      .option('--limit <n>', 'how many, 1 to 200', wholeNumber(1, 200), 50)
      .option('--cursor <cursor>', 'go on after the page that ended with this cursor')
      .option('--json', 'the API’s answer as JSON'),
  )
    .addHelpText('after', '\nExamples:\n  counterstamp run list\n  counterstamp run list --state needs_reconciliation')
    .action(async (options: AccessOptions & { state?: string; limit: number; cursor?: string; json?: true }) => {
      const [{ STATES }, { table }] = await Promise.all([
        import('@counterstamp/manifest-core'),
        import('../output/table.ts'),
      ]);
      const state = STATES.find((known) => known === options.state);
      if (options.state !== undefined && state === undefined) {
        throw new CliFailure(`There is no state ${options.state}.`, `Known: ${STATES.join(', ')}.`, EXIT.usage);
      }
      const client = await openApi(options, 'auditor');
      const page = await client.listRuns({
        limit: options.limit,
        ...(state === undefined ? {} : { state }),
        ...(options.cursor === undefined ? {} : { cursor: options.cursor }),
      });
      if (options.json) return printJson(page);
      printText(
        page.runs.length === 0
          ? 'No runs.'
          : table(
              ['RUN', 'REQUEST', 'STATE', 'SINCE', 'REASON'],
              page.runs.map((one) => [
                one.run_id,
                one.request_id,
                one.parked_reason === null ? one.state : `${one.state} (parked)`,
                one.state_since,
                one.stop_reason?.code ?? '',
              ]),
            ),
      );
      if (page.next_cursor !== null) printText(`More: --cursor ${page.next_cursor}`);
    });
}
