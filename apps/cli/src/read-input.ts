import { readFile } from 'node:fs/promises';
import { CliFailure, EXIT } from './failure.ts';

/**
 * The bytes of a file that an option names; `-` reads standard input.
 * @param what the file holds, for the sentence when it cannot be read.
 */
export async function readInput(file: string, option: string, what: string): Promise<Uint8Array<ArrayBuffer>> {
  if (file === '-') {
    const chunks: Uint8Array[] = [];
    for await (const chunk of process.stdin) chunks.push(chunk as Uint8Array);
    return new Uint8Array(Buffer.concat(chunks));
  }
  try {
    return new Uint8Array(await readFile(file));
  } catch (error) {
    throw new CliFailure(
      `${file} cannot be read: ${error instanceof Error ? error.message : String(error)}.`,
      `Name the file that holds ${what} with ${option}, or - for standard input.`,
      EXIT.usage,
    );
  }
}
