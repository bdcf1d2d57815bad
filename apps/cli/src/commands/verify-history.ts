import type { Command } from 'commander';
import { EXIT } from '../failure.ts';
import { printJson, printText } from '../output/print.ts';
import { ownerUrl } from '../owner-access.ts';

/** `counterstamp verify-history`. */
export function addVerifyHistory(program: Command): void {
  program
    .command('verify-history')
    .description(
      'Compute every run’s event chain and action digests again from what is stored; name each run where they differ.',
    )
    .argument('[run_id]', 'only this run')
    .option('--fleet <dir>', 'state folder of the local fleet, when DATABASE_URL is not set', '.counterstamp')
    .option('--json', 'one report per run as JSON')
    .addHelpText(
      'after',
      `
Exit code 0: every history is whole. 1: at least one is not, or the run does not exist.

Examples:
  counterstamp verify-history
  DATABASE_URL=postgres://owner:…@db/app counterstamp verify-history run_0191c0de-0000-7000-8000-000000000000`,
    )
    .action(async (id: string | undefined, options: { fleet: string; json?: true }) => {
      const { parseRunId } = await import('./run-id.ts');
      const only = id === undefined ? undefined : parseRunId(id);
      const url = await ownerUrl(options.fleet);
      const { connect, verifyHistory } = await import('@counterstamp/manifest-store');
      const sql = connect(url, { max: 1, applicationName: 'counterstamp verify-history' });
      try {
        const reports = [];
        let runs = 0;
        let events = 0;
        let faulty = 0;
        let erased = 0;
        for await (const report of verifyHistory(sql, only)) {
          runs += 1;
          events += report.events;
          if (report.erased_at !== null) erased += 1;
          if (options.json) reports.push(report);
          if (report.faults.length === 0) continue;
          faulty += 1;
          if (!options.json) printText(`✗ ${report.run_id}: ${report.faults.map(faultText).join('; ')}`);
        }
        if (faulty > 0 || (only !== undefined && runs === 0)) process.exitCode = EXIT.refused;
        if (options.json) printJson({ ok: faulty === 0, runs, events, erased, reports });
        else if (only !== undefined && runs === 0) printText(`There is no run ${only}.`);
        else if (faulty === 0)
          printText(
            `✓ ${runs} runs, ${events} events: every chain and every action digest holds.${erasedText(erased)}`,
          );
        else printText(`${faulty} of ${runs} runs are not what was recorded.`);
      } finally {
        await sql.end({ timeout: 2 });
      }
    });
}

/** Of how many the personal data is gone: what was committed to it is as it was. */
function erasedText(erased: number): string {
  return erased === 0 ? '' : ` Erased: the personal data of ${erased}; their digests stay.`;
}

/** `removed at revision 3`, from whatever members a fault has. */
function faultText({ kind, ...more }: { kind: string }): string {
  const details = Object.entries(more).map(([name, value]) => `${name} ${String(value)}`);
  return [kind.replaceAll('_', ' '), ...details].join(', ');
}
