import type { Command } from 'commander';
import { printJson, printText } from '../output/print.ts';
import { asOwner, type OwnerOptions, withOwner } from '../owner-access.ts';
import { doneOrFail } from '../owner-refusal.ts';

/** `counterstamp person disable`. */
export function addPersonDisable(person: Command): void {
  withOwner(
    person
      .command('disable')
      .description(
        'Shut a person or service account out, at once: sessions end, invitations are void, keys open nothing, approvals that have not been used do not count.',
      )
      .requiredOption('--tenant <tenant>', 'whose')
      .requiredOption('--name <name>', 'who'),
  )
    .addHelpText('after', '\nExample:\n  counterstamp person disable --tenant shop_north --name ana@example.com')
    .action(async (options: OwnerOptions & { tenant: string; name: string }) => {
      const { tenant, name } = options;
      const { principal_id, changed, sessions_ended } = await asOwner(options.fleet, 'person disable', async (sql) => {
        const { disablePerson } = await import('@counterstamp/manifest-store');
        return doneOrFail(await disablePerson(sql, { tenant_id: tenant, name }));
      });
      if (options.json) return printJson({ principal_id, changed, sessions_ended });
      printText(
        changed
          ? `${name} is disabled; sessions ended: ${sessions_ended}.`
          : `${name} was disabled before; nothing changed.`,
      );
    });
}
