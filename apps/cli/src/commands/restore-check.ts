import type { BookedEffect } from '@counterstamp/reconciler';
import type { Command } from 'commander';
import { CliFailure, EXIT } from '../failure.ts';
import { printJson, printText } from '../output/print.ts';

interface RestoreCheckOptions {
  since?: string;
  ledger?: string;
  effects?: string;
  fleet: string;
  json?: true;
}

/** `counterstamp restore check`. */
export function addRestoreCheck(restore: Command): void {
  restore
    .command('check')
    .description(
      'After a restore, or a failover that lost commits: look up every open run that has no send on record, and name those whose effect is there already. Changes nothing.',
    )
    .option('--since <time>', 'also runs that were closed without a send since then: the time of the backup')
    .option(
      '--effects <file>',
      'what the external systems list since the backup: a JSON array of {"provider", "ref", "run_id", "fields"}; run_id null without our tag',
    )
    .option('--ledger <url>', 'the same from the admin side of a sandbox, for drills')
    .option('--fleet <dir>', 'state folder of the local fleet, when no database is named', '.counterstamp')
    .option('--json', 'the report as JSON')
    .addHelpText(
      'after',
      `
Configured by the environment of the reconciler, whose login and read keys it uses; needs no process of the fleet. Without --effects it finds nothing
of runs that the backup does not have at all.

Exit code 0: no open run may act again as far as was seen. 1: one may, or cannot be told yet.

Examples:
  counterstamp restore check
  counterstamp restore check --since 2026-11-30T14:00:00Z --effects refunds-since-the-backup.json
  counterstamp restore check --ledger http://127.0.0.1:4010`,
    )
    .action(async (options: RestoreCheckOptions) => {
      const since = sinceOf(options.since);
      const effects = await effectsOf(options);
      const [{ subjectOf }, { runningFleet, stateFolder }, { checkRestored }, { restoreLines }] = await Promise.all([
        import('../doctor/subject.ts'),
        import('../up/state-folder.ts'),
        import('@counterstamp/reconciler'),
        import('../restore/restore-lines.ts'),
      ]);
      const fleet = await runningFleet(stateFolder(options.fleet));
      const { services } = await subjectOf(process.env, fleet, ['reconciler']);
      const checked = await checkRestored(services[0]?.env ?? {}, { since, effects });
      if (!checked.ok)
        throw new CliFailure(
          `${checked.faults.join('\n')}`,
          'Give this command the environment of the reconciler; docs/reference/configuration.md names every variable.',
          EXIT.configuration,
        );
      const { report } = checked;
      if (!report.safe) process.exitCode = EXIT.refused;
      if (options.json) return printJson(report);
      printText(restoreLines(report).join('\n'));
    });
}

function sinceOf(text: string | undefined): string | null {
  if (text === undefined) return null;
  if (Number.isNaN(Date.parse(text)))
    throw new CliFailure(`"${text}" is no time.`, 'Write it as 2026-11-30T14:00:00Z.', EXIT.usage);
  return new Date(text).toISOString();
}

async function effectsOf({ ledger, effects }: RestoreCheckOptions): Promise<BookedEffect[] | null> {
  if (ledger === undefined && effects === undefined) return null;
  const listed: BookedEffect[] = [];
  if (ledger !== undefined) {
    const { readLedger } = await import('../check-history/read-ledger.ts');
    // What definitely failed left nothing behind.
    listed.push(...(await readLedger(ledger)).effects.filter(({ settlement }) => settlement !== 'failed'));
  }
  if (effects !== undefined) {
    const { readEffects } = await import('../restore/read-effects.ts');
    listed.push(...(await readEffects(effects)));
  }
  return listed;
}
