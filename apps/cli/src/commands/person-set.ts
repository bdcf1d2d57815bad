import type { Command } from 'commander';
import { CliFailure, EXIT } from '../failure.ts';
import { printJson, printText } from '../output/print.ts';
import { asOwner, type OwnerOptions, withOwner } from '../owner-access.ts';
import { doneOrFail } from '../owner-refusal.ts';
import { checkIdentifiers, list, listOf, PRINCIPAL_ROLES } from './identifiers.ts';

interface Options extends OwnerOptions {
  tenant: string;
  name: string;
  roles?: (typeof PRINCIPAL_ROLES)[number][];
  groups?: string[];
  ownerOf?: string[];
}

/** `counterstamp person set`. */
export function addPersonSet(person: Command): void {
  withOwner(
    person
      .command('set')
      .description(
        'Replace the roles or the groups of a person or service account, at once: keys of a role that is gone open nothing, and approvals of who is no approver do not count at dispatch.',
      )
      .requiredOption('--tenant <tenant>', 'whose')
      .requiredOption('--name <name>', 'who')
      .option(
        '--roles <roles>',
        `all that they may do from now on: ${PRINCIPAL_ROLES.join(',')}`,
        listOf(PRINCIPAL_ROLES),
      )
      .option('--groups <groups>', 'all their groups from now on; "" for none', list)
      .option('--owner-of <names>', 'service accounts they answer for beside those that they do already', list),
  )
    .addHelpText(
      'after',
      `
Examples:
  counterstamp person set --tenant shop_north --name ana@example.com --roles auditor
  counterstamp person set --tenant shop_north --name ana@example.com --groups finance,support`,
    )
    .action(async (options: Options) => {
      const { tenant, name, roles, groups, ownerOf } = options;
      if (roles === undefined && groups === undefined && ownerOf === undefined) {
        throw new CliFailure('Nothing is given to set.', 'Give --roles, --groups or --owner-of.', EXIT.usage);
      }
      await checkIdentifiers(
        ...(groups ?? []).map((group) => ['--groups', group] as const),
        ...(ownerOf ?? []).map((account) => ['--owner-of', account] as const),
      );
      const set = await asOwner(options.fleet, 'person set', async (sql) => {
        const { setPerson } = await import('@counterstamp/manifest-store');
        const wanted = {
          tenant_id: tenant,
          name,
          ...(roles === undefined ? {} : { roles }),
          ...(groups === undefined ? {} : { groups }),
          ...(ownerOf === undefined ? {} : { owner_of: ownerOf }),
        };
        return doneOrFail(await setPerson(sql, wanted));
      });
      if (options.json) {
        return printJson({ principal_id: set.principal_id, roles: set.roles, groups: set.groups });
      }
      printText(`${name}: roles ${words(set.roles)}; groups ${words(set.groups)}.`);
    });
}

function words(all: readonly string[]): string {
  return all.length === 0 ? 'none' : all.join(', ');
}
