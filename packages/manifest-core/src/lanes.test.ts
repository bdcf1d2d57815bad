import fc from 'fast-check';
import { expect, test } from 'vitest';
import { laneOf } from './lanes.ts';

test.each([
  [0, 0],
  [1, 0],
  [16, 0],
  [17, 1],
  [64, 1],
  [65, 2],
  [256, 2],
  [257, 3],
  [1_024, 3],
  [1_025, 4],
  [10_000, 4],
] as const)('with %i runs of the tenant in line, a hint goes into lane %i', (inLine, lane) => {
  expect(laneOf(inLine)).toBe(lane);
});

test('whoever has more in line never comes into a lower lane', () => {
  fc.assert(
    fc.property(fc.nat(20_000), fc.nat(20_000), (one, other) => {
      expect(laneOf(Math.max(one, other))).toBeGreaterThanOrEqual(laneOf(Math.min(one, other)));
    }),
  );
});
