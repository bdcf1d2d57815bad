import { parseSigningKey, type SigningKey } from '@counterstamp/signatures';
import {
  type ConfigResult,
  type Environment,
  parseServiceConfig,
  type ServiceConfig,
  variable,
} from '@counterstamp/stage-runtime';
import { checkedAgainstContracts, systemsEnvironment } from '@counterstamp/workflows';
import { z } from 'zod';

const Own = systemsEnvironment.extend({
  COUNTERSTAMP_CHECKPOINT_KEY: variable
    .parsed(parseSigningKey)
    .optional()
    .describe('private Ed25519 key (JWK) that signs checkpoints of all histories. Required outside development'),
  COUNTERSTAMP_CHECKPOINT_FILE: z
    .string()
    .min(1)
    .optional()
    .describe(
      'file to which every checkpoint of this process is appended, one JSON line each: keep it where the database’s owner cannot write',
    ),
});
export type ReconcilerConfig = ServiceConfig & {
  own: z.output<typeof Own>;
  checkpoints: CheckpointSettings | undefined;
};

/** Undefined in development without a key: then nothing is signed. */
export interface CheckpointSettings {
  key: SigningKey;
  /** Where the checkpoints are exported to, beside the api. */
  file: string | undefined;
}

/** What this service takes from its environment beside the common variables. */
export const environment = {
  service: 'reconciler',
  schema: Own,
  defaults: { http_port: 9467 },
} as const;

/** Parses the service's whole environment; reports every problem at once. */
export function parseConfig(env: Environment): ConfigResult<ReconcilerConfig> {
  const parsed = checkedAgainstContracts(
    parseServiceConfig(environment.service, env, environment.schema, environment.defaults),
  );
  if (!parsed.ok) return parsed;
  const { config } = parsed;
  const { COUNTERSTAMP_CHECKPOINT_KEY: key, COUNTERSTAMP_CHECKPOINT_FILE: file } = config.own;
  if (key === undefined && !config.development) {
    return {
      ok: false,
      faults: ['COUNTERSTAMP_CHECKPOINT_KEY: is required; `counterstamp signing-key create` makes one'],
    };
  }
  return { ok: true, config: { ...config, checkpoints: key === undefined ? undefined : { key, file } } };
}
