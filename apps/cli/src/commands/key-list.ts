import type { Command } from 'commander';
import { printJson, printText } from '../output/print.ts';
import { asOwner, type OwnerOptions, withOwner } from '../owner-access.ts';

/** `counterstamp key list`. */
export function addKeyList(key: Command): void {
  withOwner(
    key
      .command('list')
      .description('The API keys of a tenant: whose, for what, when last used, and whether each opens anything now.')
      .requiredOption('--tenant <tenant>', 'whose')
      .option('--name <name>', 'of this holder; of everybody when absent'),
  )
    .addHelpText(
      'after',
      '\nExamples:\n  counterstamp key list --tenant shop_north\n  counterstamp key list --tenant shop_north --name support-agent',
    )
    .action(async (options: OwnerOptions & { tenant: string; name?: string }) => {
      const { table } = await import('../output/table.ts');
      const { tenant, name } = options;
      const keys = await asOwner(options.fleet, 'key list', async (sql) => {
        const { listKeys } = await import('@counterstamp/manifest-store');
        return await listKeys(sql, { tenant_id: tenant, ...(name === undefined ? {} : { name }) });
      });
      if (options.json) return printJson({ keys });
      if (keys.length === 0) return printText('There is no such key.');
      printText(
        table(
          ['KEY', 'HOLDER', 'ROLE', 'CREATED', 'EXPIRES', 'LAST USED', 'STANDING'],
          keys.map((one) => [
            one.key_id,
            one.name,
            one.role,
            one.created_at,
            one.expires_at ?? 'never',
            one.last_used_at ?? 'never',
            one.standing.replaceAll('_', ' '),
          ]),
        ),
      );
    });
}
