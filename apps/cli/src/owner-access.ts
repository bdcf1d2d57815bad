import type { Sql } from '@counterstamp/manifest-store';
import type { Command } from 'commander';
import { CliFailure, EXIT } from './failure.ts';

/**
 * The database owner's URL: DATABASE_URL, else that of the local fleet while it runs.
 * @throws {CliFailure} when neither is there.
 */
export async function ownerUrl(fleet: string): Promise<string> {
  const given = process.env.DATABASE_URL;
  if (given !== undefined && given !== '') {
    if (!(URL.canParse(given) && /^postgres(ql)?:$/.test(new URL(given).protocol))) {
      throw new CliFailure(
        'DATABASE_URL must be a URL that starts with postgres:// or postgresql://.',
        undefined,
        EXIT.configuration,
      );
    }
    return given;
  }
  const { runningFleet, stateFolder } = await import('./up/state-folder.ts');
  const url = (await runningFleet(stateFolder(fleet)))?.owner_url;
  if (url === undefined) {
    throw new CliFailure(
      'DATABASE_URL is not set, and no local fleet runs.',
      'Set it to the owner’s URL of the database, or start a fleet with `counterstamp up`.',
      EXIT.configuration,
    );
  }
  return url;
}

/** Options of every command that works as the database's owner. */
export interface OwnerOptions {
  fleet: string;
  json?: true;
}

/** Adds the options that every command has which works as the database's owner. */
export function withOwner(command: Command): Command {
  return command
    .option('--fleet <dir>', 'state folder of the local fleet, when DATABASE_URL is not set', '.counterstamp')
    .option('--json', 'the result as JSON');
}

/** Does the work on one connection of the database's owner. @param command what Postgres shows as the name of the connection. */
export async function asOwner<T>(fleet: string, command: string, work: (sql: Sql) => Promise<T>): Promise<T> {
  const url = await ownerUrl(fleet);
  const { connect } = await import('@counterstamp/manifest-store');
  const sql = connect(url, { max: 1, applicationName: `counterstamp ${command}` });
  try {
    return await work(sql);
  } finally {
    await sql.end({ timeout: 2 });
  }
}
