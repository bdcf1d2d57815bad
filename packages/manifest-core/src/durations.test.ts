import { expect, test } from 'vitest';
import { backoffMs, durationFaults, PROFILES, retryReserveMs, settleMs } from './durations.ts';

test('both profiles hold their own inequalities', () => {
  expect(durationFaults(PROFILES.production, 'production')).toEqual([]);
  expect(durationFaults(PROFILES.fast, 'fast')).toEqual([]);
});

test('every inequality that fails is named, all at once', () => {
  const broken = {
    ...PROFILES.production,
    epsilon_ms: 20_000,
    approval_life_ms: 2 ** 40,
    sweep_interval_ms: 10,
    look_min_ms: 0,
  };
  const faults = durationFaults(broken, 'production');
  expect(faults.join('\n')).toMatch(/epsilon_ms \(20000\) must be below call_deadline_ms/);
  expect(faults.join('\n')).toMatch(/approval_life_ms .* must not exceed run_life_ms/);
  expect(faults.join('\n')).toMatch(/sweep_interval_ms/);
  expect(faults.join('\n')).toMatch(/look_min_ms must be a whole number/);
});

test('ε may come within a second of D in the fast profile only', () => {
  const close = { ...PROFILES.production, epsilon_ms: 19_500 };
  expect(durationFaults(close, 'fast')).toEqual([]);
  expect(durationFaults(close, 'production')).toHaveLength(1);
});

test('settle is Z + P + V + ε', () => {
  expect(settleMs(PROFILES.production, 0)).toBe(72_000);
  expect(settleMs(PROFILES.fast, 300)).toBe(2_000);
});

test('the reserve of a retry is D + Z + P + ε: that long it may still reach the target', () => {
  expect(retryReserveMs(PROFILES.production)).toBe(20_000 + 10_000 + 60_000 + 2_000);
  expect(retryReserveMs(PROFILES.fast)).toBe(2_000 + 500 + 1_000 + 200);
});

test('a back-off doubles from its least to its most', () => {
  expect([0, 1, 2, 10, 1_000].map((tries) => backoffMs(tries, 250, 4_000))).toEqual([250, 500, 1_000, 4_000, 4_000]);
});
