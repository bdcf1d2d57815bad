/** Chance that a seed repeats. */
export interface Chance {
  readonly seed: number;
  /** Below `n`, from 0. */
  below(n: number): number;
  happens(probability: number): boolean;
  pick<T>(from: readonly [T, ...T[]]): T;
}

/** mulberry32: 32 bits of state, enough to choose faults by. */
export function chanceOf(seed: number): Chance {
  let state = seed >>> 0;
  const next = (): number => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = state;
    t = Math.imul(t ^ (t >>> 15), t | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 4_294_967_296;
  };
  const below = (n: number) => Math.floor(next() * n);
  return {
    seed,
    below,
    happens: (probability) => next() < probability,
    pick: (from) => from[below(from.length)] ?? from[0],
  };
}
