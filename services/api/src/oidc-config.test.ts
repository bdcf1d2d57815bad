import { generateSigningKey, parseSigningKey, publicJwk, trustedKeysText } from '@counterstamp/signatures';
import { describe, expect, test } from 'vitest';
import { parseConfig } from './config.ts';

const DEVELOPMENT = { COUNTERSTAMP_DEV: '1', COUNTERSTAMP_API_DATABASE_URL: 'postgres://cs_api@db.test/cs' };
const PROVIDER = {
  COUNTERSTAMP_OIDC_ISSUER: 'https://login.example.com/tenant',
  COUNTERSTAMP_OIDC_CLIENT_ID: 'counterstamp',
  COUNTERSTAMP_OIDC_CLIENT_SECRET: 'a secret of some length',
};

function signIn(): Record<string, string> {
  const COUNTERSTAMP_INSTALLATION_KEY = generateSigningKey();
  const key = publicJwk(parseSigningKey(COUNTERSTAMP_INSTALLATION_KEY), ['credential', 'receipt']);
  return {
    COUNTERSTAMP_ORIGIN: 'https://approve.example.com',
    COUNTERSTAMP_INSTALLATION_KEY,
    COUNTERSTAMP_TRUSTED_KEYS: trustedKeysText([key]),
  };
}
function faultsOf(env: Record<string, string>): string[] {
  const result = parseConfig({ ...DEVELOPMENT, ...env });
  return result.ok ? [] : result.faults;
}

describe('the identity provider in the configuration', () => {
  test('is not needed', () => {
    const result = parseConfig({ ...DEVELOPMENT, ...signIn() });
    expect(result.ok && result.config.oidc).toBeUndefined();
  });

  test('comes through as it is given', () => {
    const result = parseConfig({ ...DEVELOPMENT, ...signIn(), ...PROVIDER });
    expect(result.ok && result.config.oidc).toEqual({
      issuer: 'https://login.example.com/tenant',
      client_id: 'counterstamp',
      client_secret: 'a secret of some length',
    });
  });

  test.each(Object.keys(PROVIDER))('is refused without %s', (name) => {
    const rest = Object.fromEntries(Object.entries(PROVIDER).filter(([other]) => other !== name));
    expect(faultsOf({ ...signIn(), ...rest })).toEqual([expect.stringContaining(`${name}: is required with`)]);
  });

  test('is refused where nobody could come back to', () => {
    expect(faultsOf(PROVIDER)).toEqual([expect.stringContaining('COUNTERSTAMP_ORIGIN: is required with')]);
  });

  test.each(['http://login.example.com', 'https://login.example.com/?tenant=1', 'login.example.com'])(
    'has no issuer like %s',
    (COUNTERSTAMP_OIDC_ISSUER) => {
      expect(faultsOf({ ...signIn(), ...PROVIDER, COUNTERSTAMP_OIDC_ISSUER })).toEqual([
        expect.stringContaining('COUNTERSTAMP_OIDC_ISSUER: must be a URL'),
      ]);
    },
  );

  test('has no short secret, and a fault does not repeat it', () => {
    const faults = faultsOf({ ...signIn(), ...PROVIDER, COUNTERSTAMP_OIDC_CLIENT_SECRET: 'short-one' });
    expect(faults).toEqual([expect.stringContaining('COUNTERSTAMP_OIDC_CLIENT_SECRET: must have at least 16')]);
    expect(faults.join()).not.toContain('short-one');
  });
});
