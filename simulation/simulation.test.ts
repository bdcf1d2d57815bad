import { readdirSync, readFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import { emptyTally, merge, runShare, unreached } from './campaign.ts';
import { PROVIDER_KINDS } from './provider.ts';
import { shrink } from './shrink.ts';
import { Simulation } from './simulation.ts';

const SEEDS = 300;
const CAMPAIGN_MS = 60_000;

describe('a seed', () => {
  test.each(PROVIDER_KINDS)('is one schedule, bit for bit, against the provider %s', async (provider) => {
    for (const seed of [3, 11, 42]) {
      const [first, second] = [
        await new Simulation({ seed, provider }).run(),
        await new Simulation({ seed, provider }).run(),
      ];
      expect(second.trace).toEqual(first.trace);
      expect(second.traceHash).toBe(first.traceHash);
      expect(second).toEqual(first);
    }
  });

  test('is another schedule than any other seed', async () => {
    const hashes = new Set<string>();
    for (let seed = 1; seed <= 20; seed++)
      hashes.add((await new Simulation({ seed, provider: 'key' }).run()).traceHash);
    expect(hashes.size).toBe(20);
  });

  test('of which every step was left out goes on in order, and completes', async () => {
    const shape = { runs: 1, begin: 'request' as const };
    const { outcomes, violation, wildSteps } = await new Simulation({
      seed: 5,
      provider: 'key',
      wild: new Set(),
      shape,
    }).run();
    expect({ violation, wildSteps, states: outcomes.map(({ state }) => state) }).toEqual({
      violation: null,
      wildSteps: 0,
      states: ['completed'],
    });
  });
});

describe('some hundred seeds', () => {
  test(
    'violate no invariant, and reach every place of the protocol',
    async () => {
      const tally = await runShare({ from: 1, count: SEEDS, stride: 1, provider: null });
      expect(tally.violations).toEqual([]);
      expect(tally.seeds).toBe(SEEDS);
      for (const name of [
        'kills',
        'pauses',
        'hints_dropped',
        'ambiguous_commits',
        'answers_lost',
        'leases_lost',
        'stale_swaps',
      ] as const)
        expect(tally.counts[name], name).toBeGreaterThan(0);
      expect(tally.retries).toBeGreaterThan(0);
      expect(unreached(tally)).toEqual([]);
      for (const kind of PROVIDER_KINDS) expect(tally.outcomes[kind].completed, kind).toBeGreaterThan(0);
    },
    CAMPAIGN_MS,
  );

  test('are the sum of their shares', async () => {
    const share = { from: 1, count: 3, provider: 'key' } as const;
    const whole = await runShare({ ...share, count: 6, stride: 1 });
    const halves = [await runShare({ ...share, stride: 2 }), await runShare({ ...share, from: 2, stride: 2 })];
    expect(merge([...halves, emptyTally()])).toEqual(whole);
  });
});

describe('a failing seed', () => {
  test('shrinks to fewer steps that break the same invariant, and repeats from them', async () => {
    let seed = 1;
    const options = { provider: 'strong', without: ['no-transport-retry'] } as const;
    let failed = await new Simulation({ seed, ...options }).run();
    while (failed.violation?.invariant !== 'I1' || failed.wildSteps < 20)
      failed = await new Simulation({ seed: ++seed, ...options }).run();
    const { wild, result } = await shrink({ seed, ...options }, failed);
    expect(result.violation?.invariant).toBe('I1');
    expect(wild.size).toBeLessThan(failed.wildSteps / 2);
    expect((await new Simulation({ seed, ...options, wild }).run()).traceHash).toBe(result.traceHash);
  });
});

test('nothing of the simulation reads an environment, a real clock or chance; the rule switches are constructor arguments alone', () => {
  const forbidden = /process\.env|Math\.random|Date\.now|setTimeout|setInterval|randomUUID|randomBytes/;
  const folder = new URL('.', import.meta.url);
  const files = readdirSync(folder).filter((name) => name.endsWith('.ts') && !name.endsWith('.test.ts'));
  expect(files.length).toBeGreaterThan(10);
  for (const name of files) expect(readFileSync(new URL(name, folder), 'utf8'), name).not.toMatch(forbidden);
  // The command offers no switch either.
  expect(readFileSync(new URL('main.ts', folder), 'utf8')).not.toMatch(/without/);
});

test('a seed is the same world whether its provider is named or drawn', async () => {
  const drawn = await new Simulation({ seed: 7 }).run();
  const named = await new Simulation({ seed: 7, provider: drawn.provider }).run();
  expect(named.traceHash).toBe(drawn.traceHash);
});
