import type { Command } from 'commander';
import { type AccessOptions, openApi, withAccess } from '../api-access.ts';
import { printJson, printText } from '../output/print.ts';

/** `counterstamp hold set`. */
export function addHoldSet(hold: Command): void {
  withAccess(
    hold
      .command('set')
      .description(
        'Hold every dispatch, or those of one connector: from the next commit on nothing is sent. Runs wait; what was sent stays sent and is still looked up.',
      )
      .option('--connector <name>', 'only this connector; everything when absent')
      .requiredOption('--reason <text>', 'shown with every run that waits, whosever it is')
      .option('--json', 'the API’s answer as JSON'),
  )
    .addHelpText(
      'after',
      `
An approval that expires while its run waits is not used: the run ends as expired.

Examples:
  counterstamp hold set --reason "failed over to the standby; the ledger is being compared"
  counterstamp hold set --connector sandbox-payments --reason "the provider reports double bookings"`,
    )
    .action(async (options: AccessOptions & { connector?: string; reason: string; json?: true }) => {
      const client = await openApi(options, 'operator');
      const set = await client.setHold(options.connector ?? 'all', { reason: options.reason });
      if (options.json) return printJson(set);
      const what = options.connector === undefined ? 'Every dispatch is' : `Dispatches to ${options.connector} are`;
      printText(`${what} on hold: nothing is sent from now on. Release with \`${releaseCommand(options.connector)}\`.`);
    });
}

function releaseCommand(connector: string | undefined): string {
  return `counterstamp hold release${connector === undefined ? '' : ` --connector ${connector}`}`;
}
