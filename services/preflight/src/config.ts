import {
  type ConfigResult,
  type Environment,
  parseServiceConfig,
  type ServiceConfig,
} from '@counterstamp/stage-runtime';
import { checkedAgainstContracts, systemsEnvironment } from '@counterstamp/workflows';
import type { z } from 'zod';

export type PreflightConfig = ServiceConfig & { own: z.output<typeof systemsEnvironment> };

/** What this service takes from its environment beside the common variables. */
export const environment = { service: 'preflight', schema: systemsEnvironment, defaults: { http_port: 9464 } } as const;

/** Parses the service's whole environment; reports every problem at once. */
export function parseConfig(env: Environment): ConfigResult<PreflightConfig> {
  return checkedAgainstContracts(
    parseServiceConfig(environment.service, env, environment.schema, environment.defaults),
  );
}
