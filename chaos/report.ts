import { execFileSync } from 'node:child_process';
import { cpus, release } from 'node:os';
import { FAILPOINTS, type FailpointName } from '@counterstamp/manifest-core';
import { quantile } from '../bench/measure.ts';
import type { Backend } from './backends.ts';
import type { CellResult } from './cells/run-cell.ts';
import { CODES } from './codes.ts';
import { KINDS, PROVIDER_KINDS } from './kinds.ts';
import { ACTIONS, MATRIX } from './matrix.ts';
import type { StormResult } from './storms.ts';
import { countsText } from './tally.ts';
import type { NetworkResult } from './tcp-faults.ts';

/** Everything that one backend was put through. */
export interface BackendReport {
  backend: Backend;
  cells: CellResult[];
  network: NetworkResult[];
  storms: (StormResult & { right_after_ms?: number })[];
  kills: number;
  fired: Map<FailpointName, number>;
}

/** Failpoints that never fired, and everything that was not as expected, as lines. */
export function wrongIn(report: BackendReport, { whole }: { whole: boolean }): string[] {
  const { backend, cells, network, storms, fired } = report;
  const named = [...cells, ...network, ...storms].flatMap(({ name, faults }) =>
    faults.map((fault) => `${backend}: ${name}: ${fault}`),
  );
  const never = whole ? FAILPOINTS.filter((name) => (fired.get(name) ?? 0) === 0) : [];
  return [...named, ...never.map((name) => `${backend}: the failpoint ${name} never fired`)];
}

/** Date, machine and versions, for a line of evidence. */
export function circumstances(): string {
  const redis = /v=([\d.]+)/.exec(execFileSync('redis-server', ['--version'], { encoding: 'utf8' }))?.[1] ?? '?';
  return `${new Date().toISOString().slice(0, 10)}; ${cpus().length} cores, Linux ${release()}, Node ${process.versions.node}, PostgreSQL 18 (fsync off, synchronous_commit on), Redis ${redis}; profile fast`;
}

/** Milliseconds from a kill to the run's next commit, and to its end where the effect was there already. */
export function recoveryTimes(cells: readonly CellResult[]): { moving: readonly number[]; right: readonly number[] } {
  const killed = cells.filter((cell) => cell.faults.length === 0 && / K( |$)/.test(cell.name));
  const sent = killed.filter((cell) =>
    /^dispatch\.(written\.before-response|response\.before-outcome) /.test(cell.name),
  );
  return {
    moving: killed.flatMap((cell) => cell.moving_again_ms ?? []),
    right: sent.filter((cell) => /key_with|without_key/.test(cell.name)).flatMap((cell) => cell.right_ms ?? []),
  };
}

export function recoveryText(cells: readonly CellResult[]): string {
  const { moving, right } = recoveryTimes(cells);
  const text = (ms: readonly number[]) =>
    ms.length === 0
      ? 'not measured'
      : `p95 ${Math.round(quantile(ms, 0.95))} ms, max ${Math.max(...ms)} ms (${ms.length} kills)`;
  return `from a killed worker to the run's next commit: ${text(moving)}; killed between send and answer with the effect there, until completed: ${text(right)}`;
}

/** docs/evidence/chaos.md. */
export function chaosEvidence(
  reports: readonly BackendReport[],
  run: { command: string; seed: number; minutes: number },
): string {
  const cells = reports.reduce((sum, report) => sum + report.cells.length, 0);
  const wrong = reports.flatMap((report) => wrongIn(report, { whole: true }));
  const mark = (point: string, action: string): string =>
    reports
      .map((report) => {
        const own = report.cells.filter((cell) => cell.name.startsWith(`${point} ${action}`));
        const bad = own.filter((cell) => cell.faults.length > 0).length;
        return own.length === 0 ? '–' : bad === 0 ? `${own.length}` : `${bad} of ${own.length} WRONG`;
      })
      .join(' / ');
  return `# Chaos

Written by \`${run.command}\` on ${circumstances()}. It took ${run.minutes} minutes.
${cells} cells, ${reports.reduce((sum, report) => sum + report.kills, 0)} kills, ${reports.reduce((sum, report) => sum + report.network.length, 0)} cut networks, ${reports.reduce((sum, report) => sum + report.storms.length, 0)} storms, seed ${run.seed}: **${wrong.length === 0 ? 'everything as expected, no effect twice' : `${wrong.length} findings`}**.

Real Postgres, Redis and processes, two of each service, and a sandbox with a ledger. K: SIGKILL at the point. Z: SIGSTOP until another worker settled
it, then SIGCONT. Q: the queue is wiped, Redis started anew. P: Postgres is restarted at once (SIGQUIT). D: the same hint once more, to a second worker.
After each cell the history checker reads the database and the provider's ledger. Codes are those of protocol.md section 5; the numbers are cells
as expected, ${reports.map((report) => report.backend).join(' / ')}.

| failpoint | ${ACTIONS.join(' | ')} | fired |
|---|${ACTIONS.map(() => '---|').join('')}---|
${MATRIX.map(
  (row) =>
    `| ${row.point} | ${ACTIONS.map((action) => `${row.codes[action]}: ${mark(row.point, action)}`).join(' | ')} | ${reports.map((report) => report.fired.get(row.point) ?? 0).join(' / ')} |`,
).join('\n')}

${Object.entries(CODES)
  .map(([code, meaning]) => `- **${code}**: ${meaning}.`)
  .join('\n')}

Kinds of provider, at the points of dispatch, retry, reconciling and verifying:

${PROVIDER_KINDS.map((kind) => `- ${kind}: ${KINDS[kind].what}.`).join('\n')}

## Recovery

${reports.map((report) => `- ${report.backend}: ${recoveryText(report.cells)}.`).join('\n')}

## The network between worker and provider

| fault | expected | ${reports.map((report) => report.backend).join(' | ')} |
|---|---|${reports.map(() => '---|').join('')}
${(reports[0]?.network ?? [])
  .map(
    ({ name, expected }) =>
      `| ${name} | ${expected} | ${reports.map((report) => (report.network.find((one) => one.name === name)?.faults.length === 0 ? 'as expected' : 'WRONG')).join(' | ')} |`,
  )
  .join('\n')}

## Storms

| storm | runs | blows | kills | effects | duplicates | lost | stuck | completed | parked | closed | late sends | |
|---|---|---|---|---|---|---|---|---|---|---|---|---|
${reports
  .flatMap((report) => report.storms)
  .map(
    ({ name, blows, kills, tally: t, faults, late_sends, right_after_ms }) =>
      `| ${name} | ${t.runs} | ${blows} | ${kills} | ${t.effects} | ${t.duplicates} | ${t.lost} | ${t.stuck.length} | ${t.completed} | ${countsText(t.parked)} | ${countsText(t.closed)} | ${late_sends} | ${faults.length === 0 ? 'as expected' : 'WRONG'}${right_after_ms === undefined ? '' : `; all right ${right_after_ms} ms after the kill`} |`,
  )
  .join('\n')}
${wrong.length === 0 ? '' : `\n## Findings\n\n${wrong.map((line) => `- ${line}`).join('\n')}\n`}`;
}
