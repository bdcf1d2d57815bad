import {
  type ConfigResult,
  type Environment,
  parseServiceConfig,
  type ServiceConfig,
} from '@counterstamp/stage-runtime';
import { z } from 'zod';

export type ApiConfig = ServiceConfig;

/** Parses the service's whole environment; reports every problem at once. */
export function parseConfig(env: Environment): ConfigResult<ApiConfig> {
  return parseServiceConfig('api', env, z.object({}), { http_port: 8080 });
}
