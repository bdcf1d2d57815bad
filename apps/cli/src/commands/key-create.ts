import { type Command, Option } from 'commander';
import { CliFailure } from '../failure.ts';
import { printJson } from '../output/print.ts';
import { asOwner } from '../owner-access.ts';
import { doneOrFail } from '../owner-refusal.ts';
import { checkIdentifiers, list } from './identifiers.ts';
import { duration } from './numbers.ts';

/** manifest-store's roles of keys; spelled out so that help needs no database driver. Checked by type below. The glass is broken by no key. */
const ROLES = ['requester', 'approver', 'operator', 'auditor'] as const;

interface Options {
  tenant: string;
  name: string;
  role: (typeof ROLES)[number];
  group: string[];
  owner?: string;
  expiresIn?: number;
  fleet: string;
  json?: true;
}

/** `counterstamp key create`. */
export function addKeyCreate(key: Command): void {
  key
    .command('create')
    .description('Make an API key. It is printed once, alone on standard output, and stored only as a hash.')
    .requiredOption('--tenant <tenant>', 'whose runs it may see')
    .requiredOption('--name <name>', 'who holds it; the same name is the same principal')
    .addOption(new Option('--role <role>', 'what it may do').choices(ROLES).makeOptionMandatory())
    .option('--group <groups>', 'groups of its holder that a policy may ask for, such as finance', list, [])
    .option('--owner <name>', 'the person who answers for its holder, and so never approves what it asks for')
    .option('--expires-in <time>', 'such as 90s, 12h, 30d; until revoked when absent', duration)
    .option('--fleet <dir>', 'state folder of the local fleet, when DATABASE_URL is not set', '.counterstamp')
    .option('--json', 'key, key_id and principal_id as JSON')
    .addHelpText(
      'after',
      '\nExample:\n  counterstamp key create --tenant shop_north --name support-agent --role requester --owner ben@example.com --expires-in 30d',
    )
    .action(async (options: Options) => {
      if (options.role === 'approver' && process.env.DATABASE_URL && process.env.COUNTERSTAMP_DEV !== '1') {
        throw new CliFailure(
          'Approver keys are for development: elsewhere a person signs, and no executor counts what such a key approved.',
          'Set COUNTERSTAMP_DEV=1 for a development installation.',
        );
      }
      const { tenant, name, role, group, owner, expiresIn } = options;
      await checkIdentifiers(['--tenant', tenant], ['--name', name], ...group.map((one) => ['--group', one] as const));
      const { randomIds } = await import('@counterstamp/stage-runtime');
      const { key, key_id, principal_id } = await asOwner(options.fleet, 'key create', async (sql) => {
        const { issueKey } = await import('@counterstamp/manifest-store');
        const wanted = {
          tenant_id: tenant,
          name,
          role,
          groups: group,
          ...(owner === undefined ? {} : { owner }),
          ...(expiresIn === undefined ? {} : { expiresInMs: expiresIn }),
        };
        return doneOrFail(await issueKey(sql, randomIds, wanted));
      });
      if (options.json) printJson({ key, key_id, principal_id });
      else process.stdout.write(`${key}\n`);
    });
}
