import type { Durations } from '@counterstamp/manifest-core';
import { type ConfigResult, createReadClient, type ServiceConfig, variable } from '@counterstamp/stage-runtime';
import { z } from 'zod';
import { createSystems, type Systems, WORKFLOW_DOORS } from './systems.ts';

/** Where the external systems are, and the key that reads them: what every worker needs. Part of each service's `config.ts`. */
export const systemsEnvironment = z.object({
  COUNTERSTAMP_SHOP_URL: variable
    .url('http:', 'https:')
    .describe('where the shop answers: requests and orders are read there'),
  COUNTERSTAMP_PAYMENTS_URL: variable
    .url('http:', 'https:')
    .describe(
      'where the payment provider answers: payments and refunds are read there, and the executor refunds there',
    ),
  COUNTERSTAMP_PAYMENTS_READ_KEY: z.string().min(1).describe('key of the payment provider that can only read'),
  COUNTERSTAMP_CREDITS_URL: variable
    .url('http:', 'https:')
    .optional()
    .describe('where the credit system answers; absent: runs of the workflow credit stop with operation_unavailable'),
  COUNTERSTAMP_CREDITS_READ_KEY: z
    .string()
    .min(1)
    .optional()
    .describe('key of the credit system that can only read; needed with COUNTERSTAMP_CREDITS_URL'),
  COUNTERSTAMP_CREDITS_WRITE_KEY: z
    .string()
    .min(1)
    .optional()
    .describe(
      'key of the credit system that can grant; for the executor alone, which needs it with COUNTERSTAMP_CREDITS_URL',
    ),
});
type SystemsEnvironment = z.output<typeof systemsEnvironment>;

/** What is missing for the credit system, or is more than this service may have, as sentences that name the variables. */
function creditsFaults({ service, own }: ServiceConfig & { own: SystemsEnvironment }): string[] {
  const faults: string[] = [];
  const installed = own.COUNTERSTAMP_CREDITS_URL !== undefined;
  const writes = service === 'executor';
  if (installed && own.COUNTERSTAMP_CREDITS_READ_KEY === undefined)
    faults.push('COUNTERSTAMP_CREDITS_READ_KEY: is required with COUNTERSTAMP_CREDITS_URL');
  if (installed && writes && own.COUNTERSTAMP_CREDITS_WRITE_KEY === undefined)
    faults.push('COUNTERSTAMP_CREDITS_WRITE_KEY: is required with COUNTERSTAMP_CREDITS_URL');
  if (!writes && own.COUNTERSTAMP_CREDITS_WRITE_KEY !== undefined)
    faults.push('COUNTERSTAMP_CREDITS_WRITE_KEY: only the executor may have it');
  return faults;
}

/**
 * Adds to a parsed configuration what the installed contracts demand of its durations: an absence is believed only after P, so P must cover
 * how long a target may still apply a request. And what an optional system needs once it is named.
 */
export function checkedAgainstContracts<C extends ServiceConfig & { own: SystemsEnvironment }>(
  result: ConfigResult<C>,
): ConfigResult<C> {
  if (!result.ok) return result;
  const faults = [...contractFaults(result.config.durations), ...creditsFaults(result.config)];
  return faults.length === 0 ? result : { ok: false, faults };
}

/** What the installed contracts demand of the durations and do not get, as sentences. */
export function contractFaults({ provider_ms }: Durations): string[] {
  return [...WORKFLOW_DOORS.values()]
    .filter((door) => door.contract.inFlightHorizonMs > provider_ms)
    .map(
      (door) =>
        `provider_ms (${provider_ms}) must be at least the ${door.contract.inFlightHorizonMs} ms within which ${door.contract.name} may still apply a request`,
    );
}

/** Opens the systems as an environment names them. `writeKey`: that of the payments; only the executor has one. */
export function openSystems(env: SystemsEnvironment, durations: Durations, writeKey: string | null = null): Systems {
  const { COUNTERSTAMP_CREDITS_URL: url, COUNTERSTAMP_CREDITS_READ_KEY: read_key } = env;
  return createSystems({
    shop_url: env.COUNTERSTAMP_SHOP_URL,
    payments_url: env.COUNTERSTAMP_PAYMENTS_URL,
    payments_read_key: env.COUNTERSTAMP_PAYMENTS_READ_KEY,
    payments_write_key: writeKey,
    ...(url === undefined || read_key === undefined
      ? {}
      : { credits: { url, read_key, write_key: env.COUNTERSTAMP_CREDITS_WRITE_KEY ?? null } }),
    read_timeout_ms: durations.read_timeout_ms,
    http: createReadClient(),
  });
}
