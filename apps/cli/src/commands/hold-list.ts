import type { Command } from 'commander';
import { type AccessOptions, openApi, withAccess } from '../api-access.ts';
import { printJson, printText } from '../output/print.ts';

/** `counterstamp hold list`. */
export function addHoldList(hold: Command): void {
  withAccess(
    hold
      .command('list')
      .description('What is on hold, since when and why.')
      .option('--json', 'the API’s answer as JSON'),
  )
    .addHelpText('after', '\nExample:\n  counterstamp hold list')
    .action(async (options: AccessOptions & { json?: true }) => {
      const { table } = await import('../output/table.ts');
      const { holds } = await (await openApi(options, 'operator')).listHolds();
      if (options.json) return printJson({ holds });
      if (holds.length === 0) return printText('Nothing is on hold.');
      printText(
        table(
          ['SCOPE', 'SINCE', 'SET BY', 'REASON'],
          holds.map((one) => [one.scope, one.set_at, one.set_by ?? 'another tenant', one.reason]),
        ),
      );
    });
}
