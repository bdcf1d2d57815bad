import {
  type ConfigResult,
  type Environment,
  parseServiceConfig,
  type ServiceConfig,
} from '@counterstamp/stage-runtime';
import { checkedAgainstContracts, systemsEnvironment } from '@counterstamp/workflows';
import { z } from 'zod';

const Own = systemsEnvironment.extend({
  COUNTERSTAMP_PAYMENTS_WRITE_KEY: z
    .string()
    .min(1)
    .describe('key of the payment provider that can refund; no other service may have it'),
});
export type ExecutorConfig = ServiceConfig & { own: z.output<typeof Own> };

/** What this service takes from its environment beside the common variables. */
export const environment = { service: 'executor', schema: Own, defaults: { http_port: 9465 } } as const;

/** Parses the service's whole environment; reports every problem at once. The only service that holds a key for effects. */
export function parseConfig(env: Environment): ConfigResult<ExecutorConfig> {
  return checkedAgainstContracts(
    parseServiceConfig(environment.service, env, environment.schema, environment.defaults),
  );
}
