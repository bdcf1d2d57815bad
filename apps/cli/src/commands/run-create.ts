import type { Command } from 'commander';
import { type AccessOptions, openApi, withAccess } from '../api-access.ts';
import { printJson, printText } from '../output/print.ts';
import { readInput } from '../read-input.ts';

/** `counterstamp run create`. */
export function addRunCreate(run: Command): void {
  withAccess(
    run
      .command('create')
      .description(
        'Ask for an action. The bytes of the file are sent as they are; repeating the same file answers with the same run.',
      )
      .requiredOption('--file <file>', 'the request as JSON; - reads standard input')
      .option('--json', 'the API’s answer as JSON'),
  )
    .addHelpText(
      'after',
      `
Examples:
  counterstamp run create --file .counterstamp/refund.json
  jq -n '{request_id:"case_7",input:{order_id:"order_7",requested_amount_minor:4200,currency:"USD",reason:"damaged"}}' \\
    | counterstamp run create --file -`,
    )
    .action(async (options: AccessOptions & { file: string; json?: true }) => {
      const bytes = await readInput(options.file, '--file', 'the request');
      const client = await openApi(options, 'requester');
      const created = await client.createRun(bytes);
      if (options.json) return printJson(created);
      const what = created.created ? 'created' : 'exists already, from the same request';
      printText(`${created.run_id}  ${created.state}, generation ${created.generation} (${what})`);
    });
}
