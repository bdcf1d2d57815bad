import type { Command } from 'commander';
import { CliFailure, EXIT } from '../failure.ts';
import { printJson, printText } from '../output/print.ts';

interface Options {
  keys?: string;
  origin?: string;
  fleet?: string;
  json?: true;
}

/** `counterstamp verify-receipt`. */
export function addVerifyReceipt(program: Command): void {
  program
    .command('verify-receipt')
    .description('Verify a receipt from its bytes and public keys alone: no database, no network, no account.')
    .argument('<file>', 'the receipt; - reads standard input')
    .option('--keys <file>', 'the installation’s public keys (JWK set), got by another way than the receipt')
    .option('--origin <origin>', 'where people decided, such as https://approve.example.com')
    .option('--fleet <dir>', 'state folder of the local fleet that runs: its keys and its origin')
    .option('--json', 'the checks as JSON')
    .addHelpText(
      'after',
      `
One line for each check: ✓ holds, ✗ does not, – is about something that the receipt does not have.
Exit code 0: no check failed. 1: at least one did. 2: a file cannot be read, or an option is missing.

Examples:
  counterstamp verify-receipt receipt.json --keys trusted-keys.json --origin https://approve.example.com
  counterstamp verify-receipt receipt.json --fleet .counterstamp`,
    )
    .action(async (file: string, options: Options) => {
      const { keys: keysFile, origin } = await trustOf(options);
      const [{ readKeys }, { readEnvelope }, { checkPage }, { verifyReceipt }] = await Promise.all([
        import('../verify/read-keys.ts'),
        import('../verify/read-envelope.ts'),
        import('../verify/check-page.ts'),
        import('@counterstamp/receipts'),
      ]);
      const keys = await readKeys(keysFile);
      const verification = await verifyReceipt(await readEnvelope(file, 'the first argument'), keys, { origin });
      const { checks, ok } = verification;
      if (!ok) process.exitCode = EXIT.refused;
      if (options.json) return printJson(verification);
      printText(checkPage(checks));
      const failed = checks.filter((one) => one.ok === false).length;
      printText(
        ok
          ? 'The receipt holds.'
          : `The receipt does not hold: ${failed} of ${checks.length} checks failed. Believe nothing of it.`,
      );
    });
}

/** The keys' file and the origin, as the options or the local fleet name them. */
async function trustOf({ keys, origin, fleet }: Options): Promise<{ keys: string; origin: string }> {
  const local = fleet === undefined ? undefined : await localTrust(fleet);
  const trust = { keys: keys ?? local?.keys, origin: origin ?? local?.origin };
  if (trust.keys === undefined)
    throw new CliFailure(
      'No keys are given to trust.',
      'Name their file with --keys, or a fleet with --fleet.',
      EXIT.usage,
    );
  if (trust.origin === undefined)
    throw new CliFailure(
      fleet === undefined ? 'No origin is given.' : `No fleet runs on ${fleet} that could name its origin.`,
      'Name where people decided with --origin, such as https://approve.example.com.',
      EXIT.usage,
    );
  if (!URL.canParse(trust.origin) || new URL(trust.origin).origin !== trust.origin)
    throw new CliFailure(
      `"${trust.origin}" is no origin.`,
      'Write scheme, host and port and nothing after, such as https://approve.example.com.',
      EXIT.usage,
    );
  return { keys: trust.keys, origin: trust.origin };
}

async function localTrust(dir: string): Promise<{ keys: string; origin: string | undefined }> {
  const { runningFleet, stateFolder } = await import('../up/state-folder.ts');
  const folder = stateFolder(dir);
  return { keys: folder.trusted_keys, origin: (await runningFleet(folder))?.origin };
}
