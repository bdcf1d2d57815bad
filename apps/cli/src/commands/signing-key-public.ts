import { type Command, InvalidArgumentError } from 'commander';
import { CliFailure, EXIT } from '../failure.ts';
import { printText } from '../output/print.ts';
import { readInput } from '../read-input.ts';

/** As `KEY_PURPOSES` of `@counterstamp/signatures`, which is loaded only when the command runs. */
const PURPOSES = ['credential', 'checkpoint', 'receipt'] as const;
type Purpose = (typeof PURPOSES)[number];

/** `counterstamp signing-key public`. */
export function addSigningKeyPublic(key: Command): void {
  key
    .command('public')
    .description('Print the public half of the private key on standard input, as its entry in a JWK set.')
    .requiredOption(
      '--purposes <list>',
      `what it may vouch for, with commas between: ${PURPOSES.join(', ')}`,
      purposesOf,
    )
    .addHelpText(
      'after',
      `
COUNTERSTAMP_TRUSTED_KEYS is {"keys": [ENTRY, …]}: the installation key's entry for credential and receipt, the checkpoint key's for checkpoint.

Example:
  counterstamp signing-key public --purposes credential,receipt < installation-key.json`,
    )
    .action(async (options: { purposes: Purpose[] }) => {
      const { parseSigningKey, publicJwk } = await import('@counterstamp/signatures');
      const text = Buffer.from(await readInput('-', 'standard input', 'the key')).toString('utf8');
      try {
        printText(JSON.stringify(publicJwk(parseSigningKey(text), options.purposes)));
      } catch (error) {
        if (!(error instanceof RangeError)) throw error;
        throw new CliFailure(
          `Standard input is no private key: ${error.message}.`,
          '`counterstamp signing-key create` makes one.',
          EXIT.usage,
        );
      }
    });
}

function purposesOf(text: string): Purpose[] {
  const purposes = text.split(',').map((name) => PURPOSES.find((known) => known === name));
  const known = purposes.filter((purpose) => purpose !== undefined);
  if (known.length < purposes.length || new Set(known).size < known.length)
    throw new InvalidArgumentError(`It must be some of ${PURPOSES.join(', ')}, each once, with commas between.`);
  return known;
}
