import type { OldestRun } from '@counterstamp/manifest-store';
import type { Command } from 'commander';
import { printJson, printText } from '../output/print.ts';
import { asOwner, type OwnerOptions, withOwner } from '../owner-access.ts';
import { wholeNumber } from './numbers.ts';

const LIMIT_DEFAULT = 20;
const AGE = { secondsDecimalDigits: 0, unitCount: 2 } as const;

/** `counterstamp run oldest`. */
export function addRunOldest(run: Command): void {
  withOwner(
    run
      .command('oldest')
      .description(
        'The open runs that have been longest in their state, of all tenants: from an alert to the runs behind it.',
      )
      .option('--state <state>', 'only runs in this state')
      .option('--parked [reason]', 'only runs that wait for a person, for this reason when it is given')
      .option('--limit <n>', 'at most so many', wholeNumber(1, 1_000), LIMIT_DEFAULT),
  )
    .addHelpText(
      'after',
      `
Examples:
  counterstamp run oldest --state verifying
  counterstamp run oldest --parked verification_mismatch
Then: counterstamp run show RUN_ID, and for a run in doubt counterstamp reconcile RUN_ID.`,
    )
    .action(async (options: OwnerOptions & { state?: string; parked?: string | true; limit: number }) => {
      const { STATES } = await import('@counterstamp/manifest-core');
      const state = STATES.find((one) => one === options.state);
      if (options.state !== undefined && state === undefined) {
        const { CliFailure } = await import('../failure.ts');
        throw new CliFailure(`There is no state ${options.state}.`, `States: ${STATES.join(', ')}.`);
      }
      const [{ table }, { default: prettyMs }] = await Promise.all([import('../output/table.ts'), import('pretty-ms')]);
      const runs = await asOwner(options.fleet, 'run oldest', async (sql) => {
        const { oldestRuns } = await import('@counterstamp/manifest-store');
        const { parked, limit } = options;
        return await oldestRuns(sql, {
          ...(state === undefined ? {} : { state }),
          ...(parked === undefined ? {} : { parked }),
          limit,
        });
      });
      if (options.json) return printJson({ runs });
      if (runs.length === 0) return printText('No open run is like that.');
      printText(
        table(
          ['RUN', 'TENANT', 'STATE', 'FOR', 'WAITS FOR'],
          runs.map((run) => row(run, prettyMs(run.age_ms, AGE))),
        ),
      );
    });
}

function row({ run_id, tenant_id, state, wake_at, parked_reason }: OldestRun, age: string): string[] {
  return [
    run_id,
    tenant_id,
    state,
    age,
    parked_reason === null ? `the fleet, again at ${wake_at ?? 'no time'}` : `a person: ${parked_reason}`,
  ];
}
