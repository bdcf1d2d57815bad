import { generateSigningKey, parseSigningKey, publicJwk, trustedKeysText } from '@counterstamp/signatures';
import { expect, test } from 'vitest';
import { parseConfig } from './config.ts';

const COMMON = {
  COUNTERSTAMP_EXECUTOR_DATABASE_URL: 'postgres://cs_executor@db.test/cs',
  COUNTERSTAMP_DATA_KEY: Buffer.alloc(32, 7).toString('base64url'),
  COUNTERSTAMP_SHOP_URL: 'http://shop.test',
  COUNTERSTAMP_PAYMENTS_URL: 'http://pay.test',
  COUNTERSTAMP_PAYMENTS_READ_KEY: 'rk',
  COUNTERSTAMP_PAYMENTS_WRITE_KEY: 'wk',
};
const ORIGIN = 'https://approve.example.com';
const KEY = parseSigningKey(generateSigningKey());
const KEYS = trustedKeysText([publicJwk(KEY, ['credential'])]);
const TORN = KEYS.slice(0, -9);

test('the origin and the trusted keys become what approvals are verified with', () => {
  const result = parseConfig({ ...COMMON, COUNTERSTAMP_ORIGIN: ORIGIN, COUNTERSTAMP_TRUSTED_KEYS: KEYS });
  if (!result.ok) throw new Error(result.faults.join('\n'));
  const { signatures, development } = result.config.trust;
  expect(signatures?.origin).toBe(ORIGIN);
  expect(signatures?.keys.find(KEY.key_id, 'credential')).toBeDefined();
  expect(development).toBe(false);
});

test('in development neither is needed: then no signature can be verified', () => {
  const result = parseConfig({ ...COMMON, COUNTERSTAMP_DEV: '1' });
  expect(result.ok && result.config.trust).toEqual({ signatures: undefined, development: true });
});

const needed = (name: string) => `${name}: is required, or no signed approval could be verified`;
const NO_ORIGIN =
  'COUNTERSTAMP_ORIGIN: must be an origin (scheme, host and port, nothing after), https:// or http://localhost';

test.each<[string, Record<string, string>, string[]]>([
  ['neither', {}, [needed('COUNTERSTAMP_ORIGIN'), needed('COUNTERSTAMP_TRUSTED_KEYS')]],
  ['no origin', { COUNTERSTAMP_TRUSTED_KEYS: KEYS }, [needed('COUNTERSTAMP_ORIGIN')]],
  ['no keys', { COUNTERSTAMP_ORIGIN: ORIGIN }, [needed('COUNTERSTAMP_TRUSTED_KEYS')]],
  [
    'no keys, in development',
    { COUNTERSTAMP_ORIGIN: 'http://localhost:8080', COUNTERSTAMP_DEV: '1' },
    [needed('COUNTERSTAMP_TRUSTED_KEYS')],
  ],
  [
    'an origin that no passkey works at',
    { COUNTERSTAMP_ORIGIN: 'http://approve.example.com', COUNTERSTAMP_TRUSTED_KEYS: KEYS },
    [NO_ORIGIN],
  ],
  [
    'torn keys',
    { COUNTERSTAMP_ORIGIN: ORIGIN, COUNTERSTAMP_TRUSTED_KEYS: TORN },
    ['COUNTERSTAMP_TRUSTED_KEYS: the trusted keys are not well-formed JSON'],
  ],
])('a configuration with %s is refused, and says so', (_, env, faults) => {
  expect(parseConfig({ ...COMMON, ...env })).toEqual({ ok: false, faults });
});

test('a private key among the trusted ones is refused without being shown', () => {
  const text = generateSigningKey();
  const { d } = JSON.parse(text) as { d: string };
  const keys = `{"keys": [${text}]}`;
  const result = parseConfig({ ...COMMON, COUNTERSTAMP_ORIGIN: ORIGIN, COUNTERSTAMP_TRUSTED_KEYS: keys });
  expect(result).toEqual({ ok: false, faults: [expect.stringMatching(/^COUNTERSTAMP_TRUSTED_KEYS: .*private key/)] });
  expect(JSON.stringify(result)).not.toContain(d);
});
