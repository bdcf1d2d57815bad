import type { Command } from 'commander';
import { CliFailure, EXIT } from '../failure.ts';
import { printJson, printText } from '../output/print.ts';
import { ownerUrl } from '../owner-access.ts';

/** `counterstamp migrate`. */
export function addMigrate(program: Command): void {
  program
    .command('migrate')
    .description(
      'Bring the database to this version: schema, service roles, grants, and the queues’ schema unless REDIS_URL is set.',
    )
    .option('--print-roles', 'print the statements that create the service roles, for an administrator; change nothing')
    .option('--fleet <dir>', 'state folder of the local fleet, when DATABASE_URL is not set', '.counterstamp')
    .option('--json', 'what was done as JSON')
    .addHelpText(
      'after',
      `
DATABASE_URL              the owner of the database
COUNTERSTAMP_SECRET       creates the roles with passwords derived from it (development); absent: the roles must exist
COUNTERSTAMP_ROLE_PREFIX  what their names begin with, cs_ by default

Examples:
  DATABASE_URL=postgres://owner:…@db/app COUNTERSTAMP_SECRET=… counterstamp migrate
  DATABASE_URL=postgres://owner:…@db/app counterstamp migrate --print-roles > roles.sql`,
    )
    .action(async (options: { printRoles?: true; fleet: string; json?: true }) => {
      const url = await ownerUrl(options.fleet);
      const { DEFAULT_ROLE_PREFIX, derivedPassword, migrate, roleName, roleStatements } = await import(
        '@counterstamp/manifest-store'
      );
      const prefix = nonEmpty(process.env.COUNTERSTAMP_ROLE_PREFIX) ?? DEFAULT_ROLE_PREFIX;
      const secret = nonEmpty(process.env.COUNTERSTAMP_SECRET);
      checkSettings(prefix, secret);
      if (options.printRoles) {
        const passwordOf = (role: string) =>
          secret === undefined ? `<password of ${role}>` : derivedPassword(secret, role);
        const statements = roleStatements(prefix, databaseOf(url), passwordOf);
        if (options.json) printJson({ statements });
        else printText(statements.map((statement) => `${statement};`).join('\n'));
        return;
      }
      const { SERVICES } = await import('@counterstamp/manifest-core');
      const applied = await migrate(url, { rolePrefix: prefix, ...(secret === undefined ? {} : { secret }) }).catch(
        (error: unknown) => {
          throw roleFailure(error) ?? error;
        },
      );
      const queue = nonEmpty(process.env.REDIS_URL) === undefined;
      if (queue) {
        const { migrateQueue } = await import('@counterstamp/stage-queue');
        await migrateQueue(url, { grantTo: SERVICES.map((service) => roleName(prefix, service)) });
      }
      if (options.json) return printJson({ applied, roles: secret !== undefined, queue });
      printText(applied.length === 0 ? 'The schema was up to date.' : `Applied: ${applied.join(', ')}.`);
      printText(`Roles ${prefix}*: ${secret === undefined ? 'granted to' : 'made and granted to'}.`);
      printText(queue ? 'Queues: their schema is up to date, in Postgres.' : 'Queues: in Redis.');
    });
}

function checkSettings(prefix: string, secret: string | undefined): void {
  const faults: string[] = [];
  if (!/^[a-z][a-z0-9_]{0,30}$/.test(prefix))
    faults.push('COUNTERSTAMP_ROLE_PREFIX must be lower-case letters, digits and _');
  if (secret !== undefined && secret.length < 16) faults.push('COUNTERSTAMP_SECRET must have at least 16 characters');
  if (faults.length > 0) throw new CliFailure(`${faults.join('; ')}.`, undefined, EXIT.configuration);
}

function roleFailure(error: unknown): CliFailure | undefined {
  const code = error instanceof Error && 'code' in error ? error.code : undefined;
  const next =
    'Set COUNTERSTAMP_SECRET and use an owner with CREATEROLE, or have an administrator run what `counterstamp migrate --print-roles` prints.';
  if (code === '42704') return new CliFailure('The service roles do not exist.', next, EXIT.configuration);
  if (code === '42501' && error instanceof Error) {
    return new CliFailure(`The user of DATABASE_URL may not do this: ${error.message}.`, next, EXIT.configuration);
  }
  return undefined;
}

function databaseOf(url: string): string {
  const { pathname, username } = new URL(url);
  return decodeURIComponent(pathname.slice(1)) || decodeURIComponent(username);
}

function nonEmpty(text: string | undefined): string | undefined {
  return text === '' ? undefined : text;
}
