import type { Command } from 'commander';
import { type AccessOptions, openApi, withAccess } from '../api-access.ts';
import { CliFailure, EXIT } from '../failure.ts';
import { printJson, printText } from '../output/print.ts';
import { asOwner } from '../owner-access.ts';

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
      .option(
        '--owner',
        'as the database’s owner (DATABASE_URL), where no api runs: before the first worker after a restore',
      )
      .option('--json', 'the API’s answer as JSON'),
  )
    .addHelpText(
      'after',
      `
An approval that expires while its run waits is not used: the run ends as expired.

Examples:
  counterstamp hold set --reason "failed over to the standby; the ledger is being compared"
  counterstamp hold set --connector sandbox-payments --reason "the provider reports double bookings"
  DATABASE_URL=postgres://owner:…@db/app counterstamp hold set --owner --reason "restored from the backup of 14:00"`,
    )
    .action(async (options: AccessOptions & { connector?: string; reason: string; owner?: true; json?: true }) => {
      const set = options.owner
        ? await setAsOwner(options)
        : await (await openApi(options, 'operator')).setHold(options.connector ?? 'all', { reason: options.reason });
      if (options.json) return printJson(set);
      const what = options.connector === undefined ? 'Every dispatch is' : `Dispatches to ${options.connector} are`;
      printText(`${what} on hold: nothing is sent from now on. Release with \`${releaseCommand(options.connector)}\`.`);
    });
}

/** The same with the database alone, and for everything: only the api knows which connectors there are. */
async function setAsOwner({ fleet, connector, reason }: AccessOptions & { connector?: string; reason: string }) {
  const [{ setHoldAsOwner }, { HoldBody }, { parseWith }] = await Promise.all([
    import('@counterstamp/manifest-store'),
    import('@counterstamp/api-contract'),
    import('@counterstamp/manifest-core'),
  ]);
  if (connector !== undefined)
    throw new CliFailure('As the owner, everything is held.', 'Leave --connector out.', EXIT.usage);
  const body = parseWith(HoldBody, { reason });
  if (!body.ok) throw new CliFailure(`--reason: ${body.refusal.detail}.`, undefined, EXIT.usage);
  return await asOwner(fleet, 'hold set', async (sql) => {
    const hold = await setHoldAsOwner(sql, body.value.reason);
    return { holds: [{ ...hold, scope: 'all' }] };
  });
}

function releaseCommand(connector: string | undefined): string {
  return `counterstamp hold release${connector === undefined ? '' : ` --connector ${connector}`}`;
}
