import { isClosed } from '@counterstamp/manifest-core';
import { expect, test } from 'vitest';
import { GROUPS } from './groups.ts';

const SCENARIOS = GROUPS.flatMap((group) => group.scenarios);
const RUNS = SCENARIOS.filter((one) => one.kind === 'run');

test('no two scenarios have one name', () => {
  expect(new Set(SCENARIOS.map((one) => one.name)).size).toBe(SCENARIOS.length);
});

test('every run ends in a stop: closed, or parked for a person', () => {
  for (const { expected } of RUNS) expect(isClosed(expected.state) || expected.parked === true).toBe(true);
});

test('no run may have more than one refund, nor more requests than the first and the one retry', () => {
  for (const { expected, steps = [] } of RUNS) {
    const by_hand = steps.filter((step) => step.kind === 'by_hand').length;
    expect(expected.refunds.length - by_hand).toBeLessThanOrEqual(1);
    expect(expected.requests).toBeLessThanOrEqual(2);
  }
});
