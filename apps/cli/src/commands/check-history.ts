import type { Durations, Profile } from '@counterstamp/manifest-core';
import type { Command } from 'commander';
import { CliFailure, EXIT } from '../failure.ts';
import { printJson, printText } from '../output/print.ts';
import { ownerUrl } from '../owner-access.ts';

interface CheckHistoryOptions {
  /** `false`: without one, even where the local fleet has one. */
  ledger?: string | false;
  fleet: string;
  json?: true;
}

/** `counterstamp check-history`. */
export function addCheckHistory(program: Command): void {
  program
    .command('check-history')
    .description(
      'Judge what is recorded, and what arrived at the providers, by the protocol’s rules H1 to H12; tell the story of each run where one is broken.',
    )
    .argument('[run_id]', 'only this run and the other generations of its request')
    .option(
      '--ledger <url>',
      'base URL of the sandbox whose ledger is compared; else the local fleet’s, when DATABASE_URL is not set',
    )
    .option('--no-ledger', 'judge the database alone')
    .option('--fleet <dir>', 'state folder of the local fleet, when DATABASE_URL is not set', '.counterstamp')
    .option('--json', 'violations with their timelines as JSON')
    .addHelpText(
      'after',
      `
The fleet may be at work meanwhile. COUNTERSTAMP_PROFILE and COUNTERSTAMP_…_MS say how long after its deadline a request may arrive.

Exit code 0: nothing is violated (an alarm is no violation). 1: something is, or the run does not exist.

Examples:
  counterstamp check-history
  counterstamp check-history run_0191c0de-0000-7000-8000-000000000000 --no-ledger
  DATABASE_URL=postgres://owner:…@db/app counterstamp check-history --ledger http://127.0.0.1:8090`,
    )
    .action(async (id: string | undefined, options: CheckHistoryOptions) => {
      const { parseRunId } = await import('./run-id.ts');
      const only = id === undefined ? undefined : parseRunId(id);
      const url = await ownerUrl(options.fleet);
      const local = await localFleet(options.fleet);
      const ledgerUrl = options.ledger === undefined ? local.sandbox_url : options.ledger;
      if (
        typeof ledgerUrl === 'string' &&
        !/^https?:$/.test(URL.canParse(ledgerUrl) ? new URL(ledgerUrl).protocol : '')
      )
        throw new CliFailure(`"${ledgerUrl}" is no http(s) URL.`, 'Write it as http://host:8090.', EXIT.usage);
      const settle = await durationsOf(local.env);
      const [{ connect, readHistories }, { judgeFleet }, { readLedger }, { summaryText }, { printable }] =
        await Promise.all([
          import('@counterstamp/manifest-store'),
          import('@counterstamp/history-checker'),
          import('../check-history/read-ledger.ts'),
          import('../check-history/summary.ts'),
          import('../output/table.ts'),
        ]);
      const sql = connect(url, { max: 1, applicationName: 'counterstamp check-history' });
      try {
        const judgement = await judgeFleet({
          pages: readHistories(sql, only),
          readLedger: typeof ledgerUrl === 'string' ? async () => readLedger(ledgerUrl) : null,
          settle,
          partial: only !== undefined,
        });
        const { runs, ledger, violations, report } = judgement;
        const missing = only !== undefined && runs === 0;
        const ok = !missing && !violations.some(({ severity }) => severity === 'violation');
        if (!ok) process.exitCode = EXIT.refused;
        if (options.json) return printJson({ ok, runs, ledger: ledger !== null, violations, report });
        if (missing) return printText(`There is no run ${only}.`);
        for (const line of report) printText(printable(line));
        printText(summaryText(judgement));
      } finally {
        await sql.end({ timeout: 2 });
      }
    });
}

/** What the local fleet tells, when it is the one that is looked at; this process's own environment comes first. */
async function localFleet(dir: string): Promise<{ sandbox_url?: string; env: NodeJS.ProcessEnv }> {
  if (process.env.DATABASE_URL !== undefined && process.env.DATABASE_URL !== '') return { env: process.env };
  const { runningFleet, stateFolder } = await import('../up/state-folder.ts');
  const fleet = await runningFleet(stateFolder(dir));
  return {
    ...(fleet?.sandbox_url === undefined ? {} : { sandbox_url: fleet.sandbox_url }),
    env: { ...fleet?.services?.executor, ...process.env },
  };
}

/** Z and P as the services take them from the same variables. */
async function durationsOf(env: NodeJS.ProcessEnv): Promise<Durations> {
  const [{ parseDurations }, { PROFILES }] = await Promise.all([
    import('@counterstamp/stage-runtime'),
    import('@counterstamp/manifest-core'),
  ]);
  const profile = env.COUNTERSTAMP_PROFILE ?? '';
  const known = Object.keys(PROFILES).find((name): name is Profile => name === profile);
  if (known === undefined && profile !== '')
    throw new CliFailure(
      `COUNTERSTAMP_PROFILE must be ${Object.keys(PROFILES).join(' or ')}.`,
      undefined,
      EXIT.configuration,
    );
  const { durations, faults } = parseDurations(env, known ?? 'production');
  if (faults.length > 0) throw new CliFailure(`${faults.join('; ')}.`, undefined, EXIT.configuration);
  return durations;
}
