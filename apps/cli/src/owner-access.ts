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
