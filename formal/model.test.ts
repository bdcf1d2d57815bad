import { describe, expect, test } from 'vitest';
import { MUTATIONS, type Violation } from './expected-mutations.ts';
import { type JobResult, runJob } from './jobs.ts';

/** Far above what these searches need. */
const STATES_MAX = 60_000;

function searchFor(name: string, environment: string): JobResult {
  const mutation = MUTATIONS.find((candidate) => candidate.name === name);
  if (mutation === undefined) throw new Error(`no mutation ${name}`);
  const wanted = Object.entries(mutation.expected).flatMap(([violation, where]) =>
    where === environment && violation !== 'LIVE' && violation !== 'SURFACE'
      ? [violation as Exclude<Violation, 'LIVE' | 'SURFACE'>]
      : [],
  );
  return runJob({ environment, off: mutation.off, statesMax: STATES_MAX, wanted });
}

describe('the model of the protocol', () => {
  test.each(['small', 'ii-pause-unbounded', 'iii-retry-safe-without-key'])(
    'keeps every invariant in all states of the environment %s',
    (environment) => {
      const result = runJob({ environment, off: [], statesMax: STATES_MAX });
      expect(result.violations).toEqual([]);
      expect(result.truncated).toBe(false);
      expect(result.states).toBeGreaterThan(2_000);
    },
  );

  test.each([
    ['foreign-attempt-never-sends', 'ii-strong-lookup', ['I1', 'I8']],
    ['digest-in-commit', 'vi-control-plane', ['I2']],
    ['frozen-bytes', 'vi-control-plane', ['I3']],
    ['timeout-is-uncertain', 'ii-network-unbounded', ['I8']],
    ['full-compare', 'v-partial', ['I4']],
    ['early-sweep-proves-nothing', 'ii-strong-lookup', ['I1', 'I8']],
    ['resource-free-in-commit', 'vii-two-runs', ['I10']],
    ['hold-in-commit', 'vii-two-runs-hold', ['I11']],
    ['person-absent-needs-fence', 'ii-pause-unbounded-fenced', ['I8']],
  ])('without %s it finds in %s how %j breaks', (name, environment, violated) => {
    const { violations } = searchFor(name, environment);
    expect(violations.map(({ violation }) => violation).sort()).toEqual(violated);
    for (const { steps, trace } of violations) expect(trace).toHaveLength(2 * steps + 1);
  });

  test('finds an effect behind a failed run that never comes to light without the closure audit', () => {
    const audited = runJob({ environment: 'surface-reversal', off: [], statesMax: STATES_MAX });
    const unaudited = runJob({ environment: 'surface-reversal', off: ['reversal-audit'], statesMax: STATES_MAX });
    expect(audited.violations).toEqual([]);
    expect(unaudited.violations).toMatchObject([{ violation: 'SURFACE' }]);
  });
});
