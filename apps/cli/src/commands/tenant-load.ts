import type { Command } from 'commander';
import { printJson, printText } from '../output/print.ts';
import { asOwner, type OwnerOptions, withOwner } from '../owner-access.ts';
import { wholeNumber } from './numbers.ts';

const TOP_DEFAULT = 20;
const AGE = { secondsDecimalDigits: 0, unitCount: 2 } as const;

/** `counterstamp tenant load`. */
export function addTenantLoad(tenant: Command): void {
  withOwner(
    tenant
      .command('load')
      .description('The tenants with the most open runs: who stands behind the ranks that metrics and dashboards show.')
      .option('--top <n>', 'at most so many', wholeNumber(1, 1_000), TOP_DEFAULT),
  )
    .addHelpText('after', '\nExample:\n  counterstamp tenant load --top 5')
    .action(async (options: OwnerOptions & { top: number }) => {
      const [{ table }, { default: prettyMs }] = await Promise.all([import('../output/table.ts'), import('pretty-ms')]);
      const { tenants, rest } = await asOwner(options.fleet, 'tenant load', async (sql) => {
        const { census } = await import('@counterstamp/manifest-store');
        return await census(sql, { age_bounds_s: [], expiring_soon_s: 0, tenants_max: options.top });
      });
      if (options.json) return printJson({ tenants, rest });
      if (tenants.length === 0) return printText('No tenant has open runs.');
      printText(
        table(
          ['RANK', 'TENANT', 'OPEN RUNS', 'LONGEST WAIT FOR A WORKER'],
          tenants.map((one, index) => [
            String(index + 1),
            one.tenant_id,
            String(one.open_runs),
            one.oldest_machine_wait_ms === 0 ? 'none waits' : prettyMs(one.oldest_machine_wait_ms, AGE),
          ]),
        ),
      );
      if (rest.tenants > 0) printText(`${rest.tenants} more tenants, ${rest.open_runs} open runs.`);
    });
}
