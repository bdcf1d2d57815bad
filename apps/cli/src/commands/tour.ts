import type { Command } from 'commander';
import { endWithParent } from '../end-with-parent.ts';

/** `counterstamp tour`: the same tour again, against the fleet that runs. */
export function addTour(program: Command): void {
  program
    .command('tour')
    .description(
      'Send refunds through the local fleet and compare what is seen with what is expected, over public HTTP only.',
    )
    .option('--fleet <dir>', 'state folder of the fleet', '.counterstamp')
    .option('--report <file>', 'write the table, expected against seen, as Markdown')
    .option('--json', 'one JSON document instead of lines')
    .addHelpText('after', '\nExamples:\n  counterstamp tour\n  counterstamp tour --json')
    .action(async (options: { fleet: string; report?: string; json?: true }) => {
      endWithParent();
      const { runTour } = await import('../tour/run-tour.ts');
      process.exitCode = await runTour(options.fleet, { json: options.json === true, report: options.report });
    });
}
