import { type Command, Option } from 'commander';
import { EXIT } from '../failure.ts';
import { printJson, printText } from '../output/print.ts';

/** manifest-core's services; spelled out so that help loads nothing. Checked by type below. */
const SERVICES = ['api', 'preflight', 'executor', 'verifier', 'reconciler'] as const;

interface Options {
  service?: (typeof SERVICES)[number][];
  fleet: string;
  json?: true;
}

/** `counterstamp doctor`. */
export function addDoctor(program: Command): void {
  program
    .command('doctor')
    .description(
      'Check an installation without changing it: configuration, connections, migrations, roles and grants, queues, clock, durations. Each finding says what to do.',
    )
    .addOption(new Option('--service <name...>', 'only these services').choices(SERVICES))
    .option('--fleet <dir>', 'state folder of the local fleet, when the environment names no database', '.counterstamp')
    .option('--json', 'every finding as JSON')
    .addHelpText(
      'after',
      `
Examined is the environment as a service would get it (DATABASE_URL with COUNTERSTAMP_SECRET, or COUNTERSTAMP_<SERVICE>_DATABASE_URL, and the rest
of docs/reference/configuration.md); without a database in it, the local fleet. DATABASE_URL, the owner's, is needed to see the migrations.

Exit code 0: nothing failed (warnings may remain). 1: something failed. 78: there is nothing to examine.

Examples:
  counterstamp doctor
  DATABASE_URL=postgres://owner:…@db/app COUNTERSTAMP_SECRET=… REDIS_URL=… counterstamp doctor --json
  COUNTERSTAMP_EXECUTOR_DATABASE_URL=… counterstamp doctor --service executor`,
    )
    .action(async (options: Options) => {
      const [{ runningFleet, stateFolder }, { subjectOf }, { examine }, { findingsPage }] = await Promise.all([
        import('../up/state-folder.ts'),
        import('../doctor/subject.ts'),
        import('../doctor/examine.ts'),
        import('../doctor/finding.ts'),
      ]);
      const subject = await subjectOf(
        process.env,
        await runningFleet(stateFolder(options.fleet)),
        options.service ?? [],
      );
      const findings = await examine(subject);
      const healthy = findings.every((finding) => finding.status !== 'failed');
      process.exitCode = healthy ? EXIT.ok : EXIT.refused;
      if (options.json) return printJson({ ok: healthy, examined: subject.source, findings });
      printText(`Examined: ${subject.source}.\n`);
      printText(findingsPage(findings));
    });
}
