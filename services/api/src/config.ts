import {
  type ConfigResult,
  type Environment,
  parseServiceConfig,
  type ServiceConfig,
} from '@counterstamp/stage-runtime';
import { contractFaults } from '@counterstamp/workflows';
import { z } from 'zod';

export type ApiConfig = ServiceConfig;

/** What this service takes from its environment beside the common variables: nothing but its login. */
export const environment = { service: 'api', schema: z.object({}), defaults: { http_port: 8080 } } as const;

/** Parses the service's whole environment; reports every problem at once. */
export function parseConfig(env: Environment): ConfigResult<ApiConfig> {
  const result = parseServiceConfig(environment.service, env, environment.schema, environment.defaults);
  // How early a successor may follow a run with an attempt is the api's figure: it must hold for the contracts as well.
  const faults = result.ok ? contractFaults(result.config.durations) : [];
  return faults.length === 0 ? result : { ok: false, faults };
}
