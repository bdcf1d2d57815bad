import type { Command } from 'commander';
import { type AccessOptions, openApi, withAccess } from '../api-access.ts';
import { CliFailure } from '../failure.ts';
import { printJson, printText } from '../output/print.ts';

/** `counterstamp hold release`. */
export function addHoldRelease(hold: Command): void {
  withAccess(
    hold
      .command('release')
      .description('Release a hold. What waited goes on by itself, and every check of a dispatch is made again.')
      .option('--connector <name>', 'the hold on this connector; the one on everything when absent')
      .option('--json', 'the API’s answer as JSON'),
  )
    .addHelpText(
      'after',
      '\nExamples:\n  counterstamp hold release\n  counterstamp hold release --connector sandbox-payments',
    )
    .action(async (options: AccessOptions & { connector?: string; json?: true }) => {
      const client = await openApi(options, 'operator');
      const answer = await client.releaseHold(options.connector ?? 'all');
      const what = options.connector ?? 'everything';
      const left = answer.holds.map((one) => one.scope).join(', ');
      if (!answer.released) {
        throw new CliFailure(
          `There was no hold on ${what}.`,
          left === '' ? 'Nothing is on hold.' : `On hold: ${left}; see \`counterstamp hold list\`.`,
        );
      }
      if (options.json) return printJson(answer);
      printText(`The hold on ${what} is released${left === '' ? '; nothing is on hold' : `; still on hold: ${left}`}.`);
    });
}
