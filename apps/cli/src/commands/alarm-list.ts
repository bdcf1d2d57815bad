import type { Command } from 'commander';
import { type AccessOptions, openApi, withAccess } from '../api-access.ts';
import { printJson, printText } from '../output/print.ts';
import { wholeNumber } from './numbers.ts';

/** Largest number of an alarm that the option takes: far more than a database ever counts to. */
const ALARM_MAX = 999_999_999;

interface Options extends AccessOptions {
  after?: number;
  limit: number;
  json?: true;
}

/** `counterstamp alarm list`. */
export function addAlarmList(alarm: Command): void {
  withAccess(
    alarm
      .command('list')
      .description('Signs of tampering, and broken glasses, newest first. Each needs somebody to look.')
      .option('--limit <n>', 'how many, 1 to 1000', wholeNumber(1, 1_000), 50)
      .option('--after <n>', 'go on after this one, with older ones', wholeNumber(1, ALARM_MAX))
      .option('--json', 'the API’s answer as JSON'),
  )
    .addHelpText(
      'after',
      '\ndocs/operations/alarms.md says what each means and what is safe to do.\n\nExample:\n  counterstamp alarm list',
    )
    .action(async (options: Options) => {
      const { table } = await import('../output/table.ts');
      const { limit, after } = options;
      const client = await openApi(options, 'operator');
      const answer = await client.listAlarms({ limit, ...(after === undefined ? {} : { after }) });
      if (options.json) return printJson(answer);
      if (answer.alarms.length === 0) return printText(`No ${after === undefined ? '' : 'older '}alarm.`);
      const rows = answer.alarms.map((one) => [
        String(one.alarm_id),
        one.at,
        one.code,
        one.run_id ?? '',
        one.principal_id ?? one.service,
        JSON.stringify(one.detail),
      ]);
      printText(table(['ALARM', 'AT', 'CODE', 'RUN', 'BY', 'DETAIL'], rows));
      if (answer.next_after !== null) printText(`Older ones: counterstamp alarm list --after ${answer.next_after}`);
    });
}
