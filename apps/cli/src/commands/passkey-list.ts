import type { Command } from 'commander';
import { printJson, printText } from '../output/print.ts';
import { asOwner, type OwnerOptions, withOwner } from '../owner-access.ts';

/** `counterstamp passkey list`. */
export function addPasskeyList(passkey: Command): void {
  withOwner(
    passkey
      .command('list')
      .description('The passkeys of a tenant: whose, since when, when last used.')
      .requiredOption('--tenant <tenant>', 'whose')
      .option('--name <name>', 'of this person; of everybody when absent'),
  )
    .addHelpText(
      'after',
      '\nExamples:\n  counterstamp passkey list --tenant shop_north\n  counterstamp passkey list --tenant shop_north --name ana@example.com',
    )
    .action(async (options: OwnerOptions & { tenant: string; name?: string }) => {
      const { table } = await import('../output/table.ts');
      const { tenant, name } = options;
      const passkeys = await asOwner(options.fleet, 'passkey list', async (sql) => {
        const { listPasskeysOf } = await import('@counterstamp/manifest-store');
        return await listPasskeysOf(sql, { tenant_id: tenant, ...(name === undefined ? {} : { name }) });
      });
      if (options.json) return printJson({ passkeys });
      if (passkeys.length === 0) return printText('There is no such passkey.');
      printText(
        table(
          ['CREDENTIAL', 'PERSON', 'CALLED', 'BACKED UP', 'ENROLLED', 'LAST USED', 'REVOKED'],
          passkeys.map((one) => [
            one.credential_id,
            one.principal,
            one.name,
            one.backed_up ? 'yes' : 'no',
            one.created_at,
            one.last_used_at ?? 'never',
            one.revoked_at ?? '',
          ]),
        ),
      );
    });
}
