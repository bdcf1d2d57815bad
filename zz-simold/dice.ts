/**
 * Chance that repeats: the same seed and salt throw the same numbers on every machine. Each step of a simulation has dice of its own, so that
 * leaving out what one step did moves no other step's numbers.
 */
export class Dice {
  #state: number;

  constructor(seed: number, salt: number) {
    this.#state = mix(mix(seed | 0) ^ Math.imul(salt + 1, 0x9e3779b1));
  }

  /** 0 ≤ x < 1. */
  next(): number {
    this.#state = (this.#state + 0x6d2b79f5) | 0;
    return mix(this.#state) / 4_294_967_296;
  }

  /** 0 … below − 1. */
  int(below: number): number {
    return Math.floor(this.next() * below);
  }

  chance(probability: number): boolean {
    return this.next() < probability;
  }

  pick<T>(from: readonly T[]): T {
    const item = from[this.int(from.length)];
    if (item === undefined) throw new Error('nothing to pick from');
    return item;
  }
}

/** 0 … 2^32 − 1, every bit depending on every other (the finaliser of MurmurHash3). */
function mix(value: number): number {
  let h = value | 0;
  h = Math.imul(h ^ (h >>> 16), 0x85ebca6b);
  h = Math.imul(h ^ (h >>> 13), 0xc2b2ae35);
  return (h ^ (h >>> 16)) >>> 0;
}
