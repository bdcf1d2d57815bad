import type { Command } from 'commander';
import { type AccessOptions, openApi, withAccess } from '../api-access.ts';
import { printJson, printText } from '../output/print.ts';

/** `counterstamp receipt`. */
export function addReceipt(program: Command): void {
  withAccess(
    program
      .command('receipt')
      .description('Fetch a run’s signed receipt, which anybody verifies without us: `counterstamp verify-receipt`.')
      .argument('<run_id>')
      .option('--out <file>', 'write it there, instead of to standard output; the file must not exist')
      .option('--no-disclose', 'leave out the facts of the evidence and the reasons that people gave'),
  )
    .addHelpText(
      'after',
      `
Examples:
  counterstamp receipt run_0191c0de-0000-7000-8000-000000000000 --out receipt.json
  counterstamp receipt run_0191c0de-0000-7000-8000-000000000000 --no-disclose > receipt.json`,
    )
    .action(async (id: string, options: AccessOptions & { out?: string; disclose: boolean }) => {
      const { parseRunId } = await import('./run-id.ts');
      const run_id = parseRunId(id);
      const client = await openApi(options, 'auditor');
      const receipt = await client.receipt(run_id, { disclose: options.disclose ? 'all' : 'none' });
      if (options.out === undefined) return printJson(receipt);
      const { writeNew } = await import('../verify/write-new.ts');
      await writeNew(options.out, `${JSON.stringify(receipt, null, 2)}\n`);
      printText(`${options.out}: the receipt of ${run_id}`);
    });
}
