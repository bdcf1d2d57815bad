import { parseTrustedKeys } from '@counterstamp/signatures';
import {
  type ConfigResult,
  type Environment,
  parseServiceConfig,
  type ServiceConfig,
  variable,
} from '@counterstamp/stage-runtime';
import { checkedAgainstContracts, systemsEnvironment } from '@counterstamp/workflows';
import { z } from 'zod';
import type { ApprovalTrust } from './approvals.ts';

const Own = systemsEnvironment.extend({
  COUNTERSTAMP_PAYMENTS_WRITE_KEY: z
    .string()
    .min(1)
    .describe('key of the payment provider that can refund; no other service may have it'),
  COUNTERSTAMP_ORIGIN: variable.origin
    .optional()
    .describe(
      'origin of the console, such as https://approve.example.com: passkeys belong to its host. Required outside development',
    ),
  COUNTERSTAMP_TRUSTED_KEYS: variable
    .parsed(parseTrustedKeys)
    .optional()
    .describe(
      'JWK set of the installation’s public keys, each with its purposes: approvals count only when a key of it certified their passkey. Required outside development',
    ),
});
export type ExecutorConfig = ServiceConfig & { own: z.output<typeof Own>; trust: ApprovalTrust };

/** What this service takes from its environment beside the common variables. */
export const environment = { service: 'executor', schema: Own, defaults: { http_port: 9465 } } as const;

/** Parses the service's whole environment; reports every problem at once. The only service that holds a key for effects. */
export function parseConfig(env: Environment): ConfigResult<ExecutorConfig> {
  const parsed = checkedAgainstContracts(
    parseServiceConfig(environment.service, env, environment.schema, environment.defaults),
  );
  if (!parsed.ok) return parsed;
  const { config } = parsed;
  const { COUNTERSTAMP_ORIGIN: origin, COUNTERSTAMP_TRUSTED_KEYS: keys } = config.own;
  if (origin !== undefined && keys !== undefined)
    return {
      ok: true,
      config: { ...config, trust: { signatures: { keys, origin }, development: config.development } },
    };
  if (config.development && origin === undefined && keys === undefined)
    return { ok: true, config: { ...config, trust: { signatures: undefined, development: true } } };
  const missing = Object.entries({ COUNTERSTAMP_ORIGIN: origin, COUNTERSTAMP_TRUSTED_KEYS: keys }).filter(
    ([, value]) => value === undefined,
  );
  return {
    ok: false,
    faults: missing.map(([name]) => `${name}: is required, or no signed approval could be verified`),
  };
}
