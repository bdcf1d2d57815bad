import { fork } from 'node:child_process';
import { once } from 'node:events';
import { checkSafety, type Trace } from './checker.ts';
import { type Question, Questions } from './conformance.ts';
import { BROKEN_ASSUMPTIONS, type Environment, LIVENESS, SAFETY, SMALL, SURFACING } from './environments.ts';
import type { Violation } from './expected-mutations.ts';
import { type Invariant, rests, surfaced } from './invariants.ts';
import { checkLiveness } from './liveness.ts';
import { protocolModel } from './model.ts';
import { protocolWithout, type RuleName } from './rules.ts';

/** One search: plain data, because another process does it. */
export interface Job {
  environment: string;
  off: readonly RuleName[];
  statesMax: number;
  /** Safety only: the violations at which the search ends. */
  wanted?: readonly Invariant[];
  /** Keep what the guards were asked. */
  collect?: boolean;
}

export interface JobResult {
  states: number;
  /** Of a safety search. */
  depth: number | null;
  seconds: number;
  truncated: boolean;
  questions: Question[];
  violations: { violation: Violation; steps: number; trace: Trace; about: string }[];
}

const ENVIRONMENTS: Readonly<Record<string, Environment>> = { ...SAFETY, ...BROKEN_ASSUMPTIONS, small: SMALL };

/** Runs a search in this process. The environment's name says whether it is about safety, liveness or surfacing. */
export function runJob({ environment, off, statesMax, wanted, collect = false }: Job): JobResult {
  const rules = protocolWithout(...off);
  const questions = new Questions();
  const safety = ENVIRONMENTS[environment];
  if (safety !== undefined) {
    const model = protocolModel({ rules, env: safety, ...(collect ? { onJudgement: questions.add } : {}) });
    const { violations, ...found } = checkSafety(model, wanted === undefined ? { statesMax } : { statesMax, wanted });
    return {
      ...found,
      questions: questions.all,
      violations: [...violations].map(([violation, { steps, trace }]) => ({ violation, steps, trace, about: '' })),
    };
  }
  const surfacing = SURFACING[environment];
  const env = surfacing ?? LIVENESS[environment];
  if (env === undefined) throw new Error(`no environment ${environment}`);
  const goal = surfacing === undefined ? rests : surfaced;
  const model = protocolModel({ rules, env, ...(collect ? { onJudgement: questions.add } : {}) });
  const { states, seconds, truncated, stuck } = checkLiveness(model, goal, { statesMax });
  const violation = surfacing === undefined ? 'LIVE' : 'SURFACE';
  return {
    states,
    depth: null,
    seconds,
    truncated,
    questions: questions.all,
    violations:
      stuck === null
        ? []
        : [
            {
              violation,
              steps: (stuck.trace.length - 1) / 2,
              trace: stuck.trace,
              about: `from there it may go round: ${stuck.round.join('; ') || 'nothing is possible'}`,
            },
          ],
  };
}

/** Runs jobs in `processes` child processes; `done` is called as each ends. */
export async function runJobs<J extends Job>(
  jobs: readonly J[],
  processes: number,
  done: (job: J, result: JobResult) => void,
): Promise<void> {
  let next = 0;
  const lane = async () => {
    for (let job = jobs[next++]; job !== undefined; job = jobs[next++]) done(job, await runInChild(job));
  };
  await Promise.all(Array.from({ length: processes }, lane));
}

/** A process of its own per search: it gives its memory back. */
async function runInChild(job: Job): Promise<JobResult> {
  const child = fork(new URL('./job-process.ts', import.meta.url), { stdio: ['ignore', 'inherit', 'inherit', 'ipc'] });
  child.send(job);
  const [result] = (await Promise.race([
    once(child, 'message'),
    once(child, 'exit').then(([code]) => {
      throw new Error(`the search in ${job.environment} ended without a result (${code})`);
    }),
  ])) as [JobResult];
  return result;
}
