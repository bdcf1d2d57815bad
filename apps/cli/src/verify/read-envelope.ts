import { type JsonValue, parseStrictJson } from '@counterstamp/manifest-core';
import { CliFailure, EXIT } from '../failure.ts';
import { readInput } from '../read-input.ts';

/**
 * The JSON of a receipt's file. Whether it is a receipt is the checks' to say.
 * @throws {CliFailure} when the file cannot be read, or its JSON could be read in two ways.
 */
export async function readEnvelope(file: string, option: string): Promise<JsonValue> {
  const json = parseStrictJson(Buffer.from(await readInput(file, option, 'the receipt')).toString('utf8'));
  if (json.ok) return json.value;
  throw new CliFailure(
    `${file} is no receipt: ${json.refusal.detail}.`,
    'Give the file as `counterstamp receipt` or GET /v1/runs/{run_id}/receipt wrote it.',
    EXIT.usage,
  );
}
