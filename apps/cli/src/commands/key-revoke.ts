import type { Command } from 'commander';
import { CliFailure, EXIT } from '../failure.ts';
import { printJson, printText } from '../output/print.ts';
import { asOwner, type OwnerOptions, withOwner } from '../owner-access.ts';
import { doneOrFail } from '../owner-refusal.ts';

/** `counterstamp key revoke`. */
export function addKeyRevoke(key: Command): void {
  withOwner(
    key.command('revoke').description('Revoke an API key for good, from the next request on.').argument('<key_id>'),
  )
    .addHelpText('after', '\nExample:\n  counterstamp key revoke key_0191c0de000070008000000000000000')
    .action(async (key_id: string, options: OwnerOptions) => {
      if (!/^key_[0-9a-f]{32}$/.test(key_id)) {
        // Not repeated: it may be the key itself.
        throw new CliFailure(
          'That is no key id: key_ and 32 hex digits, which stand in the key between its underscores.',
          '`counterstamp key list` shows the ids.',
          EXIT.usage,
        );
      }
      const { name, changed } = await asOwner(options.fleet, 'key revoke', async (sql) => {
        const { revokeKey } = await import('@counterstamp/manifest-store');
        return doneOrFail(await revokeKey(sql, key_id));
      });
      if (options.json) return printJson({ key_id, name, changed });
      printText(
        changed ? `${key_id} of ${name} is revoked.` : `${key_id} of ${name} was revoked before; nothing changed.`,
      );
    });
}
