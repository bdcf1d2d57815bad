import { RunId } from '@counterstamp/manifest-core';
import { CliFailure, EXIT } from '../failure.ts';

/** @throws {CliFailure} when a text is no run id. */
export function parseRunId(text: string): RunId {
  const parsed = RunId.safeParse(text);
  if (parsed.success) return parsed.data;
  throw new CliFailure(
    `"${text}" is no run id.`,
    'A run id is run_ followed by a lower-case UUID; `counterstamp run list` shows them.',
    EXIT.usage,
  );
}
