import { parseServiceConfig } from '@counterstamp/stage-runtime';
import { describe, expect, test } from 'vitest';
import { checkedAgainstContracts, openSystems, systemsEnvironment } from './systems-environment.ts';

const BASE = {
  COUNTERSTAMP_PROFILE: 'fast',
  COUNTERSTAMP_DEV: '1',
  DATABASE_URL: 'postgres://owner@127.0.0.1/app',
  COUNTERSTAMP_SECRET: 'a secret of this test',
  COUNTERSTAMP_SHOP_URL: 'http://shop.test',
  COUNTERSTAMP_PAYMENTS_URL: 'http://pay.test',
  COUNTERSTAMP_PAYMENTS_READ_KEY: 'rk',
};
const CREDITS = { COUNTERSTAMP_CREDITS_URL: 'http://credits.test', COUNTERSTAMP_CREDITS_READ_KEY: 'rk' };
const parse = (service: 'executor' | 'verifier', env: Record<string, string>) =>
  checkedAgainstContracts(parseServiceConfig(service, { ...BASE, ...env }, systemsEnvironment, { http_port: 0 }));

describe('the credit system', () => {
  test.each<[string, 'executor' | 'verifier', Record<string, string>, string[]]>([
    ['may be absent', 'executor', {}, []],
    ['is complete for a reader', 'verifier', CREDITS, []],
    ['is complete for the executor', 'executor', { ...CREDITS, COUNTERSTAMP_CREDITS_WRITE_KEY: 'sk' }, []],
    [
      'needs its read key',
      'verifier',
      { COUNTERSTAMP_CREDITS_URL: 'http://credits.test' },
      ['COUNTERSTAMP_CREDITS_READ_KEY: is required with COUNTERSTAMP_CREDITS_URL'],
    ],
    [
      'needs its write key at the executor',
      'executor',
      CREDITS,
      ['COUNTERSTAMP_CREDITS_WRITE_KEY: is required with COUNTERSTAMP_CREDITS_URL'],
    ],
    [
      'gives its write key to nobody else',
      'verifier',
      { ...CREDITS, COUNTERSTAMP_CREDITS_WRITE_KEY: 'sk' },
      ['COUNTERSTAMP_CREDITS_WRITE_KEY: only the executor may have it'],
    ],
  ])('%s', (_, service, env, faults) => {
    const result = parse(service, env);
    expect(result.ok ? [] : result.faults).toEqual(faults);
  });

  test.each<[string, Record<string, string>, string[]]>([
    ['absent', {}, ['refund']],
    ['named', CREDITS, ['refund', 'credit']],
  ])('%s decides whether its workflow is installed', (_, env, workflows) => {
    const result = parse('verifier', env);
    if (!result.ok) throw new Error(result.faults.join());
    const systems = openSystems(result.config.own, result.config.durations);
    expect([...systems.workflows.keys()]).toEqual(workflows);
  });
});

test('an absence is believed only after P, so P must cover how long any installed target may still apply a request', () => {
  const result = parse('verifier', { COUNTERSTAMP_PROVIDER_MS: '999' });
  expect(result.ok ? [] : result.faults).toEqual([
    expect.stringContaining('within which sandbox-payments may still apply'),
    expect.stringContaining('within which legacy-credits may still apply'),
  ]);
});
