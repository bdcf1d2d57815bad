import { type Command, Option } from 'commander';
import { endWithParent } from '../end-with-parent.ts';
import { wholeNumber } from './numbers.ts';

/** Processes of one kind at most: more help nobody on one machine. */
const PROCESSES_MAX = 16;

interface Options {
  state: string;
  port?: number;
  tourOnly?: true;
  tour: boolean;
  tourReport?: string;
  hold?: true;
  preflights: number;
  executors: number;
  verifiers: number;
  reconcilers: number;
}

/** `counterstamp up`: what `npm start` runs. */
export function addUp(program: Command): void {
  const count = (name: string) =>
    new Option(`--${name} <n>`, `processes of this kind`).argParser(wholeNumber(1, PROCESSES_MAX)).default(1);
  program
    .command('up')
    .description(
      'Run a whole fleet on this machine: Postgres (embedded unless DATABASE_URL), queues (in Postgres unless REDIS_URL), sandbox, every service as its own process; then the tour.',
    )
    .option('--state <dir>', 'folder for data, logs, secret and demo keys', '.counterstamp')
    .option(
      '--port <n>',
      'port of the API (default: 8080, or any free one when that is taken; 0: any)',
      wholeNumber(0, 65_535),
    )
    .addOption(new Option('--tour-only', 'end everything after the tour; the exit code is the tour’s'))
    .addOption(new Option('--no-tour', 'no tour').conflicts('tourOnly'))
    .addOption(
      new Option(
        '--hold',
        'start read-only: every dispatch is on hold before the first executor starts, until `counterstamp hold release`; no tour',
      ).conflicts('tourOnly'),
    )
    .option('--tour-report <file>', 'write the tour’s table, expected against seen, as Markdown')
    .addOption(count('preflights'))
    .addOption(count('executors'))
    .addOption(count('verifiers'))
    .addOption(count('reconcilers'))
    .addHelpText(
      'after',
      `
Examples:
  counterstamp up
  counterstamp up --tour-only
  counterstamp up --no-tour --executors 3 --port 9000
  counterstamp up --hold
  DATABASE_URL=postgres://owner:…@db/app REDIS_URL=redis://cache:6379 counterstamp up

DATABASE_URL names the owner of the database, who may create roles (else see counterstamp migrate --print-roles).
Ctrl-C or SIGTERM drains every process, then ends the sandbox and Postgres; the data stays.`,
    )
    .action(async (options: Options) => {
      process.title = 'counterstamp up';
      endWithParent();
      const [{ up }, { createTerminal }] = await Promise.all([import('../up/up.ts'), import('../up/terminal.ts')]);
      process.exitCode = await up(
        {
          state: options.state,
          port: options.port,
          tour: options.tourOnly === true ? 'only' : options.tour ? 'then_stay' : 'none',
          tourReport: options.tourReport,
          hold: options.hold === true,
          counts: {
            preflight: options.preflights,
            executor: options.executors,
            verifier: options.verifiers,
            reconciler: options.reconcilers,
          },
        },
        process.env,
        createTerminal(),
      );
    });
}
