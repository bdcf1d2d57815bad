import { CliFailure, EXIT } from '../failure.ts';
import { readDemoKeys, runningFleet, stateFolder } from '../up/state-folder.ts';
import { GROUPS } from './groups.ts';
import { play, type Verdict } from './play.ts';
import { createTools } from './tools.ts';

/**
 * Plays every scenario against the fleet of a state folder, all at the same time, and tells them in order.
 * @returns the exit code: 0 when everything was as expected.
 * @throws {CliFailure} when no fleet runs there, or its waits are too long for the tour.
 */
export async function runTour(state: string, output: { json: boolean }): Promise<number> {
  const folder = stateFolder(state);
  const fleet = await runningFleet(folder);
  const { api_url, sandbox_url, profile } = fleet ?? {};
  if (api_url === undefined || sandbox_url === undefined) {
    throw new CliFailure(
      `No fleet runs on ${folder.dir}.`,
      'Start one with `counterstamp up`, or name its folder with --fleet DIR.',
    );
  }
  if (profile !== 'fast') {
    throw new CliFailure(`The tour needs the waits of COUNTERSTAMP_PROFILE=fast; this fleet runs with ${profile}.`);
  }
  const tools = createTools({ api_url, sandbox_url }, await readDemoKeys(folder));
  const startedAt = performance.now();
  const write = (line: string) => {
    if (!output.json) process.stdout.write(`${line}\n`);
  };
  const playing = GROUPS.map(({ title, scenarios }) => ({ title, verdicts: scenarios.map((one) => play(one, tools)) }));
  const all: Verdict[] = [];
  for (const { title, verdicts } of playing) {
    write(`\n${title}`);
    for (const one of verdicts) {
      const verdict = await one;
      all.push(verdict);
      for (const line of verdictLines(verdict)) write(line);
    }
  }
  const wrong = all.filter((verdict) => !verdict.ok).length;
  const seconds = ((performance.now() - startedAt) / 1_000).toFixed(1);
  write(
    wrong === 0
      ? `\nTour: all ${all.length} as expected, in ${seconds} s`
      : `\nTour: ${wrong} of ${all.length} differ from what is expected, after ${seconds} s`,
  );
  if (output.json) process.stdout.write(`${JSON.stringify({ ok: wrong === 0, scenarios: all }, null, 2)}\n`);
  return wrong === 0 ? EXIT.ok : EXIT.refused;
}

/** One line when all is well; what differs, the run and its events when not. */
function verdictLines(verdict: Verdict): string[] {
  const { name, ok, expected, seen, run_id, trail = [] } = verdict;
  const line = `${ok ? '✓' : '✗'} ${name} — expected ${expected}; seen ${seen}`;
  if (ok) return [line];
  return [
    line,
    ...verdict.differences.map((difference) => `    differs: ${difference}`),
    ...(run_id === undefined ? [] : [`    run ${run_id}`]),
    ...trail.map((event) => `    ${event}`),
  ];
}
