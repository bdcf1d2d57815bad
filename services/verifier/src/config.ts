import {
  type ConfigResult,
  type Environment,
  parseServiceConfig,
  type ServiceConfig,
} from '@counterstamp/stage-runtime';
import { checkedAgainstContracts, systemsEnvironment } from '@counterstamp/workflows';
import type { z } from 'zod';

export type VerifierConfig = ServiceConfig & { own: z.output<typeof systemsEnvironment> };

/** Parses the service's whole environment; reports every problem at once. */
export function parseConfig(env: Environment): ConfigResult<VerifierConfig> {
  return checkedAgainstContracts(parseServiceConfig('verifier', env, systemsEnvironment, { http_port: 9466 }));
}
