import {
  type ConfigResult,
  type Environment,
  parseServiceConfig,
  type ServiceConfig,
} from '@counterstamp/stage-runtime';
import { checkedAgainstContracts, systemsEnvironment } from '@counterstamp/workflows';
import type { z } from 'zod';

export type PreflightConfig = ServiceConfig & { own: z.output<typeof systemsEnvironment> };

/** Parses the service's whole environment; reports every problem at once. */
export function parseConfig(env: Environment): ConfigResult<PreflightConfig> {
  return checkedAgainstContracts(parseServiceConfig('preflight', env, systemsEnvironment, { http_port: 9464 }));
}
