import type { Command } from 'commander';
import { InvalidArgumentError } from 'commander';
import { CliFailure, EXIT } from '../failure.ts';
import { printJson, printText } from '../output/print.ts';
import { asOwner, type OwnerOptions, withOwner } from '../owner-access.ts';
import { doneOrFail } from '../owner-refusal.ts';
import { duration } from './numbers.ts';

/** manifest-store's INVITATION_LIFE_MAX_MS; spelled out so that help needs no database driver. */
const LIFE_MAX_MS = 86_400_000;

interface Options extends OwnerOptions {
  tenant: string;
  name: string;
  expiresIn: number;
  origin?: string;
}

/** `counterstamp person invite`. */
export function addPersonInvite(person: Command): void {
  withOwner(
    person
      .command('invite')
      .description(
        'Make a link by which a person enrols a passkey, once. It is printed once, alone on standard output, and stored only as a hash; earlier links of the person are void.',
      )
      .requiredOption('--tenant <tenant>', 'whose')
      .requiredOption('--name <name>', 'who')
      .option('--expires-in <time>', 'such as 30m or 12h, 24h at most', invitationLife, LIFE_MAX_MS)
      .option('--origin <url>', 'where people reach the pages; else COUNTERSTAMP_ORIGIN, else the local fleet’s'),
  )
    .addHelpText(
      'after',
      `
Give the link to nobody but that person: whoever opens it first enrols. The secret stands behind the #, which browsers never send.

Examples:
  counterstamp person invite --tenant shop_north --name ana@example.com --origin https://approve.example.com
  counterstamp person invite --tenant shop_north --name ana@example.com --expires-in 30m`,
    )
    .action(async (options: Options) => {
      const { tenant, name, expiresIn } = options;
      const origin = await pagesOrigin(options);
      const { randomIds } = await import('@counterstamp/stage-runtime');
      const made = await asOwner(options.fleet, 'person invite', async (sql) => {
        const { invitePerson } = await import('@counterstamp/manifest-store');
        return doneOrFail(await invitePerson(sql, randomIds, { tenant_id: tenant, name, expiresInMs: expiresIn }));
      });
      // In the fragment: no log, no Referer and no GET carries it.
      const link = `${origin}/enrol#${made.token}`;
      const { principal_id, invitation_id, expires_at } = made;
      if (options.json) return printJson({ link, principal_id, invitation_id, expires_at });
      printText(link);
    });
}

function invitationLife(text: string): number {
  const ms = duration(text);
  if (ms > LIFE_MAX_MS) throw new InvalidArgumentError('An invitation lives 24h at most.');
  return ms;
}

/** Where people reach the pages. @throws {CliFailure} when nobody says, or what they say is no origin. */
async function pagesOrigin(options: Options): Promise<string> {
  const given = options.origin ?? process.env.COUNTERSTAMP_ORIGIN ?? (await fleetOrigin(options.fleet));
  if (given === undefined || given === '') {
    throw new CliFailure(
      'Nobody says where people reach the pages.',
      'Give --origin or set COUNTERSTAMP_ORIGIN, such as https://approve.example.com.',
      EXIT.configuration,
    );
  }
  const { variable } = await import('@counterstamp/stage-runtime');
  const origin = variable.origin.safeParse(given.replace(/\/$/, ''));
  if (!origin.success) {
    throw new CliFailure(
      `"${given}" is no origin that passkeys work at.`,
      'Write it as https://approve.example.com, or http://localhost:8080 in development.',
      EXIT.configuration,
    );
  }
  return origin.data;
}

/** The local fleet's, unless another database is named. */
async function fleetOrigin(fleet: string): Promise<string | undefined> {
  if (process.env.DATABASE_URL) return undefined;
  const { runningFleet, stateFolder } = await import('../up/state-folder.ts');
  return (await runningFleet(stateFolder(fleet)))?.services?.api?.COUNTERSTAMP_ORIGIN;
}
