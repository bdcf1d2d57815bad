import type { Command } from 'commander';
import { type AccessOptions, openApi, withAccess } from '../api-access.ts';
import { printJson, printText } from '../output/print.ts';

/** `counterstamp run cancel`. */
export function addRunCancel(run: Command): void {
  withAccess(
    run
      .command('cancel')
      .description('Stop a run before anything of it is sent. It ends as rejected (cancelled), for good.')
      .argument('<run_id>')
      .requiredOption('--reason <text>', 'kept with the run')
      .option('--json', 'the API’s answer as JSON'),
  )
    .addHelpText(
      'after',
      `
Needs the key of the requester or of an operator. A run that was sent cannot be cancelled.

Example:
  counterstamp run cancel run_0191c0de-0000-7000-8000-000000000000 --reason "performed before the restore: re_17"`,
    )
    .action(async (id: string, options: AccessOptions & { reason: string; json?: true }) => {
      const { parseRunId } = await import('./run-id.ts');
      const run_id = parseRunId(id);
      const standing = await (await openApi(options, 'operator')).cancelRun(run_id, { reason: options.reason });
      if (options.json) return printJson(standing);
      printText(`${run_id} is ${standing.state} (cancelled): nothing of it is sent.`);
    });
}
