import { FAILPOINTS } from '@counterstamp/manifest-core';
import { PROVIDER_KINDS, type ProviderKind } from './provider.ts';
import { Simulation } from './simulation.ts';
import { COUNTED, type Counts } from './world.ts';

/** Which seeds a process runs. */
export interface Share {
  from: number;
  count: number;
  /** Every n-th seed from `from` on, so that shares end at about the same time. */
  stride: number;
  provider: ProviderKind | null;
}

/** What came of many seeds. */
export interface Tally {
  seeds: number;
  runs: number;
  counts: Counts;
  /** Runs by provider kind and how they ended: completed, failed, …, or parked. */
  outcomes: Record<ProviderKind, Record<string, number>>;
  failpoints: Record<string, number>;
  retries: number;
  violations: { seed: number; provider: ProviderKind; invariant: string; detail: string }[];
}

export function emptyTally(): Tally {
  return {
    seeds: 0,
    runs: 0,
    counts: Object.fromEntries(COUNTED.map((name) => [name, 0])) as Counts,
    outcomes: Object.fromEntries(PROVIDER_KINDS.map((kind) => [kind, {}])) as Tally['outcomes'],
    failpoints: {},
    retries: 0,
    violations: [],
  };
}

/** Runs a share of seeds, one after the other. */
export async function runShare(share: Share): Promise<Tally> {
  const tally = emptyTally();
  for (let n = 0; n < share.count; n++) {
    const seed = share.from + n * share.stride;
    const simulation = new Simulation({ seed, ...(share.provider === null ? {} : { provider: share.provider }) });
    const { provider, violation, outcomes, counts } = await simulation.run();
    tally.seeds += 1;
    for (const name of COUNTED) tally.counts[name] += counts[name];
    for (const [name, hits] of simulation.world.failpoints) add(tally.failpoints, name, hits);
    for (const { state, attempts } of outcomes) {
      tally.runs += 1;
      tally.retries += Math.max(0, attempts - 1);
      add(tally.outcomes[provider], state === 'needs_reconciliation' ? 'parked' : state, 1);
    }
    if (violation !== null) tally.violations.push({ seed, provider, ...violation });
  }
  return tally;
}

export function merge(tallies: readonly Tally[]): Tally {
  const sum = emptyTally();
  for (const tally of tallies) {
    sum.seeds += tally.seeds;
    sum.runs += tally.runs;
    sum.retries += tally.retries;
    for (const name of COUNTED) sum.counts[name] += tally.counts[name];
    for (const [name, hits] of Object.entries(tally.failpoints)) add(sum.failpoints, name, hits);
    for (const kind of PROVIDER_KINDS)
      for (const [state, runs] of Object.entries(tally.outcomes[kind])) add(sum.outcomes[kind], state, runs);
    sum.violations.push(...tally.violations);
  }
  sum.violations.sort((a, b) => a.seed - b.seed);
  return sum;
}

function add(to: Record<string, number>, name: string, amount: number): void {
  to[name] = (to[name] ?? 0) + amount;
}

/** Failpoints of the workers that no seed reached: a place of the protocol that these seeds say nothing about. */
export function unreached(tally: Tally): string[] {
  return FAILPOINTS.filter((name) => !OUTSIDE.has(name) && tally.failpoints[name] === undefined);
}

/** Places that are not the workers’: the api’s and people’s steps are steps of the world, and Postgres’ own inside has none here. */
const OUTSIDE: ReadonlySet<string> = new Set([
  'create.committed.before-hint',
  'decision.committed.before-hint',
  'person.read.before-commit',
  'dispatch.row-locked',
  'dispatch.commit-sent.before-ack',
]);
