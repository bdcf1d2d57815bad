import { parseTrustedKeys } from '@counterstamp/signatures';
import {
  type ConfigResult,
  type Environment,
  parseServiceConfig,
  type ServiceConfig,
} from '@counterstamp/stage-runtime';
import { checkedAgainstContracts, systemsEnvironment } from '@counterstamp/workflows';
import { z } from 'zod';
import type { ApprovalTrust } from './approvals.ts';

const Own = systemsEnvironment.extend({
  COUNTERSTAMP_PAYMENTS_WRITE_KEY: z
    .string()
    .min(1)
    .describe('key of the payment provider that can refund; no other service may have it'),
  COUNTERSTAMP_ORIGIN: z
    .url({ protocol: /^https?$/, error: 'must be a URL that starts with https:// or http://' })
    .refine(
      (text) => !URL.canParse(text) || new URL(text).origin === text,
      'must be an origin: scheme, host and port, nothing after',
    )
    .optional()
    .describe(
      'origin of the console, such as https://approve.example.com: passkeys belong to its host. Required outside development',
    ),
  COUNTERSTAMP_TRUSTED_KEYS: z
    .string()
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
  if (origin === undefined || keys === undefined) {
    if (config.development && origin === undefined && keys === undefined)
      return { ok: true, config: { ...config, trust: { signatures: undefined, development: true } } };
    const missing = { COUNTERSTAMP_ORIGIN: origin, COUNTERSTAMP_TRUSTED_KEYS: keys };
    return {
      ok: false,
      faults: Object.entries(missing).flatMap(([name, value]) =>
        value === undefined ? [`${name}: is required, or no signed approval could be verified`] : [],
      ),
    };
  }
  try {
    const signatures = { keys: parseTrustedKeys(keys), origin };
    return { ok: true, config: { ...config, trust: { signatures, development: config.development } } };
  } catch (error) {
    if (!(error instanceof RangeError)) throw error;
    return { ok: false, faults: [`COUNTERSTAMP_TRUSTED_KEYS: ${error.message}`] };
  }
}
