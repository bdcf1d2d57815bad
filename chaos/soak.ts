import { writeFile } from 'node:fs/promises';
import { setTimeout as delay } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { BACKENDS, type Backend } from './backends.ts';
import { BLOWS, someFaults } from './blows.ts';
import { chanceOf } from './chance.ts';
import { startChaosFleet } from './harness.ts';
import { checkHistories } from './histories.ts';
import { type Load, startLoad } from './load.ts';
import { circumstances } from './report.ts';
import { wrongIn } from './storms.ts';
import { allRuns, countsText, type Tally, tally, untilAllSettled } from './tally.ts';

const { values } = parseArgs({
  options: {
    minutes: { type: 'string', default: '10' },
    'kill-every': { type: 'string', default: '2s' },
    backend: { type: 'string', default: 'both' },
    seed: { type: 'string' },
    evidence: { type: 'boolean', default: false },
    help: { type: 'boolean', default: false },
  },
});
if (values.help) {
  console.log(`npm run soak -- --minutes N --kill-every 2s [--backend redis|postgres|both] [--seed N] [--evidence]

Constant load of refunds and credits with random faults at the providers, and every so often a random blow: SIGKILL, SIGSTOP and later SIGCONT,
a wiped queue, a restarted Postgres, a cut network. Then everything heals, and what was recorded is checked against the providers' ledger.
Ends with 1 when an effect is doubled or lost, a run is stuck, a process ended by a bug, or the history checker finds anything.
--evidence writes docs/evidence/soak.md.`);
  process.exit(0);
}

const MINUTES = Number(values.minutes);
const EVERY_MS = everyMs(values['kill-every']);
const SEED = values.seed === undefined ? Math.floor(Math.random() * 2 ** 31) : Number(values.seed);
const CHOSEN: readonly Backend[] = BACKENDS.filter(
  (backend) => values.backend === 'both' || values.backend === backend,
);
if (!(MINUTES > 0) || !(EVERY_MS > 0) || !Number.isSafeInteger(SEED) || CHOSEN.length === 0) {
  console.error('--minutes and --seed take numbers, --kill-every takes 2s or 500ms, --backend redis, postgres or both');
  process.exit(2);
}

/** Milliseconds for requests under way to be answered, and for every run to end, once nothing is hurt any more. */
const HEAL_MS = 120_000;
/** Share of blows that may miss. */
const MISSED_MAX = 0.1;

interface SoakResult {
  backend: Backend;
  seconds: number;
  blows: Record<string, number>;
  kills: number;
  tally: Tally;
  faults: string[];
}

const results: SoakResult[] = [];
for (const backend of CHOSEN) {
  console.log(`soak on ${backend}: ${MINUTES} min, a blow every ${EVERY_MS} ms, seed ${SEED}`);
  const result = await soak(backend);
  results.push(result);
  for (const line of summary(result)) console.log(`  ${line}`);
}
if (values.evidence) await writeFile('docs/evidence/soak.md', evidence(results));
process.exit(results.every((result) => result.faults.length === 0) ? 0 : 1);

async function soak(backend: Backend): Promise<SoakResult> {
  const startedAt = performance.now();
  const chance = chanceOf(SEED);
  const chaos = await startChaosFleet({ backend });
  let load: Load | undefined;
  try {
    load = startLoad(chaos, {
      drivers: 3,
      pauseMs: 300,
      credits: 0.25,
      faults: someFaults,
      chance: chanceOf(SEED + 1),
    });
    const blows: Record<string, number> = {};
    const endsAt = performance.now() + MINUTES * 60_000;
    let told = performance.now();
    let missed = 0;
    while (performance.now() < endsAt) {
      await delay(EVERY_MS);
      const blow = chance.pick(BLOWS);
      blows[blow.name] = (blows[blow.name] ?? 0) + 1;
      // A blow may miss a fleet that still staggers from the last one.
      await blow.strike(chaos, chance).catch((error: unknown) => {
        missed += 1;
        console.log(`  ${blow.name} missed: ${error instanceof Error ? error.message : String(error)}`);
      });
      if (performance.now() - told > 30_000) {
        told = performance.now();
        console.log(
          `  ${Math.round((performance.now() - startedAt) / 1_000)} s: ${load.runs.length} runs, ${chaos.kills.count} kills`,
        );
      }
    }
    load.stop();
    for (const { child } of chaos.fleet.processes)
      if (child.exitCode === null && child.signalCode === null) child.kill('SIGCONT');
    await Promise.all([chaos.provider.heal(), chaos.executorDb.heal()]);
    await chaos.refill();
    await Promise.race([load.done(), delay(HEAL_MS)]);
    const runs = await allRuns(chaos);
    await untilAllSettled(chaos, runs, HEAL_MS);
    const counts = await tally(chaos, runs);
    const faults = [...wrongIn(counts), ...chaos.crashes()];
    if (load.unanswered() > 0) faults.push(`${load.unanswered()} requests were never answered`);
    // A random SIGSTOP may break A1 (Z); what follows is judged by the other checks.
    faults.push(...(await checkHistories(chaos, { lateSend: 'may', overdue_ms: 15_000 })));
    if (missed > MISSED_MAX * Object.values(blows).reduce((sum, n) => sum + n, 0))
      faults.push(`${missed} blows missed`);
    if (counts.runs === 0 || counts.completed < counts.runs / 2)
      faults.push(`only ${counts.completed} of ${counts.runs} completed`);
    return {
      backend,
      seconds: Math.round((performance.now() - startedAt) / 1_000),
      blows,
      kills: chaos.kills.count,
      tally: counts,
      faults,
    };
  } finally {
    await load?.abandon();
    await chaos.stop();
  }
}

function summary({ seconds, blows, kills, tally: counts, faults }: SoakResult): string[] {
  return [
    `${counts.runs} runs in ${seconds} s, ${kills} kills; blows: ${countsText(blows)}`,
    `effects ${counts.effects}, duplicates ${counts.duplicates}, lost ${counts.lost}, stuck ${counts.stuck.length}`,
    `completed ${counts.completed}; parked: ${countsText(counts.parked)}; closed: ${countsText(counts.closed)}`,
    ...(faults.length === 0 ? ['history checker: nothing'] : faults.slice(0, 40).map((fault) => `WRONG ${fault}`)),
  ];
}

function evidence(all: readonly SoakResult[]): string {
  return `# Soak

Written by \`npm run soak -- --minutes ${MINUTES} --kill-every ${EVERY_MS}ms --backend ${values.backend} --seed ${SEED} --evidence\` on ${circumstances()}.
Constant load of refunds and credits, every third run with a fault at its provider, and a blow every ${EVERY_MS} ms; then everything healed and was checked.

| queue | runs | kills | blows | effects | duplicates | lost | stuck | completed | parked, with reason | closed, with reason | history checker |
|---|---|---|---|---|---|---|---|---|---|---|---|
${all
  .map(
    ({ backend, blows, kills, tally: t, faults }) =>
      `| ${backend} | ${t.runs} | ${kills} | ${countsText(blows)} | ${t.effects} | ${t.duplicates} | ${t.lost} | ${t.stuck.length} | ${t.completed} | ${countsText(t.parked)} | ${countsText(t.closed)} | ${faults.length === 0 ? 'nothing' : `${faults.length} findings`} |`,
  )
  .join('\n')}
`;
}

function everyMs(text: string): number {
  const match = /^(\d+)(ms|s)$/.exec(text);
  return match === null ? Number.NaN : Number(match[1]) * (match[2] === 's' ? 1_000 : 1);
}
