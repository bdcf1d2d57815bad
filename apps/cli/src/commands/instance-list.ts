import { type Command, Option } from 'commander';
import { type AccessOptions, openApi, withAccess } from '../api-access.ts';
import { printJson, printText } from '../output/print.ts';
import { wholeNumber } from './numbers.ts';

/** manifest-core's services; spelled out so that help loads nothing. Checked by type below. */
const SERVICES = ['api', 'preflight', 'executor', 'verifier', 'reconciler'] as const;

interface Options extends AccessOptions {
  service: (typeof SERVICES)[number];
  limit: number;
  json?: true;
}

/** `counterstamp instance list`. */
export function addInstanceList(instance: Command): void {
  withAccess(
    instance
      .command('list')
      .description(
        'Process lives, newest first: where each ran, its last sign of life, and whether it counts as fenced.',
      )
      .addOption(new Option('--service <name>', 'of which service').choices(SERVICES).default('executor'))
      .option('--limit <n>', 'how many, 1 to 1000', wholeNumber(1, 1_000), 50)
      .option('--json', 'the API’s answer as JSON'),
  )
    .addHelpText('after', '\nExamples:\n  counterstamp instance list\n  counterstamp instance list --service verifier')
    .action(async (options: Options) => {
      const [{ endOf, processOf }, { table }] = await Promise.all([
        import('../output/doubt-page.ts'),
        import('../output/table.ts'),
      ]);
      const { service, limit } = options;
      const { instances } = await (await openApi(options, 'operator')).listInstances({ service, limit });
      if (options.json) return printJson({ instances });
      if (instances.length === 0) return printText(`No ${service} has ever run here.`);
      printText(
        table(
          ['INSTANCE', 'PROCESS', 'STARTED', 'LAST HEARTBEAT', 'LEASE', 'OPEN ATTEMPTS', 'END', 'FENCED FROM'],
          instances.map((one) => [
            one.instance_id,
            processOf(one),
            one.started_at,
            one.beat_at,
            one.lease,
            String(one.open_attempts),
            endOf(one),
            one.fenced_from ?? '',
          ]),
        ),
      );
    });
}
