import {
  type ConfigResult,
  type Environment,
  parseServiceConfig,
  type ServiceConfig,
} from '@counterstamp/stage-runtime';
import { checkedAgainstContracts, systemsEnvironment } from '@counterstamp/workflows';
import { z } from 'zod';

const Own = systemsEnvironment.extend({ COUNTERSTAMP_PAYMENTS_WRITE_KEY: z.string().min(1) });
export type ExecutorConfig = ServiceConfig & { own: z.output<typeof Own> };

/** Parses the service's whole environment; reports every problem at once. The only service that holds a key for effects. */
export function parseConfig(env: Environment): ConfigResult<ExecutorConfig> {
  return checkedAgainstContracts(parseServiceConfig('executor', env, Own, { http_port: 9465 }));
}
