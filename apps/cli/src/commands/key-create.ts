import { type Command, Option } from 'commander';
import { CliFailure, EXIT } from '../failure.ts';
import { printJson } from '../output/print.ts';
import { ownerUrl } from '../owner-access.ts';
import { duration } from './numbers.ts';

/** manifest-store's roles; spelled out so that help needs no database driver. Checked by type below. */
const ROLES = ['requester', 'approver', 'operator', 'auditor'] as const;

interface Options {
  tenant: string;
  name: string;
  role: (typeof ROLES)[number];
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
    .option('--expires-in <time>', 'such as 90s, 12h, 30d; until revoked when absent', duration)
    .option('--fleet <dir>', 'state folder of the local fleet, when DATABASE_URL is not set', '.counterstamp')
    .option('--json', 'key, key_id and principal_id as JSON')
    .addHelpText(
      'after',
      '\nExample:\n  counterstamp key create --tenant shop_north --name support-agent --role requester --expires-in 30d',
    )
    .action(async (options: Options) => {
      const url = await ownerUrl(options.fleet);
      if (options.role === 'approver' && process.env.DATABASE_URL && process.env.COUNTERSTAMP_DEV !== '1') {
        throw new CliFailure(
          'Approver keys are for development: elsewhere a person signs, and no executor counts what such a key approved.',
          'Set COUNTERSTAMP_DEV=1 for a development installation.',
        );
      }
      const [{ ExternalId }, { connect, createApiKey }, { randomIds }] = await Promise.all([
        import('@counterstamp/manifest-core'),
        import('@counterstamp/manifest-store'),
        import('@counterstamp/stage-runtime'),
      ]);
      for (const [option, text] of [
        ['--tenant', options.tenant],
        ['--name', options.name],
      ] as const) {
        if (!ExternalId.safeParse(text).success) {
          throw new CliFailure(
            `${option} "${text}" must start with an ASCII letter or digit and hold only letters, digits and . _ - : @ #.`,
            undefined,
            EXIT.usage,
          );
        }
      }
      const sql = connect(url, { max: 1, applicationName: 'counterstamp key create' });
      try {
        const { tenant, name, role, expiresIn } = options;
        const wanted = {
          tenant_id: tenant,
          name,
          role,
          ...(expiresIn === undefined ? {} : { expiresInMs: expiresIn }),
        };
        const made = await createApiKey(sql, randomIds, wanted);
        if (options.json) printJson(made);
        else process.stdout.write(`${made.key}\n`);
      } finally {
        await sql.end({ timeout: 2 });
      }
    });
}
