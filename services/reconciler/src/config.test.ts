import { generateSigningKey, parseSigningKey } from '@counterstamp/signatures';
import { expect, test } from 'vitest';
import { parseConfig } from './config.ts';

const COMMON = {
  COUNTERSTAMP_RECONCILER_DATABASE_URL: 'postgres://cs_reconciler@db.test/cs',
  COUNTERSTAMP_DATA_KEY: Buffer.alloc(32, 7).toString('base64url'),
  COUNTERSTAMP_SHOP_URL: 'http://shop.test',
  COUNTERSTAMP_PAYMENTS_URL: 'http://pay.test',
  COUNTERSTAMP_PAYMENTS_READ_KEY: 'rk',
};
const KEY = generateSigningKey();
const { d: SECRET } = JSON.parse(KEY) as { d: string };

test('the key signs checkpoints, which are kept in the file that is named', () => {
  const result = parseConfig({
    ...COMMON,
    COUNTERSTAMP_CHECKPOINT_KEY: KEY,
    COUNTERSTAMP_CHECKPOINT_FILE: 'checkpoints.jsonl',
  });
  if (!result.ok) throw new Error(result.faults.join('\n'));
  const { checkpoints } = result.config;
  expect(checkpoints?.key.key_id).toBe(parseSigningKey(KEY).key_id);
  expect(checkpoints?.file).toBe('checkpoints.jsonl');
});

test('in development no key is needed: then nothing is signed', () => {
  const result = parseConfig({ ...COMMON, COUNTERSTAMP_DEV: '1' });
  expect(result).toMatchObject({ ok: true, config: { checkpoints: undefined } });
});

test.each<[string, Record<string, string>, string]>([
  ['no key', {}, 'COUNTERSTAMP_CHECKPOINT_KEY: is required; `counterstamp signing-key create` makes one'],
  [
    'a torn key',
    { COUNTERSTAMP_CHECKPOINT_KEY: KEY.slice(0, -3) },
    'COUNTERSTAMP_CHECKPOINT_KEY: the signing key is not well-formed JSON',
  ],
  [
    'a torn key, in development',
    { COUNTERSTAMP_CHECKPOINT_KEY: KEY.slice(0, -3), COUNTERSTAMP_DEV: '1' },
    'COUNTERSTAMP_CHECKPOINT_KEY: the signing key is not well-formed JSON',
  ],
  [
    'a key of another kind',
    { COUNTERSTAMP_CHECKPOINT_KEY: KEY.replace('"OKP"', '"EC"') },
    'COUNTERSTAMP_CHECKPOINT_KEY: the signing key is not a private Ed25519 JWK with exactly kty, crv, x, d and an optional kid; at fault: kty',
  ],
])('a configuration with %s is refused, and says so without showing a key', (_, env, fault) => {
  const result = parseConfig({ ...COMMON, ...env });
  expect(result).toEqual({ ok: false, faults: [fault] });
  expect(JSON.stringify(result)).not.toContain(SECRET);
});
