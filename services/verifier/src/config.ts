import {
  type ConfigResult,
  type Environment,
  parseServiceConfig,
  type ServiceConfig,
} from '@counterstamp/stage-runtime';
import { checkedAgainstContracts, systemsEnvironment } from '@counterstamp/workflows';
import type { z } from 'zod';

export type VerifierConfig = ServiceConfig & { own: z.output<typeof systemsEnvironment> };

/** What this service takes from its environment beside the common variables. */
export const environment = { service: 'verifier', schema: systemsEnvironment, defaults: { http_port: 9466 } } as const;

/** Parses the service's whole environment; reports every problem at once. */
export function parseConfig(env: Environment): ConfigResult<VerifierConfig> {
  return checkedAgainstContracts(
    parseServiceConfig(environment.service, env, environment.schema, environment.defaults),
  );
}
