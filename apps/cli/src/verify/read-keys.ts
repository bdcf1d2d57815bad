import { parseTrustedKeys, type TrustedKeys } from '@counterstamp/signatures';
import { CliFailure, EXIT } from '../failure.ts';
import { readInput } from '../read-input.ts';

/**
 * The trusted public keys of a file.
 * @throws {CliFailure} when it cannot be read, or is no set of them.
 */
export async function readKeys(file: string): Promise<TrustedKeys> {
  const bytes = await readInput(file, '--keys', 'the trusted keys as a JWK set');
  try {
    return parseTrustedKeys(Buffer.from(bytes).toString('utf8'));
  } catch (error) {
    if (!(error instanceof RangeError)) throw error;
    throw new CliFailure(
      `${file} holds no trusted keys: ${error.message}.`,
      'Get the set from the installation by another way than the receipt; `counterstamp signing-key public` makes its entries.',
      EXIT.usage,
    );
  }
}
