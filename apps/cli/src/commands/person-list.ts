import type { PrincipalRow } from '@counterstamp/manifest-store';
import type { Command } from 'commander';
import { printJson, printText } from '../output/print.ts';
import { asOwner, type OwnerOptions, withOwner } from '../owner-access.ts';

/** `counterstamp person list`. */
export function addPersonList(person: Command): void {
  withOwner(
    person
      .command('list')
      .description('Everybody of a tenant, service accounts too: what they may do, and whether they can get in.')
      .requiredOption('--tenant <tenant>', 'whose'),
  )
    .addHelpText('after', '\nExample:\n  counterstamp person list --tenant shop_north')
    .action(async (options: OwnerOptions & { tenant: string }) => {
      const { table } = await import('../output/table.ts');
      const people = await asOwner(options.fleet, 'person list', async (sql) => {
        const { listPeople } = await import('@counterstamp/manifest-store');
        return await listPeople(sql, options.tenant);
      });
      if (options.json) return printJson({ people });
      if (people.length === 0) return printText(`${options.tenant} has nobody yet.`);
      printText(
        table(
          ['NAME', 'KIND', 'ROLES', 'GROUPS', 'OWNER', 'PASSKEYS', 'IDENTITIES', 'STANDING'],
          people.map((one) => [
            one.name,
            one.kind === 'person' ? 'person' : 'service account',
            one.roles.join(', '),
            one.groups.join(', '),
            one.owner ?? '',
            String(one.passkeys),
            one.identities.map(({ issuer, subject }) => `${subject} at ${issuer}`).join(', '),
            standing(one),
          ]),
        ),
      );
    });
}

function standing({ disabled_at, invited_until }: PrincipalRow): string {
  if (disabled_at !== null) return `disabled since ${disabled_at}`;
  return invited_until === null ? 'enabled' : `invited until ${invited_until}`;
}
