import { expect, test } from 'vitest';
import { rateLimitedReport } from './error-reports.ts';

function reporter() {
  const passed: [string, string, number][] = [];
  const clock = { ms: 0 };
  const report = rateLimitedReport((error, where, suppressed) => passed.push([error.message, where, suppressed]), {
    monotonicMs: () => clock.ms,
    wallMs: () => clock.ms,
    after: () => () => {},
  });
  return { passed, clock, report };
}

test('equal errors of one place are reported once per 10 s, with the number held back', () => {
  const { passed, clock, report } = reporter();
  for (clock.ms = 0; clock.ms <= 20_000; clock.ms += 100) report(new Error('gone'), 'redis.hints');
  expect(passed).toEqual([
    ['gone', 'redis.hints', 0],
    ['gone', 'redis.hints', 99],
    ['gone', 'redis.hints', 99],
  ]);
});

test('another place or another code is another report; a code outweighs a changing message', () => {
  const { passed, report } = reporter();
  report(new Error('gone'), 'redis.hints');
  report(new Error('gone'), 'redis.workers');
  report(Object.assign(new Error('job 1 is odd'), { code: 'odd' }), 'x');
  report(Object.assign(new Error('job 2 is odd'), { code: 'odd' }), 'x');
  report('a string', 'x');
  expect(passed.map(([message, where]) => `${where} ${message}`)).toEqual([
    'redis.hints gone',
    'redis.workers gone',
    'x job 1 is odd',
    'x a string',
  ]);
});

test('a reporter that throws stops nobody', () => {
  const report = rateLimitedReport(
    () => {
      throw new Error('the log is full');
    },
    { monotonicMs: () => 0, wallMs: () => 0, after: () => () => {} },
  );
  expect(() => report(new Error('gone'), 'redis.hints')).not.toThrow();
});
