import { writeFile } from 'node:fs/promises';
import { CliFailure, EXIT } from '../failure.ts';

/**
 * Writes a file that was not there. A receipt may show personal data: only its owner may read it.
 * @throws {CliFailure} when it exists or cannot be written.
 */
export async function writeNew(file: string, text: string): Promise<void> {
  try {
    await writeFile(file, text, { mode: 0o600, flag: 'wx' });
  } catch (error) {
    throw new CliFailure(
      `${file} cannot be written: ${error instanceof Error ? error.message : String(error)}.`,
      'Name a file that does not exist yet, in a folder that you may write.',
      EXIT.usage,
    );
  }
}
