import { expect, test } from 'vitest';
import { lastWords } from './last-words.ts';

const json = (level: string, more: object) => `${JSON.stringify({ level, message: 'something', ...more })}\n`;

test('a configuration report is repeated as it stands', () => {
  expect(lastWords('configuration:\n  - A: is required\n  - B: must be 0 or 1\n')).toBe(
    'configuration:\n  - A: is required\n  - B: must be 0 or 1',
  );
});

test('of a JSON log, the last error and its cause are told', () => {
  const log =
    json('error', { err: { message: 'first' } }) +
    json('fatal', { message: 'could not start', err: { message: 'EADDRINUSE' } }) +
    json('info', { message: 'bye' });
  expect(lastWords(log)).toBe('could not start: EADDRINUSE');
});

test('a process that said nothing of the kind has no last words', () => {
  expect(lastWords('')).toBe('');
  expect(lastWords(json('info', {}))).toBe('');
  expect(lastWords('{"half a line')).toBe('');
});
