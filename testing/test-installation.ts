import { randomBytes } from 'node:crypto';
import {
  generateSigningKey,
  parseSigningKey,
  publicJwk,
  type SigningKey,
  trustedKeysText,
} from '@counterstamp/signatures';
import { ORIGIN } from './browser.ts';

/** Keys of an installation of its own, as the environment of its services. */
export interface TestInstallation {
  origin: string;
  installation_key: SigningKey;
  checkpoint_key: SigningKey;
  trusted_keys: string;
  /** For every service; a real installation gives each only its own. */
  env: Readonly<Record<string, string>>;
}

export function testInstallation(origin = ORIGIN): TestInstallation {
  const [installationText, checkpointText] = [generateSigningKey(), generateSigningKey()];
  const installation_key = parseSigningKey(installationText);
  const checkpoint_key = parseSigningKey(checkpointText);
  const trusted_keys = trustedKeysText([
    publicJwk(installation_key, ['credential', 'receipt']),
    publicJwk(checkpoint_key, ['checkpoint']),
  ]);
  return {
    origin,
    installation_key,
    checkpoint_key,
    trusted_keys,
    env: {
      COUNTERSTAMP_ORIGIN: origin,
      COUNTERSTAMP_INSTALLATION_KEY: installationText,
      COUNTERSTAMP_CHECKPOINT_KEY: checkpointText,
      COUNTERSTAMP_TRUSTED_KEYS: trusted_keys,
      COUNTERSTAMP_DATA_KEY: randomBytes(32).toString('base64url'),
    },
  };
}
