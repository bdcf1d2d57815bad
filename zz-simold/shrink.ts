import { Simulation, type SimulationOptions, type SimulationResult } from './simulation.ts';

/** Simulations that shrinking may run. */
const TRIES_MAX = 500;

export interface Shrunk {
  /** The steps in which the seed still has to decide; in all others everything goes on in order. */
  wild: ReadonlySet<number>;
  result: SimulationResult;
  tries: number;
}

/**
 * Finds a smaller set of the steps in which the seed decides that still breaks the same invariant: delta debugging over the steps. Each step
 * has dice of its own, so that what one step did can be left out without changing what another step draws.
 */
export async function shrink(options: SimulationOptions, failed: SimulationResult): Promise<Shrunk> {
  const invariant = failed.violation?.invariant;
  let tries = 0;
  let best = failed;
  const stillFails = async (steps: readonly number[]): Promise<boolean> => {
    if (tries >= TRIES_MAX) return false;
    tries += 1;
    const result = await new Simulation({ ...options, wild: new Set(steps) }).run();
    if (result.violation?.invariant !== invariant) return false;
    best = result;
    return true;
  };
  let steps = Array.from({ length: failed.wildSteps }, (_, step) => step);
  for (let chunk = Math.ceil(steps.length / 2); chunk >= 1 && tries < TRIES_MAX; ) {
    let smaller = false;
    for (let at = 0; at < steps.length && tries < TRIES_MAX; ) {
      const without = [...steps.slice(0, at), ...steps.slice(at + chunk)];
      if (await stillFails(without)) {
        steps = without;
        smaller = true;
      } else at += chunk;
    }
    if (chunk === 1 && !smaller) break;
    chunk = chunk === 1 ? 1 : Math.ceil(chunk / 2);
  }
  return { wild: new Set(steps), result: best, tries };
}
