import type { RetentionClass, RetentionCount } from '@counterstamp/manifest-store';
import { type Command, InvalidArgumentError, Option } from 'commander';
import { printJson, printText } from '../output/print.ts';
import { table } from '../output/table.ts';
import { asOwner, type OwnerOptions, withOwner } from '../owner-access.ts';

/** manifest-store's classes; spelled out so that help needs no database driver. Checked by type below. */
const CLASSES = ['evidence', 'sessions', 'challenges', 'invitations'] as const satisfies readonly RetentionClass[];

type Keep = Partial<Record<(typeof CLASSES)[number], number>>;

interface Options extends OwnerOptions {
  keep: Keep;
  dryRun?: true;
  apply?: true;
}

/** `counterstamp retention`. */
export function addRetention(program: Command): void {
  withOwner(
    program
      .command('retention')
      .description('Let go what is older than it is to be kept. Events, decisions and audit events are kept for ever.')
      .addOption(
        new Option('--keep <class=days>', `of ${CLASSES.join(', ')}; once for each class that is not kept for ever`)
          .argParser(keepOf)
          .makeOptionMandatory(),
      )
      .addOption(new Option('--dry-run', 'only count').conflicts('apply'))
      .addOption(new Option('--apply', 'do it')),
  )
    .addHelpText(
      'after',
      `
evidence     input, proposals and evidence of a case (its subject is its request id) whose runs all ended longer ago; as \`counterstamp erase\` does it
sessions     of people, ended longer ago
challenges   of passkeys, used up or expired longer ago
invitations  of people, used up or expired longer ago

Examples:
  counterstamp retention --dry-run --keep evidence=365 --keep sessions=30
  counterstamp retention --apply --keep challenges=1 --keep invitations=30`,
    )
    .action(async (options: Options, command: Command) => {
      if (options.dryRun === options.apply) command.error('error: give either --dry-run or --apply');
      const counts = await asOwner(options.fleet, 'retention', async (sql) => {
        const { retain } = await import('@counterstamp/manifest-store');
        return await retain(sql, options.keep, { apply: options.apply === true });
      });
      if (options.json) printJson({ applied: options.apply === true, classes: counts });
      else printText(retentionTable(counts, options.apply === true));
    });
}

/** Adds one `class=days` to those before it, for an option that is given several times. */
export function keepOf(text: string, before: Keep = {}): Keep {
  const [, name, days] = /^([a-z]+)=(\d{1,5})$/.exec(text) ?? [];
  const known = CLASSES.find((one) => one === name);
  if (known === undefined || days === undefined)
    throw new InvalidArgumentError(
      `It must be a class and days, such as evidence=365; classes: ${CLASSES.join(', ')}.`,
    );
  if (before[known] !== undefined) throw new InvalidArgumentError(`${known} is given twice.`);
  return { ...before, [known]: Number(days) };
}

/** Pure. */
function retentionTable(counts: readonly RetentionCount[], applied: boolean): string {
  return table(
    ['CLASS', 'KEEP', 'OLDER THAN', applied ? 'GONE' : 'WOULD GO'],
    counts.map((one) => [one.class, `${one.days}d`, one.before, String(one.count)]),
  );
}
