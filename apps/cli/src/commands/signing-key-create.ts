import type { Command } from 'commander';
import { printText } from '../output/print.ts';

/** `counterstamp signing-key create`. */
export function addSigningKeyCreate(key: Command): void {
  key
    .command('create')
    .description('Make a private Ed25519 key (JWK) and print it on one line. Nothing else knows it: keep it.')
    .addHelpText(
      'after',
      `
It is the value of COUNTERSTAMP_INSTALLATION_KEY or COUNTERSTAMP_CHECKPOINT_KEY, or of the file that …_FILE names.

Example:
  (umask 077; counterstamp signing-key create > installation-key.json)`,
    )
    .action(async () => {
      const { generateSigningKey } = await import('@counterstamp/signatures');
      printText(generateSigningKey());
    });
}
