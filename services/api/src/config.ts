import {
  type ConfigResult,
  type Environment,
  parseServiceConfig,
  type ServiceConfig,
} from '@counterstamp/stage-runtime';
import { z } from 'zod';

export type ApiConfig = ServiceConfig;

/** What this service takes from its environment beside the common variables: nothing but its login. */
export const environment = { service: 'api', schema: z.object({}), defaults: { http_port: 8080 } } as const;

/** Parses the service's whole environment; reports every problem at once. */
export function parseConfig(env: Environment): ConfigResult<ApiConfig> {
  return parseServiceConfig(environment.service, env, environment.schema, environment.defaults);
}
