import { PROFILES } from '@counterstamp/manifest-core';
import { expect, test } from 'vitest';
import { z } from 'zod';
import { describeDurations, describeEnvironment } from './environment-docs.ts';

test('a variable is described by the schema that parses it: what it means, whether it must be there, what applies otherwise', () => {
  const schema = z.object({
    COUNTERSTAMP_X_URL: z.string().describe('where x is'),
    COUNTERSTAMP_X_SIZE: z.string().transform(Number).default(7).describe('how big x is'),
    COUNTERSTAMP_X_NAME: z.string().optional().describe('what x is called'),
  });
  const { common, own } = describeEnvironment({ service: 'verifier', schema, defaults: { http_port: 9466 } });
  expect(own).toEqual([
    expect.objectContaining({ name: 'COUNTERSTAMP_VERIFIER_DATABASE_URL', required: false }),
    { name: 'COUNTERSTAMP_X_URL', meaning: 'where x is', required: true, default: null },
    { name: 'COUNTERSTAMP_X_SIZE', meaning: 'how big x is', required: false, default: '7' },
    { name: 'COUNTERSTAMP_X_NAME', meaning: 'what x is called', required: false, default: null },
    expect.objectContaining({ name: 'COUNTERSTAMP_CONCURRENCY_VERIFY', required: false, default: null }),
  ]);
  const defaults = Object.fromEntries(common.map((variable) => [variable.name, variable.default]));
  expect(defaults).toMatchObject({
    COUNTERSTAMP_HTTP_PORT: '9466',
    COUNTERSTAMP_CONCURRENCY: '16',
    COUNTERSTAMP_DEV: '0',
    COUNTERSTAMP_PROFILE: 'production',
    REDIS_URL: null,
  });
  expect(common.every((variable) => !variable.required)).toBe(true);
});

test('a variable that says nothing about itself stops the reference', () => {
  const schema = z.object({ COUNTERSTAMP_X: z.string() });
  expect(() => describeEnvironment({ service: 'api', schema, defaults: { http_port: 1 } })).toThrow('COUNTERSTAMP_X');
});

test('every duration is described, with its value in each profile', () => {
  const described = describeDurations();
  expect(described.map((one) => one.name).sort()).toEqual(Object.keys(PROFILES.production).sort());
  expect(described.find((one) => one.name === 'call_deadline_ms')).toMatchObject({
    variable: 'COUNTERSTAMP_CALL_DEADLINE_MS',
    ms: [20_000, 2_000],
  });
});
