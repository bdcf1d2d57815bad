import type { Command } from 'commander';
import { printJson, printText } from '../output/print.ts';
import { asOwner, type OwnerOptions, withOwner } from '../owner-access.ts';
import { doneOrFail } from '../owner-refusal.ts';
import { checkIdentifiers, list, listOf, PRINCIPAL_ROLES } from './identifiers.ts';

interface Options extends OwnerOptions {
  tenant: string;
  name: string;
  roles: (typeof PRINCIPAL_ROLES)[number][];
  groups: string[];
  ownerOf: string[];
}

/** `counterstamp person add`. */
export function addPersonAdd(person: Command): void {
  withOwner(
    person
      .command('add')
      .description('Add a person. They can do nothing until they enrol a passkey or their identity is linked.')
      .requiredOption('--tenant <tenant>', 'whose runs they see')
      .requiredOption('--name <name>', 'such as an address; two spellings that differ in case are one person')
      .requiredOption('--roles <roles>', `what they may do: ${PRINCIPAL_ROLES.join(',')}`, listOf(PRINCIPAL_ROLES))
      .option('--groups <groups>', 'groups that a policy may ask for, such as finance', list, [])
      .option('--owner-of <names>', 'service accounts they answer for, and so never approve for', list, []),
  )
    .addHelpText(
      'after',
      `
Examples:
  counterstamp person add --tenant shop_north --name ana@example.com --roles approver,auditor --groups finance
  counterstamp person add --tenant shop_north --name ben@example.com --roles approver --owner-of support-agent`,
    )
    .action(async (options: Options) => {
      const { tenant, name, roles, groups, ownerOf } = options;
      await checkIdentifiers(
        ['--tenant', tenant],
        ['--name', name],
        ...groups.map((group) => ['--groups', group] as const),
        ...ownerOf.map((account) => ['--owner-of', account] as const),
      );
      const { randomIds } = await import('@counterstamp/stage-runtime');
      const { principal_id } = await asOwner(options.fleet, 'person add', async (sql) => {
        const { addPerson } = await import('@counterstamp/manifest-store');
        return doneOrFail(
          await addPerson(sql, randomIds, { tenant_id: tenant, name, roles, groups, owner_of: ownerOf }),
        );
      });
      if (options.json) return printJson({ principal_id });
      printText(
        `${name} is added to ${tenant}. Next: \`counterstamp person invite --tenant ${tenant} --name ${name}\`.`,
      );
    });
}
