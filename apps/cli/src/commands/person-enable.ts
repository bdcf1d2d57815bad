import type { Command } from 'commander';
import { printJson, printText } from '../output/print.ts';
import { asOwner, type OwnerOptions, withOwner } from '../owner-access.ts';
import { doneOrFail } from '../owner-refusal.ts';

/** `counterstamp person enable`. */
export function addPersonEnable(person: Command): void {
  withOwner(
    person
      .command('enable')
      .description(
        'Let a person or service account in again, with the roles, passkeys and keys that they had. Revoke first what must not come back.',
      )
      .requiredOption('--tenant <tenant>', 'whose')
      .requiredOption('--name <name>', 'who'),
  )
    .addHelpText('after', '\nExample:\n  counterstamp person enable --tenant shop_north --name ana@example.com')
    .action(async (options: OwnerOptions & { tenant: string; name: string }) => {
      const { tenant, name } = options;
      const { principal_id, changed } = await asOwner(options.fleet, 'person enable', async (sql) => {
        const { enablePerson } = await import('@counterstamp/manifest-store');
        return doneOrFail(await enablePerson(sql, { tenant_id: tenant, name }));
      });
      if (options.json) return printJson({ principal_id, changed });
      printText(changed ? `${name} may come in again.` : `${name} was not disabled; nothing changed.`);
    });
}
