import {
  type ConfigResult,
  type Environment,
  parseServiceConfig,
  type ServiceConfig,
} from '@counterstamp/stage-runtime';
import { checkedAgainstContracts, systemsEnvironment } from '@counterstamp/workflows';
import type { z } from 'zod';

export type ReconcilerConfig = ServiceConfig & { own: z.output<typeof systemsEnvironment> };

/** Parses the service's whole environment; reports every problem at once. */
export function parseConfig(env: Environment): ConfigResult<ReconcilerConfig> {
  return checkedAgainstContracts(parseServiceConfig('reconciler', env, systemsEnvironment, { http_port: 9467 }));
}
