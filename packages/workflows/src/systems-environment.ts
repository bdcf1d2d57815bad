import type { Durations } from '@counterstamp/manifest-core';
import { type ConfigResult, createReadClient, type ServiceConfig, variable } from '@counterstamp/stage-runtime';
import { z } from 'zod';
import { createSystems, type Systems, WORKFLOW_DOORS } from './systems.ts';

/** Where the external systems are, and the key that reads them: what every worker needs. Part of each service's `config.ts`. */
export const systemsEnvironment = z.object({
  COUNTERSTAMP_SHOP_URL: variable.url('http:', 'https:'),
  COUNTERSTAMP_PAYMENTS_URL: variable.url('http:', 'https:'),
  COUNTERSTAMP_PAYMENTS_READ_KEY: z.string().min(1),
});

/**
 * Adds to a parsed configuration what the installed contracts demand of its durations: an absence is believed only after P, so P must cover
 * how long a target may still apply a request.
 */
export function checkedAgainstContracts<C extends ServiceConfig>(result: ConfigResult<C>): ConfigResult<C> {
  if (!result.ok) return result;
  const { provider_ms } = result.config.durations;
  const faults = [...WORKFLOW_DOORS.values()]
    .filter((door) => door.contract.inFlightHorizonMs > provider_ms)
    .map(
      (door) =>
        `provider_ms (${provider_ms}) must be at least the ${door.contract.inFlightHorizonMs} ms within which ${door.contract.name} may still apply a request`,
    );
  return faults.length === 0 ? result : { ok: false, faults };
}

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
