import { writeFile } from 'node:fs/promises';
import { setTimeout as delay } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import type { Service } from '@counterstamp/manifest-core';
import type { FaultInput } from '@counterstamp/sandbox';
import { type Chance, chanceOf } from './chance.ts';
import { BACKENDS, type Backend, type ChaosFleet, startChaosFleet } from './harness.ts';
import { checkHistories } from './histories.ts';
import { startLoad } from './load.ts';
import { circumstances } from './report.ts';
import { wrongIn } from './storms.ts';
import { countsText, type Tally, tally, untilAllSettled } from './tally.ts';

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
const CHOSEN: readonly Backend[] = BACKENDS.filter((backend) => values.backend === 'both' || values.backend === backend);
if (!(MINUTES > 0) || !(EVERY_MS > 0) || !Number.isSafeInteger(SEED) || CHOSEN.length === 0) {
  console.error('--minutes and --seed take numbers, --kill-every takes 2s or 500ms, --backend redis, postgres or both');
  process.exit(2);
}

/** Milliseconds for requests under way to be answered, and for every run to end, once nothing is hurt any more. */
const HEAL_MS = 120_000;
/** Share of runs whose provider misbehaves. */
const FAULTY = 0.35;

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
  try {
    const load = startLoad(chaos, { drivers: 3, pauseMs: 300, credits: 0.25, faults: someFaults, chance: chanceOf(SEED + 1) });
    const blows: Record<string, number> = {};
    const endsAt = performance.now() + MINUTES * 60_000;
    let told = performance.now();
    while (performance.now() < endsAt) {
      await delay(EVERY_MS);
      const blow = chance.pick(BLOWS);
      blows[blow.name] = (blows[blow.name] ?? 0) + 1;
      await blow.strike(chaos, chance);
      if (performance.now() - told > 30_000) {
        told = performance.now();
        console.log(`  ${Math.round((performance.now() - startedAt) / 1_000)} s: ${load.runs.length} runs, ${chaos.kills.count} kills`);
      }
    }
    load.stop();
    for (const { child } of chaos.fleet.processes) if (child.exitCode === null && child.signalCode === null) child.kill('SIGCONT');
    await Promise.all([chaos.provider.heal(), chaos.executorDb.heal()]);
    await chaos.refill();
    await Promise.race([load.done(), delay(HEAL_MS)]);
    await untilAllSettled(chaos, load.runs, HEAL_MS);
    const counts = await tally(chaos, load.runs);
    const faults = [...wrongIn(counts), ...chaos.crashes()];
    // A random SIGSTOP may break A1 (Z); what follows is judged by the other checks.
    faults.push(...(await checkHistories(chaos, { lateSend: 'may', overdue_ms: 15_000 })));
    if (counts.runs === 0 || counts.completed === 0) faults.push('nothing was carried on');
    return { backend, seconds: Math.round((performance.now() - startedAt) / 1_000), blows, kills: chaos.kills.count, tally: counts, faults };
  } finally {
    await chaos.stop();
  }
}

type Strike = (chaos: ChaosFleet, chance: Chance) => Promise<void>;
const VICTIMS: readonly [Service, ...Service[]] = ['executor', 'executor', 'reconciler', 'verifier', 'preflight', 'api'];

/** What happens to a fleet: more often to its executors. */
const BLOWS: readonly [{ name: string; strike: Strike }, ...{ name: string; strike: Strike }[]] = [
  { name: 'SIGKILL', strike: killOne },
  { name: 'SIGKILL', strike: killOne },
  { name: 'SIGKILL', strike: killOne },
  { name: 'SIGSTOP, later SIGCONT', strike: stopOne },
  { name: 'SIGSTOP, later SIGCONT', strike: stopOne },
  { name: 'queue wiped', strike: (chaos) => chaos.wipeQueue(false) },
  { name: 'queue wiped, Redis restarted', strike: (chaos) => chaos.wipeQueue() },
  {
    name: 'Postgres restarted',
    strike: async (chaos) => {
      await chaos.restartPostgres();
    },
  },
  {
    name: 'provider cut off for half a second',
    strike: async ({ provider }) => {
      await provider.cut();
      await delay(500);
      await provider.heal();
    },
  },
];

async function killOne(chaos: ChaosFleet, chance: Chance): Promise<void> {
  const service = chance.pick(VICTIMS);
  const [first, ...others] = chaos.living(service).filter((each) => each.port !== 0);
  if (first !== undefined) await chaos.kill(chance.pick([first, ...others]));
  // As a supervisor would; a database that is away just then lets it try again at the next blow.
  void chaos.refill().catch(() => undefined);
}

async function stopOne(chaos: ChaosFleet, chance: Chance): Promise<void> {
  const service = chance.pick(VICTIMS);
  const [first, ...others] = chaos.living(service);
  if (first === undefined) return;
  const { child } = chance.pick([first, ...others]);
  child.kill('SIGSTOP');
  setTimeout(() => child.kill('SIGCONT'), 500 + chance.below(7_500));
}

function someFaults(workflow: 'refund' | 'credit', chance: Chance): readonly FaultInput[] {
  if (!chance.happens(FAULTY)) return [];
  const both: readonly [FaultInput, ...FaultInput[]] = [
    { kind: 'cut_before_accept' },
    { kind: 'cut_before_accept', reset: true },
    { kind: 'cut_after_accept' },
    { kind: 'hang_after_accept', hold_ms: 3_000 },
    { kind: 'accept_late', delay_ms: 900 },
    { kind: 'error_after_accept', status: 500 },
    { kind: 'html_after_accept', status: 502 },
    { kind: 'truncated_after_accept' },
    { kind: 'reject', status: 503, code: 'unavailable', store: false },
  ];
  if (workflow === 'credit') return [chance.pick(both)];
  return [
    chance.pick([
      ...both,
      { kind: 'pending_then_succeeded', after_ms: 1_000 },
      { kind: 'pending_then_failed', after_ms: 1_000 },
      { kind: 'reject', status: 409, code: 'idempotency_key_in_use' },
    ]),
  ];
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
