import { keepTable, keepTrace } from './evidence.ts';
import { MUTATIONS, type Mutation, type Violation } from './expected-mutations.ts';
import type { Invariant } from './invariants.ts';
import { type Job, type JobResult, runJobs } from './jobs.ts';

/** A violation that is not found within this many states counts as not found any more. */
const STATES_MAX = 1_000_000;
const PROCESSES = 2;

/** One search for some violations of a mutation; none: the mutation must keep every invariant there. */
interface Search extends Job {
  mutation: string;
  violations: readonly Violation[];
}

/** The searches of a mutation: one per environment that it names. */
function searchesOf({ name, off, expected, holdsIn = [] }: Mutation): Search[] {
  const byEnvironment = new Map<string, Violation[]>(holdsIn.map((environment) => [environment, []]));
  for (const [violation, environment] of Object.entries(expected) as [Violation, string][])
    byEnvironment.set(environment, [...(byEnvironment.get(environment) ?? []), violation]);
  return [...byEnvironment].map(([environment, violations]) => {
    const search = { mutation: name, environment, off, statesMax: STATES_MAX, violations };
    const wanted = violations.filter((violation) => violation !== 'LIVE' && violation !== 'SURFACE');
    return wanted.length === 0 ? search : { ...search, wanted: wanted satisfies Invariant[] };
  });
}

const only = process.argv[2];
const mutations = MUTATIONS.filter(({ name }) => only === undefined || name === only);
if (mutations.length === 0) throw new Error(`no mutation ${only}; they are in formal/expected-mutations.ts`);
const startedAt = performance.now();
const found = new Map<string, string[]>();
const problems: string[] = [];
let searches = 0;
let states = 0;
await runJobs(mutations.flatMap(searchesOf), PROCESSES, (search, result) => {
  searches += 1;
  states += result.states;
  found.set(search.mutation, [...(found.get(search.mutation) ?? []), ...judge(search, result)]);
});

/** What a search shows, in words; keeps the traces, and what is not as expected. */
function judge({ mutation, environment, violations }: Search, result: JobResult): string[] {
  const shown = violations.map((wanted) => {
    const hit = result.violations.find(({ violation }) => violation === wanted);
    if (hit === undefined) {
      problems.push(`${mutation}: ${wanted} is no longer found in ${environment}`);
      return `${wanted} NOT FOUND (${environment})`;
    }
    keepTrace(
      traceName(mutation, wanted),
      `Without ${mutation}: ${wanted} in ${environment}, ${hit.steps} steps. ${hit.about}`.trimEnd(),
      hit.trace,
    );
    return `${wanted}@${hit.steps} (${environment})`;
  });
  if (violations.length > 0) return shown;
  for (const { violation, steps } of result.violations)
    problems.push(`${mutation}: ${violation}@${steps} in ${environment}, where other rules held alone`);
  if (result.truncated) problems.push(`${mutation}: ${environment} is too large to say that other rules hold alone`);
  return [`none (${environment}): other rules hold alone`];
}

/** `no-<rule>.<violation>`, `without-<assumption>.<violation>`. */
function traceName(mutation: string, violation: Violation): string {
  return `${mutation.startsWith('without-') ? '' : 'no-'}${mutation}.${violation}`;
}

const lines = mutations.map(({ name }) => `${name.padEnd(46)} ${(found.get(name) ?? []).join('  ')}`);
for (const text of lines) console.log(text);
const seconds = Math.round((performance.now() - startedAt) / 1_000);
const sum = `${mutations.length} mutations, ${searches} searches, ${states} states, ${seconds} s: ${problems.length === 0 ? 'all as expected' : `${problems.length} NOT AS EXPECTED`}`;
console.log([...problems, sum].join('\n'));
if (only === undefined) keepTable('mutations', [...lines, ...problems, sum]);
process.exitCode = problems.length === 0 ? 0 : 1;
