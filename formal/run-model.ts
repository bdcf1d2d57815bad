import { LIVENESS, SAFETY, SURFACING } from './environments.ts';
import { keepQuestions, keepTable, keepTrace } from './evidence.ts';
import { type Job, type JobResult, runJobs } from './jobs.ts';

/** Beyond this a search gives up, and the command fails: the budgets of the environments are chosen so that none comes near. */
const STATES_MAX = 3_000_000;
const PROCESSES = 2;

const startedAt = performance.now();
// The long ones first, so that both processes end together.
const jobs: Job[] = [LIVENESS, SAFETY, SURFACING]
  .flatMap(Object.keys)
  .map((environment) => ({ environment, off: [], statesMax: STATES_MAX, collect: true }));
const results = new Map<string, JobResult>();
await runJobs(jobs, PROCESSES, ({ environment }, result) => {
  results.set(environment, result);
  console.log(line(environment, result));
});

let states = 0;
let failed = 0;
const lines: string[] = [];
for (const { environment } of jobs) {
  const result = results.get(environment);
  if (result === undefined) throw new Error(`no result of ${environment}`);
  lines.push(line(environment, result));
  states += result.states;
  if (result.truncated || result.violations.length > 0) failed += 1;
  for (const { violation, steps, trace, about } of result.violations)
    keepTrace(
      `protocol.${violation}`,
      `The protocol itself: ${violation} in ${environment}, ${steps} steps. ${about}`,
      trace,
    );
}
const seconds = Math.round((performance.now() - startedAt) / 1_000);
const sum = `${jobs.length} environments, ${states} states, ${seconds} s: ${failed === 0 ? 'all hold' : `${failed} FAILED`}`;
console.log(sum);
if (failed === 0) keepQuestions([...results.values()].flatMap((result) => result.questions));
keepTable('model', [...lines, sum]);
process.exitCode = failed === 0 ? 0 : 1;

function line(environment: string, { states, depth, seconds, truncated, violations }: JobResult): string {
  const verdict = violations.map(({ violation, steps }) => `VIOLATED ${violation}@${steps}`).join(' ');
  return `${environment.padEnd(28)} ${String(states).padStart(8)} states  depth ${String(depth ?? '–').padStart(3)}  ${seconds.toFixed(1).padStart(6)} s  ${truncated ? 'TRUNCATED ' : ''}${verdict || 'holds'}`;
}
