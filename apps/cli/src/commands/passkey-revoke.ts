import type { Command } from 'commander';
import { printJson, printText } from '../output/print.ts';
import { asOwner, type OwnerOptions, withOwner } from '../owner-access.ts';
import { doneOrFail } from '../owner-refusal.ts';

/** `counterstamp passkey revoke`. */
export function addPasskeyRevoke(passkey: Command): void {
  withOwner(
    passkey
      .command('revoke')
      .description(
        'Revoke a passkey for good and end its person’s sessions: what it signed and was not used does not count any more.',
      )
      .argument('<credential_id>')
      .option('--last', 'even if it is the person’s only one'),
  )
    .addHelpText(
      'after',
      `
A credential id may begin with a hyphen; write -- before it then.

Examples:
  counterstamp passkey revoke AZ6hcP3hTAmuQy7ZcV0n3g
  counterstamp passkey revoke --last -- -Z6hcP3hTAmuQy7ZcV0n3g`,
    )
    .action(async (credential_id: string, options: OwnerOptions & { last?: true }) => {
      const { name, changed, passkeys_left } = await asOwner(options.fleet, 'passkey revoke', async (sql) => {
        const { revokePasskeyOf } = await import('@counterstamp/manifest-store');
        return doneOrFail(await revokePasskeyOf(sql, credential_id, { last: options.last === true }));
      });
      if (options.json) return printJson({ credential_id, name, changed, passkeys_left });
      printText(
        changed
          ? `The passkey of ${name} is revoked; they have ${passkeys_left} left.`
          : `This passkey of ${name} was revoked before; nothing changed.`,
      );
    });
}
