import { expect, test } from 'vitest';
import { CliFailure } from '../failure.ts';
import { parseUpConfig } from './config.ts';

test('an empty environment is a local fleet with short waits', () => {
  expect(parseUpConfig({ DATABASE_URL: '' })).toEqual({
    database_url: undefined,
    redis_url: undefined,
    secret: undefined,
    role_prefix: 'cs_',
    queue_prefix: undefined,
    profile: 'fast',
  });
});

test('every problem is named at once, with exit code 78 and without any value', () => {
  const wrong = {
    DATABASE_URL: 'mysql://root:pw@db',
    REDIS_URL: 'cache:6379',
    COUNTERSTAMP_SECRET: 'short',
    COUNTERSTAMP_ROLE_PREFIX: 'Äh;',
    COUNTERSTAMP_QUEUE_PREFIX: 'a b',
    COUNTERSTAMP_PROFILE: 'quick',
  };
  const told = (() => {
    try {
      return parseUpConfig(wrong);
    } catch (error) {
      return error;
    }
  })();
  expect(told).toBeInstanceOf(CliFailure);
  expect(told).toMatchObject({ exit: 78 });
  for (const name of Object.keys(wrong)) expect(String(told)).toContain(name);
  expect(String(told)).not.toContain('pw@');
});
