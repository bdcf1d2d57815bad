import { fork } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { merge, type Share, type Tally } from './campaign.ts';
import { INVARIANTS } from './invariants.ts';
import { PROVIDER_KINDS, PROVIDER_MEANINGS, type ProviderKind } from './provider.ts';
import { printTally, renderEvidence } from './report.ts';
import { shrink } from './shrink.ts';
import { SEED_DECIDES, Simulation } from './simulation.ts';

const HELP = `npm run simulate -- [--seeds 2000] [--from 1] [--seed N] [--provider KIND] [--processes 2] [--evidence]

Runs the real workers in simulated worlds, one per seed, and checks the protocol's invariants after every step.
Ends with 1 when one is violated, and prints the seed, the schedule shrunk to what it takes, and its trace.

  --seeds N        how many seeds
  --from N         the first of them
  --seed N         this one alone, with its whole trace
  --provider KIND  only with this kind of target (default: the seed picks)
  --processes N    processes that share the seeds
  --evidence       writes docs/evidence/simulation.md

Providers
${PROVIDER_KINDS.map((kind) => `  ${kind.padEnd(10)} ${PROVIDER_MEANINGS[kind]}`).join('\n')}`;

/** Seeds whose violation is printed in full; more of them say the same. */
const SHOWN_MAX = 3;

const { values } = parseArgs({
  options: {
    seeds: { type: 'string', default: '2000' },
    from: { type: 'string', default: '1' },
    seed: { type: 'string' },
    provider: { type: 'string' },
    processes: { type: 'string', default: '2' },
    evidence: { type: 'boolean', default: false },
    help: { type: 'boolean', default: false },
  },
});
if (values.help) console.log(HELP);
else process.exitCode = await main();

async function main(): Promise<number> {
  const provider = providerOf(values.provider);
  if (values.seed !== undefined) return await replay(wholeNumber('--seed', values.seed), provider);
  const from = wholeNumber('--from', values.from);
  const seeds = wholeNumber('--seeds', values.seeds);
  const processes = Math.max(1, wholeNumber('--processes', values.processes));
  const started = performance.now();
  const shares = Array.from(
    { length: processes },
    (_, n): Share => ({ from: from + n, count: Math.ceil((seeds - n) / processes), stride: processes, provider }),
  );
  const tally = merge(await Promise.all(shares.map(runProcess)));
  const seconds = (performance.now() - started) / 1_000;
  console.log(printTally(tally, seconds));
  for (const { seed, provider: kind } of tally.violations.slice(0, SHOWN_MAX)) await explain(seed, kind);
  const broken = tally.violations.length;
  console.log(
    broken === 0
      ? '\nno invariant was violated'
      : `\n${broken} seeds violated an invariant: ${tally.violations.map(({ seed }) => seed).join(', ')}`,
  );
  if (values.evidence) {
    const file = fileURLToPath(new URL('../docs/evidence/simulation.md', import.meta.url));
    writeFileSync(
      file,
      renderEvidence(tally, { seconds, date: new Date().toISOString().slice(0, 10), node: process.version, from }),
    );
  }
  return broken === 0 ? 0 : 1;
}

/** A process of its own: it inherits how this one runs TypeScript, which a thread does not. */
function runProcess(share: Share): Promise<Tally> {
  return new Promise((resolve, reject) => {
    // Worlds are short-lived garbage: a larger nursery spares half of the collector's work.
    const execArgv = [...process.execArgv, '--max-semi-space-size=64'];
    const child = fork(fileURLToPath(new URL('./campaign-worker.ts', import.meta.url)), { execArgv });
    child.once('message', (tally) => resolve(tally as Tally));
    child.once('error', reject);
    child.once('exit', (code) => reject(new Error(`a process ended with ${code}`)));
    child.send(share);
  });
}

/** One seed with everything that happened in it. */
async function replay(seed: number, provider: ProviderKind | null): Promise<number> {
  const simulation = new Simulation({ seed, ...(provider === null ? {} : { provider }) });
  const result = await simulation.run();
  console.log(result.trace.join('\n'));
  console.log(`\nseed ${seed}, provider ${result.provider}, trace ${result.traceHash.slice(0, 16)}`);
  for (const { run, state, code, attempts } of result.outcomes)
    console.log(`${run}: ${state}${code === null ? '' : ` (${code})`}, ${attempts} attempts`);
  if (result.violation === null) return 0;
  await explain(seed, result.provider);
  return 1;
}

/** What a failing seed broke, and the shortest schedule that still does. */
async function explain(seed: number, provider: ProviderKind): Promise<void> {
  const options = { seed, provider };
  const failed = await new Simulation(options).run();
  if (failed.violation === null) return;
  const { wild, result, tries } = await shrink(options, failed);
  const { invariant, detail } = result.violation ?? failed.violation;
  console.log(`\nseed ${seed} (${provider}) violates ${invariant}, ${INVARIANTS[invariant]}: ${detail}`);
  console.log(
    `shrunk from ${failed.wildSteps} to ${wild.size} steps in which the seed decides (${tries} tries): ${[...wild].join(' ')}\n`,
  );
  // What went in order before says nothing.
  const from = result.trace.findIndex((line) => line.endsWith(SEED_DECIDES));
  console.log(result.trace.slice(Math.max(0, from)).join('\n'));
}

function wholeNumber(name: string, text: string): number {
  if (!/^\d{1,9}$/.test(text)) fail(`${name} must be a whole number, not ${JSON.stringify(text)}`);
  return Number(text);
}

function providerOf(text: string | undefined): ProviderKind | null {
  if (text === undefined) return null;
  return (
    PROVIDER_KINDS.find((kind) => kind === text) ??
    fail(`--provider must be one of ${PROVIDER_KINDS.join(', ')}, not ${JSON.stringify(text)}`)
  );
}

function fail(message: string): never {
  console.error(message);
  process.exit(2);
}
