import { generateSigningKey, parseSigningKey, publicJwk, trustedKeysText } from '@counterstamp/signatures';
import { describe, expect, test } from 'vitest';
import { parseConfig } from './config.ts';

const KEY = generateSigningKey();
const OTHER = generateSigningKey();
const trusted = (text: string, purposes: readonly ('credential' | 'receipt')[]) =>
  trustedKeysText([publicJwk(parseSigningKey(text), purposes)]);

const COMMON = {
  COUNTERSTAMP_API_DATABASE_URL: 'postgres://api:secret@localhost/counterstamp',
  COUNTERSTAMP_DATA_KEY: Buffer.alloc(32, 7).toString('base64url'),
};
const SIGN_IN = {
  COUNTERSTAMP_ORIGIN: 'https://approve.example.com',
  COUNTERSTAMP_INSTALLATION_KEY: KEY,
  COUNTERSTAMP_TRUSTED_KEYS: trusted(KEY, ['credential', 'receipt']),
};

function faultsOf(env: Record<string, string>): string[] {
  const result = parseConfig({ ...COMMON, ...env });
  return result.ok ? [] : result.faults;
}

test('outside development origin, key and trusted keys are required, each by name', () => {
  expect(faultsOf({})).toEqual(
    expect.arrayContaining(
      Object.keys(SIGN_IN).map((name) => expect.stringMatching(new RegExp(`^${name}: is required`))),
    ),
  );
  expect(faultsOf(SIGN_IN)).toEqual([]);
});

test('in development they are given all or not at all', () => {
  expect(faultsOf({ COUNTERSTAMP_DEV: '1' })).toEqual([]);
  expect(faultsOf({ COUNTERSTAMP_DEV: '1', COUNTERSTAMP_ORIGIN: 'http://localhost:8080' })).toHaveLength(2);
});

describe('the origin', () => {
  test.each([
    ['https://approve.example.com', true],
    ['https://approve.example.com:8443', true],
    ['http://localhost:8080', true],
    // Browsers give passkeys to no address without https, and to no address that is a number.
    ['http://approve.example.com', false],
    ['http://127.0.0.1:8080', false],
    ['https://approve.example.com/', false],
    ['https://approve.example.com/console', false],
    ['https://user@approve.example.com', false],
    ['https://APPROVE.example.com', false],
    ['approve.example.com', false],
  ])('%s is taken: %s', (origin, taken) => {
    const faults = faultsOf({ ...SIGN_IN, COUNTERSTAMP_ORIGIN: origin });
    expect(faults.length === 0).toBe(taken);
  });
});

test('a key that the trusted keys do not list, or not for passkeys, is a fault', () => {
  for (const keys of [trusted(OTHER, ['credential', 'receipt']), trusted(KEY, ['receipt'])]) {
    const faults = faultsOf({ ...SIGN_IN, COUNTERSTAMP_TRUSTED_KEYS: keys });
    expect(faults).toContainEqual(expect.stringContaining('with the purpose credential'));
  }
});

test('a key that is none is a fault that does not show it', () => {
  const broken = KEY.replace('"OKP"', '"EC"');
  const faults = faultsOf({ ...SIGN_IN, COUNTERSTAMP_INSTALLATION_KEY: broken });
  expect(faults).toContainEqual(expect.stringMatching(/^COUNTERSTAMP_INSTALLATION_KEY: /));
  const secret = (JSON.parse(KEY) as { d: string }).d;
  expect(JSON.stringify(faults)).not.toContain(secret);
  const leaked = faultsOf({ ...SIGN_IN, COUNTERSTAMP_TRUSTED_KEYS: JSON.stringify({ keys: [JSON.parse(KEY)] }) });
  expect(JSON.stringify(leaked)).not.toContain(secret);
});
