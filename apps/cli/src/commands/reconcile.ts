import type { Command } from 'commander';
import { type AccessOptions, openApi, withAccess } from '../api-access.ts';
import { CliFailure, EXIT } from '../failure.ts';
import { printJson, printText } from '../output/print.ts';
import { wholeNumber } from './numbers.ts';

/** As many instances as the api lists at most: the one of an old attempt is wanted as well. */
const INSTANCES_MAX = 1_000;

interface Options extends AccessOptions {
  lookAgain?: true;
  limit: number;
  json?: true;
}

/** `counterstamp reconcile`. */
export function addReconcile(program: Command): void {
  withAccess(
    program
      .command('reconcile')
      .description(
        'Runs whose effect is in doubt; for one of them, everything that a person needs to judge it, and the commands that record what they saw.',
      )
      .argument('[run_id]', 'one run; the list of all when absent')
      .option('--look-again', 'ask the fleet to look the effect up once more')
      .option('--limit <n>', 'how many runs of the list, 1 to 200', wholeNumber(1, 200), 50)
      .option('--json', 'the same as JSON'),
  )
    .addHelpText(
      'after',
      `
Never repeat an effect in doubt elsewhere. docs/operations/parked-run.md goes through it step by step.

Examples:
  counterstamp reconcile
  counterstamp reconcile run_0191c0de-0000-7000-8000-000000000000
  counterstamp reconcile run_0191c0de-0000-7000-8000-000000000000 --look-again`,
    )
    .action(async (id: string | undefined, options: Options) => {
      if (id === undefined) {
        if (options.lookAgain === undefined) return await listDoubts(options);
        throw new CliFailure('--look-again needs a run.', 'Name one of `counterstamp reconcile`.', EXIT.usage);
      }
      const { parseRunId } = await import('./run-id.ts');
      const run_id = parseRunId(id);
      const client = await openApi(options, 'operator');
      if (options.lookAgain) {
        const { revision } = await client.getRun(run_id);
        const evidence = 'asked for at the command line; nothing was seen';
        const standing = await client.verdict(run_id, { revision, verdict: 'look_again', evidence });
        if (options.json) return printJson(standing);
        return printText(
          `The fleet looks again; the run is ${standing.state}, revision ${standing.revision}. See \`counterstamp run show ${run_id}\`.`,
        );
      }
      // The run after the instances: what counts as fenced is judged as of the run's own time.
      const { instances } = await client.listInstances({ limit: INSTANCES_MAX });
      const run = await client.getRun(run_id);
      const senders = new Set(run.attempts.map((attempt) => attempt.instance_id));
      const theirs = instances.filter((one) => senders.has(one.instance_id));
      if (options.json) return printJson({ run, instances: theirs });
      const { doubtPage } = await import('../output/doubt-page.ts');
      printText(doubtPage(run, theirs));
    });
}

async function listDoubts(options: Options): Promise<void> {
  const client = await openApi(options, 'operator');
  const page = await client.listRuns({ state: 'needs_reconciliation', limit: options.limit });
  const runs = [];
  // One after the other: the list is short, and the api has others to serve.
  for (const { run_id } of page.runs) runs.push(await client.getRun(run_id));
  // One may have moved on since it was listed.
  const doubts = runs.filter((run) => run.state === 'needs_reconciliation');
  if (options.json) return printJson({ runs: doubts });
  if (doubts.length === 0) return printText('No effect is in doubt.');
  const { doubtList } = await import('../output/doubt-page.ts');
  printText(doubtList(doubts));
  if (page.next_cursor !== null) printText(`\nThese are the newest ${options.limit}; --limit shows more.`);
}
