import type { Durations } from '@counterstamp/manifest-core';
import { createReadClient, variable } from '@counterstamp/stage-runtime';
import { z } from 'zod';
import { createSystems, type Systems } from './systems.ts';

/** Where the external systems are, and the key that reads them: what every worker needs. Part of each service's `config.ts`. */
export const systemsEnvironment = z.object({
  COUNTERSTAMP_SHOP_URL: variable.url('http:', 'https:'),
  COUNTERSTAMP_PAYMENTS_URL: variable.url('http:', 'https:'),
  COUNTERSTAMP_PAYMENTS_READ_KEY: z.string().min(1),
});

/** Opens the systems as an environment names them. `writeKey`: only the executor has one. */
export function openSystems(
  env: z.output<typeof systemsEnvironment>,
  durations: Durations,
  writeKey: string | null = null,
): Systems {
  return createSystems({
    shop_url: env.COUNTERSTAMP_SHOP_URL,
    payments_url: env.COUNTERSTAMP_PAYMENTS_URL,
    payments_read_key: env.COUNTERSTAMP_PAYMENTS_READ_KEY,
    payments_write_key: writeKey,
    read_timeout_ms: durations.read_timeout_ms,
    http: createReadClient(),
  });
}
