import { z } from 'zod';

const UUID = '[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}';

/** `run_` and a UUIDv7: sortable by creation time. The uuid alone is what Postgres stores. */
export const RunId = z
  .string()
  .regex(new RegExp(`^run_${UUID}$`), 'run_id_malformed')
  .brand<'RunId'>();
export type RunId = z.infer<typeof RunId>;

/** Revision of a run: 1 at creation, + 1 with every event. Orders writes (fencing token). */
export const Revision = z.int().positive().brand<'Revision'>();
export type Revision = z.infer<typeof Revision>;

/** `sha256:` and 64 lower-case hex digits. */
export const Digest = z
  .string()
  .regex(/^sha256:[0-9a-f]{64}$/, 'digest_malformed')
  .brand<'Digest'>();
export type Digest = z.infer<typeof Digest>;

/**
 * An identifier that came from outside: what a person may be shown and a log may carry without deceiving either.
 * ASCII letters, digits and `. _ - : @ #`, 1 to 128 characters, starting with a letter or digit.
 */
export const ExternalId = z
  .string()
  .max(128, 'identifier_too_long')
  .regex(/^[A-Za-z0-9][A-Za-z0-9._\-:@#]*$/, 'identifier_charset');

export const ID_PREFIXES = {
  attempt: 'att',
  approval: 'apr',
  decision: 'dec',
  evidence: 'evd',
  proposal: 'prp',
  principal: 'prn',
  api_key: 'key',
  instance: 'ins',
  session: 'ses',
  invitation: 'inv',
} as const;
export type IdKind = keyof typeof ID_PREFIXES;

export function runIdFromUuid(uuid: string): RunId {
  return RunId.parse(`run_${uuid}`);
}

export function uuidOfRunId(runId: RunId): string {
  return runId.slice('run_'.length);
}
