import type { Command } from 'commander';
import { EXIT } from '../failure.ts';
import { printJson, printText } from '../output/print.ts';

/** `counterstamp verify-checkpoints`. */
export function addVerifyCheckpoints(program: Command): void {
  program
    .command('verify-checkpoints')
    .description('Verify exported checkpoints as one chain, and that a receipt’s checkpoint is one of them; offline.')
    .argument('<files...>', 'exported checkpoints, one JSON line each; several files are read as one')
    .requiredOption('--keys <file>', 'the installation’s public keys (JWK set), got by another way than the files')
    .option('--against <receipt>', 'a receipt whose checkpoint must be one of them')
    .option('--json', 'the checks as JSON')
    .addHelpText(
      'after',
      `
Exit code 0: one chain without a gap. 1: something is missing or differs. 2: a file cannot be read.

Examples:
  counterstamp verify-checkpoints checkpoints.jsonl --keys trusted-keys.json
  counterstamp verify-checkpoints one.jsonl two.jsonl --keys trusted-keys.json --against receipt.json`,
    )
    .action(async (files: string[], options: { keys: string; against?: string; json?: true }) => {
      const [{ readKeys }, { readEnvelope }, { checkPage }, { checkAgainst, checkChain, readCopies }, { readInput }] =
        await Promise.all([
          import('../verify/read-keys.ts'),
          import('../verify/read-envelope.ts'),
          import('../verify/check-page.ts'),
          import('../verify/compare-checkpoints.ts'),
          import('../read-input.ts'),
        ]);
      const keys = await readKeys(options.keys);
      const receipt = options.against === undefined ? undefined : await readEnvelope(options.against, '--against');
      const lines = [];
      for (const file of files) {
        const text = Buffer.from(await readInput(file, 'an argument', 'checkpoints')).toString('utf8');
        lines.push(
          ...text
            .split('\n')
            .map((line, index) => ({ place: `${file}:${index + 1}`, text: line }))
            .filter((line) => line.text !== ''),
        );
      }
      const { copies, unreadable } = readCopies(lines, keys);
      const checks = [
        ...unreadable,
        ...checkChain(copies, keys),
        ...(receipt === undefined ? [] : [checkAgainst(receipt, copies, keys)]),
      ];
      const ok = checks.every((one) => one.ok !== false);
      if (!ok) process.exitCode = EXIT.refused;
      if (options.json) printJson({ checks, ok });
      else printText(checkPage(checks));
    });
}
