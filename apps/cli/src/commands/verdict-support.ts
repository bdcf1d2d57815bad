import type { SupportBody } from '@counterstamp/api-contract';
import type { Command } from 'commander';
import { type AccessOptions, openApi, withAccess } from '../api-access.ts';
import { CliFailure, EXIT } from '../failure.ts';
import { printJson, printText } from '../output/print.ts';
import { REVISION_MAX, wholeNumber } from './numbers.ts';

interface Options extends AccessOptions {
  waiveFencing?: true;
  confirmDifference?: string;
  revision: number;
  reason: string;
  json?: true;
}

/** `counterstamp verdict support`. */
export function addVerdictSupport(verdict: Command): void {
  withAccess(
    verdict
      .command('support')
      .description(
        'As a second person: let another’s --did-not-land stand although an executor is not fenced, or confirm the difference that they saw.',
      )
      .argument('<run_id>')
      .option('--waive-fencing', 'you take it on yourself that no executor can still send for this run')
      .option(
        '--confirm-difference <digest>',
        'you saw the same effect; the digest is named where the verdict was refused',
      )
      .requiredOption('--revision <n>', 'the revision that you looked at', wholeNumber(1, REVISION_MAX))
      .requiredOption('--reason <text>', 'why you support it')
      .option('--json', 'the API’s answer as JSON'),
  )
    .addHelpText(
      'after',
      `
It counts for the attempts that the run has now; another attempt voids it. Your own verdict it cannot support.

Examples:
  counterstamp verdict support run_0191c0de-0000-7000-8000-000000000000 --waive-fencing --revision 12 --reason "the machine was scrapped"
  counterstamp verdict support run_0191c0de-0000-7000-8000-000000000000 --confirm-difference sha256:… --revision 12 --reason "seen as well"`,
    )
    .action(async (id: string, options: Options) => {
      const { parseRunId } = await import('./run-id.ts');
      const run_id = parseRunId(id);
      const body = await supportOf(options);
      const supported = await (await openApi(options, 'operator')).supportVerdict(run_id, body);
      if (options.json) printJson(supported);
      else printText('Recorded. The first person now gives their verdict again, on the same revision.');
    });
}

async function supportOf({ waiveFencing, confirmDifference, revision, reason }: Options): Promise<SupportBody> {
  if ((waiveFencing === undefined) === (confirmDifference === undefined)) {
    throw new CliFailure(
      'One kind of support is needed.',
      'Give --waive-fencing or --confirm-difference DIGEST.',
      EXIT.usage,
    );
  }
  if (confirmDifference === undefined) return { revision, kind: 'waive_fencing', reason };
  const { Digest } = await import('@counterstamp/manifest-core');
  const digest = Digest.safeParse(confirmDifference);
  if (digest.success) return { revision, kind: 'confirm_difference', effect_digest: digest.data, reason };
  throw new CliFailure(
    `"${confirmDifference}" is no digest.`,
    'It is sha256: and 64 lower-case hex digits, as the refusal of the verdict named it.',
    EXIT.usage,
  );
}
