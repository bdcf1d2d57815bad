import { INVARIANTS, type Invariant } from './invariants.ts';
import type { Model, Move } from './model.ts';
import { showWorld, type World, worldKey } from './state.ts';

/** A way from the first state to the bad one: a label and the state after it, alternating. */
export type Trace = string[];

export interface SafetyResult {
  states: number;
  transitions: number;
  /** Length of the longest shortest path. */
  depth: number;
  seconds: number;
  /** The limit was reached: nothing is known about the rest. */
  truncated: boolean;
  /** The shortest counterexample of each violated invariant. */
  violations: Map<Invariant, { steps: number; trace: Trace }>;
}

export interface SafetyOptions {
  statesMax: number;
  /** Look for these only, and stop as soon as all are found. Without: every invariant, and no state beyond a violation. */
  wanted?: readonly Invariant[];
}

/** The states of a search, by number, with the choice that led to each: enough to walk every trace again. */
export class Paths {
  readonly #model: Model;
  readonly #parents = new Numbers();
  readonly #choices = new Numbers();
  size = 1;

  constructor(model: Model) {
    this.#model = model;
  }

  add(parent: number, choice: number): number {
    this.#parents.set(this.size, parent);
    this.#choices.set(this.size, choice);
    return this.size++;
  }

  /** The shortest way to a state, and the state. */
  walk(to: number): { trace: Trace; world: World } {
    const choices: number[] = [];
    for (let id = to; id > 0; id = this.#parents.get(id)) choices.push(this.#choices.get(id));
    let world = this.#model.initial;
    const trace = [`     ${showWorld(world)}`];
    for (const choice of choices.reverse()) {
      const [label, next] = this.#model.moves(world)[choice] as Move;
      trace.push(label, `     ${showWorld(next)}`);
      world = next;
    }
    return { trace, world };
  }
}

/** A growing array of numbers, in blocks. */
class Numbers {
  static readonly #bits = 18;
  readonly #blocks: Int32Array[] = [];

  set(i: number, value: number): void {
    const block = i >> Numbers.#bits;
    this.#blocks[block] ??= new Int32Array(1 << Numbers.#bits);
    (this.#blocks[block] as Int32Array)[i & ((1 << Numbers.#bits) - 1)] = value;
  }

  get(i: number): number {
    return this.#blocks[i >> Numbers.#bits]?.[i & ((1 << Numbers.#bits) - 1)] ?? -1;
  }
}

/** Visits every reachable state in breadth, so that the first counterexample of an invariant is a shortest one. */
export function checkSafety(model: Model, options: SafetyOptions): SafetyResult {
  const startedAt = performance.now();
  const { statesMax, wanted } = options;
  const watched = INVARIANTS.filter(({ id }) => wanted === undefined || wanted.includes(id));
  const seen = new Set([worldKey(model.initial, true)]);
  const paths = new Paths(model);
  const violations: SafetyResult['violations'] = new Map();
  let frontier: [number, World][] = [[0, model.initial]];
  let transitions = 0;
  let depth = 0;
  let truncated = false;
  search: while (frontier.length > 0) {
    const next: [number, World][] = [];
    for (const [from, world] of frontier) {
      const moves = model.moves(world);
      transitions += moves.length;
      for (const [choice, [, reached]] of moves.entries()) {
        const key = worldKey(reached, true);
        if (seen.has(key)) continue;
        seen.add(key);
        const id = paths.add(from, choice);
        let sound = true;
        for (const invariant of watched) {
          if (invariant.holds(reached)) continue;
          sound = false;
          if (!violations.has(invariant.id))
            violations.set(invariant.id, { steps: depth + 1, trace: paths.walk(id).trace });
        }
        if (sound || wanted !== undefined) next.push([id, reached]);
        if (wanted !== undefined && wanted.length > 0 && violations.size === wanted.length) break search;
        if (paths.size >= statesMax) {
          truncated = true;
          break search;
        }
      }
    }
    frontier = next;
    depth += 1;
  }
  return {
    states: paths.size,
    transitions,
    depth,
    seconds: (performance.now() - startedAt) / 1_000,
    truncated,
    violations,
  };
}
