import { randomBytes } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { generateSigningKey, parseSigningKey, publicJwk, trustedKeysText } from '@counterstamp/signatures';
import { z } from 'zod';
import { CliFailure, EXIT } from '../failure.ts';
import type { Environment } from './config.ts';
import { replacePrivate, type StateFolder } from './state-folder.ts';

/** What an installation keeps outside its database. */
export interface InstallationKeys {
  /** Private JWK: certifies passkeys and signs receipts. */
  installation_key: string;
  /** Private JWK: signs checkpoints. */
  checkpoint_key: string;
  /** 32 bytes, base64url: seals what is personal. */
  data_key: string;
  /** JWK set of the public halves. */
  trusted_keys: string;
}

const Kept = z.strictObject({ installation_key: z.string(), checkpoint_key: z.string(), data_key: z.string() });

/**
 * The keys of this installation: those of the environment, else those of the state folder, made on first use.
 * @throws {CliFailure} for keys that cannot be read: new ones would silently void every passkey and sealed value.
 */
export async function installationKeys(folder: StateFolder, env: Environment): Promise<InstallationKeys> {
  const kept = await keptKeys(folder);
  const keys = {
    installation_key: given(env.COUNTERSTAMP_INSTALLATION_KEY) ?? kept.installation_key,
    checkpoint_key: given(env.COUNTERSTAMP_CHECKPOINT_KEY) ?? kept.checkpoint_key,
    data_key: given(env.COUNTERSTAMP_DATA_KEY) ?? kept.data_key,
  };
  const trusted_keys = given(env.COUNTERSTAMP_TRUSTED_KEYS) ?? publicHalves(keys);
  // For `verify-receipt`. Written anew at each start: what the services trust is what a verifier is given.
  await replacePrivate(folder.trusted_keys, `${trusted_keys}\n`);
  return { ...keys, trusted_keys };
}

async function keptKeys(folder: StateFolder): Promise<z.infer<typeof Kept>> {
  const text = await readFile(folder.installation, 'utf8').catch((error: unknown) => {
    if (error instanceof Error && 'code' in error && error.code === 'ENOENT') return undefined;
    throw error;
  });
  if (text === undefined) {
    const made = {
      installation_key: generateSigningKey(),
      checkpoint_key: generateSigningKey(),
      data_key: randomBytes(32).toString('base64url'),
    };
    await replacePrivate(folder.installation, `${JSON.stringify(made, null, 2)}\n`);
    return made;
  }
  try {
    return Kept.parse(JSON.parse(text));
  } catch {
    throw new CliFailure(
      `The keys of this installation in ${folder.installation} cannot be read.`,
      'Restore the file from a backup. Without it no enrolled passkey counts and no sealed value can be opened; to begin anew, remove the whole state folder.',
      EXIT.configuration,
    );
  }
}

function publicHalves(keys: Pick<InstallationKeys, 'installation_key' | 'checkpoint_key'>): string {
  try {
    return trustedKeysText([
      publicJwk(parseSigningKey(keys.installation_key), ['credential', 'receipt']),
      publicJwk(parseSigningKey(keys.checkpoint_key), ['checkpoint']),
    ]);
  } catch (error) {
    if (!(error instanceof RangeError)) throw error;
    throw new CliFailure(
      `A signing key of this installation is not usable: ${error.message}.`,
      'Correct COUNTERSTAMP_INSTALLATION_KEY or COUNTERSTAMP_CHECKPOINT_KEY; `counterstamp signing-key create` makes one.',
      EXIT.configuration,
    );
  }
}

function given(text: string | undefined): string | undefined {
  return text === '' ? undefined : text;
}
