import { writeFile } from 'node:fs/promises';
import { parseArgs } from 'node:util';
import { BACKENDS, type Backend } from './backends.ts';
import { runCell } from './cells/run-cell.ts';
import { type ChaosFleet, startChaosFleet } from './harness.ts';
import { allCells, cellName, quickCells } from './matrix.ts';
import { type BackendReport, chaosEvidence, recoveryText, wrongIn } from './report.ts';
import { killAllInFlight, storms, weather } from './storms.ts';
import { networkCells, runNetworkCell } from './tcp-faults.ts';

const PARTS = ['matrix', 'network', 'storms', 'in-flight'] as const;

const { values } = parseArgs({
  options: {
    only: { type: 'string' },
    backend: { type: 'string', default: 'both' },
    part: { type: 'string', default: PARTS.join(',') },
    quick: { type: 'boolean', default: false },
    seed: { type: 'string', default: '1' },
    report: { type: 'string' },
    help: { type: 'boolean', default: false },
  },
});
if (values.help) {
  console.log(`npm run chaos -- [--only TEXT] [--backend redis|postgres|both] [--part ${PARTS.join(',')}] [--quick] [--seed N] [--report FILE]

Kills, stops, wipes, restarts and doubles at every named place of the protocol, cuts the network, and lets storms loose, on a fleet of real processes
with its own Postgres and Redis; protocol.md section 5 says what must come of each. Both backends side by side.
--only TEXT  cells and faults whose name contains the text, e.g. "dispatch.written" or "dispatch.written.before-response K key"
--quick      a representative part, small storms
--report     writes the evidence there; without --only and --quick it goes to docs/evidence/chaos.md
Ends with 1 when anything is not as expected, or, in a whole run, when a failpoint never fired.`);
  process.exit(0);
}

const chosen: readonly Backend[] = BACKENDS.filter(
  (backend) => values.backend === 'both' || values.backend === backend,
);
const parts = new Set(values.part.split(','));
const seed = Number(values.seed);
if (
  chosen.length === 0 ||
  !Number.isSafeInteger(seed) ||
  [...parts].some((part) => !(PARTS as readonly string[]).includes(part))
) {
  console.error('see npm run chaos -- --help');
  process.exit(2);
}
const whole = values.only === undefined && PARTS.every((part) => parts.has(part));
const startedAt = performance.now();
const isChosen = (name: string) => values.only === undefined || name.includes(values.only);

const reports = await Promise.all(chosen.map((backend) => everything(backend)));
const minutes = Math.ceil((performance.now() - startedAt) / 60_000);
const wrong = reports.flatMap((report) => wrongIn(report, { whole }));
for (const report of reports) console.log(`${report.backend}: ${report.kills} kills; ${recoveryText(report.cells)}`);
for (const line of wrong) console.log(`WRONG ${line}`);
const done = reports.reduce(
  (sum, { cells, network, storms: blown }) => sum + cells.length + network.length + blown.length,
  0,
);
console.log(`${done} done in ${minutes} min, ${wrong.length} findings`);
const file = values.report ?? (whole && !values.quick ? 'docs/evidence/chaos.md' : undefined);
const command = `npm run chaos -- --backend ${values.backend} --seed ${seed}${values.quick ? ' --quick' : ''}`;
if (file !== undefined) await writeFile(file, chaosEvidence(reports, { command, seed, minutes }));
process.exit(wrong.length === 0 && done > 0 ? 0 : 1);

async function everything(backend: Backend): Promise<BackendReport> {
  const report: BackendReport = { backend, cells: [], network: [], storms: [], kills: 0, fired: new Map() };
  const say = (result: { name: string; faults: readonly string[]; ms: number; right_after_ms?: number }) => {
    const right = result.right_after_ms === undefined ? '' : `, right after ${result.right_after_ms} ms`;
    const mark = result.faults.length === 0 ? 'ok   ' : 'WRONG';
    console.log(
      `${mark} ${backend.padEnd(8)} ${result.name} (${(result.ms / 1_000).toFixed(1)} s${right})${result.faults.map((fault) => `\n        ${fault}`).join('')}`,
    );
  };
  const on = async (
    options: { names?: boolean; env?: Record<string, string> },
    act: (chaos: ChaosFleet) => Promise<void>,
  ) => {
    const chaos = await startChaosFleet({ backend, ...options });
    try {
      await act(chaos);
    } finally {
      report.kills += chaos.kills.count;
      for (const [point, times] of chaos.points.fired())
        report.fired.set(point, (report.fired.get(point) ?? 0) + times);
      await chaos.stop();
    }
  };

  const cells = (values.quick ? quickCells(backend) : allCells()).filter((cell) => isChosen(cellName(cell)));
  if (parts.has('matrix') && cells.length > 0)
    await on({}, async (chaos) => {
      for (const cell of cells) {
        const result = await runCell(chaos, cell);
        report.cells.push(result);
        say(result);
      }
    });

  const network = networkCells().filter(({ what, kind }) => isChosen(`${what}, ${kind}`));
  if (parts.has('network') && network.length > 0)
    await on({ names: true }, async (chaos) => {
      for (const cell of network) {
        const result = await runNetworkCell(chaos, cell);
        report.network.push(result);
        say(result);
      }
    });

  if (parts.has('storms'))
    for (const storm of storms({ scale: values.quick ? 0.1 : 1 }).filter(
      ({ name, backends }) => isChosen(name) && backends.includes(backend),
    ))
      await on(storm.options ?? {}, async (chaos) => {
        const result = await weather(chaos, storm, seed);
        report.storms.push(result);
        say(result);
      });

  if (parts.has('in-flight') && isChosen('in flight'))
    for (const randomKeys of [false, true]) {
      const result = await killAllInFlight(backend, { runs: 30, randomKeys });
      report.storms.push(result);
      report.kills += result.kills;
      say(result);
    }
  return report;
}
