import { expect, test } from 'vitest';
import { afterEnd } from './restart-policy.ts';

test('a process that ended by itself is started again, later each time', () => {
  const waits = [0, 1, 2, 3, 4].map((ends) =>
    afterEnd(
      1,
      Array.from({ length: ends }, () => 1_000),
      2_000,
    ),
  );
  expect(waits.map((next) => (next.kind === 'restart' ? next.in_ms : next.why))).toEqual([
    500, 1_000, 2_000, 4_000, 8_000,
  ]);
});

test('ends that are long past do not count', () => {
  expect(afterEnd(null, [0, 0, 0, 0, 0, 0], 120_000)).toEqual({ kind: 'restart', in_ms: 500 });
});

test('too many ends in a short time: left alone', () => {
  expect(afterEnd(1, [1, 2, 3, 4, 5], 6)).toEqual({ kind: 'leave', why: 'too_often' });
});

test('a wrong configuration is never tried again', () => {
  expect(afterEnd(78, [], 0)).toEqual({ kind: 'leave', why: 'configuration' });
});
