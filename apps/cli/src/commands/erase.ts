import type { EraseOutcome } from '@counterstamp/manifest-store';
import type { Command } from 'commander';
import { CliFailure, EXIT } from '../failure.ts';
import { printJson, printText } from '../output/print.ts';
import { asOwner, type OwnerOptions, withOwner } from '../owner-access.ts';
import { checkIdentifiers } from './identifiers.ts';

interface Options extends OwnerOptions {
  tenant: string;
  subject: string;
  evenOpen?: true;
  dryRun?: true;
  yes?: true;
}

/** `counterstamp erase`. */
export function addErase(program: Command): void {
  withOwner(
    program
      .command('erase')
      .description(
        'Destroy the key of a subject for good, and with it every sealed input, proposal and piece of evidence of its runs. Events, digests and what was approved stay, and still verify.',
      )
      .requiredOption('--tenant <tenant>', 'whose runs')
      .requiredOption('--subject <subject>', 'as the requests named it; the request id where they named none')
      .option('--dry-run', 'only say what would be erased')
      .option('--even-open', 'also while runs of the subject are open: those that have not sent yet will stop')
      .option('--yes', 'without asking'),
  )
    .addHelpText(
      'after',
      `
Exit code 0: the subject is erased, now or before, or --dry-run. 1: it is not, or runs of it are in plain text, which no key erases.
A backup made before holds the key still, under the installation's data key: let it go as well.

Example:
  counterstamp erase --tenant shop_north --subject customer_17 --dry-run`,
    )
    .action(async (options: Options) => {
      const { tenant, subject, evenOpen = false, dryRun = false, yes = false } = options;
      await checkIdentifiers(['--tenant', tenant], ['--subject', subject]);
      const whose = { tenant_id: tenant, subject };
      const outcome = await asOwner(options.fleet, 'erase', async (sql) => {
        const { eraseSubject } = await import('@counterstamp/manifest-store');
        const wouldBe = await eraseSubject(sql, whose, { evenOpen, apply: false });
        if (dryRun || wouldBe.result !== 'would_erase') return wouldBe;
        if (!(yes || (await confirmed(subject, wouldBe)))) throw new CliFailure('Nothing was erased.');
        return await eraseSubject(sql, whose, { evenOpen, apply: true });
      });
      const { sentence, exit } = eraseText(subject, outcome);
      process.exitCode = exit;
      if (options.json) printJson({ ...whose, ...outcome });
      else printText(sentence);
    });
}

/** What came of it, for a person, and the exit code. Pure. */
export function eraseText(subject: string, outcome: EraseOutcome): { sentence: string; exit: 0 | 1 } {
  const { result, runs, sealed_values, open_runs, unsealed, erased_at } = outcome;
  const held = `${counted(sealed_values, 'value')} of ${counted(runs, 'run')}`;
  const open = open_runs === 0 ? '' : ` Not ended yet: ${counted(open_runs, 'run')}.`;
  const plain =
    unsealed === 0 ? '' : ` In plain text, and so not erased: ${counted(unsealed, 'run')} from before sealing was on.`;
  const sentence = {
    erased: `${subject} is erased: ${held}.${open}`,
    would_erase: `Would erase ${held}.${open}`,
    already_erased: `${subject} was erased at ${erased_at}: ${held}.`,
    open_runs: `Nothing was erased: ${counted(open_runs, 'run')} of ${subject} ${open_runs === 1 ? 'has' : 'have'} not ended. Wait, cancel, or use --even-open.`,
    unknown: `Nothing of ${subject} is sealed in this tenant.`,
  }[result];
  const done = result === 'erased' || result === 'already_erased' || result === 'would_erase';
  return { sentence: `${sentence}${plain}`, exit: done && unsealed === 0 ? EXIT.ok : EXIT.refused };
}

function counted(n: number, what: string): string {
  return `${n} ${what}${n === 1 ? '' : 's'}`;
}

async function confirmed(subject: string, outcome: EraseOutcome): Promise<boolean> {
  if (!process.stdin.isTTY) {
    throw new CliFailure(
      'There is no terminal to ask at, so nothing was erased.',
      'Pass --yes once a person has read what --dry-run says.',
      EXIT.usage,
    );
  }
  const { createInterface } = await import('node:readline/promises');
  const terminal = createInterface({ input: process.stdin, output: process.stderr });
  try {
    const answer = await terminal.question(
      `${eraseText(subject, outcome).sentence} It cannot be undone. Type the subject to erase it: `,
    );
    return answer.trim() === subject;
  } finally {
    terminal.close();
  }
}
