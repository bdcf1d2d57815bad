import type { Environment } from './config.ts';
import type { InstallationKeys } from './installation-keys.ts';

/** The processes that `up` starts, in the order of a run's path. */
export const FLEET = ['api', 'preflight', 'executor', 'verifier', 'reconciler'] as const;
export type FleetService = (typeof FLEET)[number];

/** What the services of one fleet share. */
export interface FleetSettings {
  /** Each service's own login. */
  service_urls: Readonly<Record<FleetService, string>>;
  redis_url: string | undefined;
  /** Of every key in Redis. */
  queue_prefix: string;
  sandbox_url: string;
  /** Keys that the sandbox's providers take; only the executor gets the one that writes. */
  read_key: string;
  write_key: string;
  profile: string;
  /** Origin of the console, to which passkeys belong. */
  origin: string;
  keys: InstallationKeys;
}

/** Variables of the fleet's owner that no service may inherit. */
const OWNERS = [
  'DATABASE_URL',
  'COUNTERSTAMP_SECRET',
  'COUNTERSTAMP_PAYMENTS_WRITE_KEY',
  'COUNTERSTAMP_CREDITS_WRITE_KEY',
  'COUNTERSTAMP_KEY',
  'COUNTERSTAMP_INSTALLATION_KEY',
  'COUNTERSTAMP_CHECKPOINT_KEY',
  'COUNTERSTAMP_TRUSTED_KEYS',
  'COUNTERSTAMP_DATA_KEY',
];

/** The variables that make a process this service of this fleet. */
export function serviceVariables(service: FleetService, fleet: FleetSettings): Record<string, string> {
  return {
    [databaseVariable(service)]: fleet.service_urls[service],
    ...(fleet.redis_url === undefined
      ? {}
      : { REDIS_URL: fleet.redis_url, COUNTERSTAMP_QUEUE_PREFIX: fleet.queue_prefix }),
    COUNTERSTAMP_PROFILE: fleet.profile,
    COUNTERSTAMP_SHOP_URL: fleet.sandbox_url,
    COUNTERSTAMP_PAYMENTS_URL: fleet.sandbox_url,
    COUNTERSTAMP_PAYMENTS_READ_KEY: fleet.read_key,
    COUNTERSTAMP_CREDITS_URL: fleet.sandbox_url,
    COUNTERSTAMP_CREDITS_READ_KEY: fleet.read_key,
    COUNTERSTAMP_DATA_KEY: fleet.keys.data_key,
    ...ownVariables(service, fleet),
  };
}

/** What one service has and no other: who signs cannot send, and who sends cannot sign. */
function ownVariables(service: FleetService, { keys, origin, write_key }: FleetSettings): Record<string, string> {
  const trust = { COUNTERSTAMP_ORIGIN: origin, COUNTERSTAMP_TRUSTED_KEYS: keys.trusted_keys };
  switch (service) {
    case 'api':
      return { ...trust, COUNTERSTAMP_INSTALLATION_KEY: keys.installation_key };
    case 'executor':
      return { ...trust, COUNTERSTAMP_PAYMENTS_WRITE_KEY: write_key, COUNTERSTAMP_CREDITS_WRITE_KEY: write_key };
    case 'reconciler':
      return { COUNTERSTAMP_CHECKPOINT_KEY: keys.checkpoint_key };
    default:
      return {};
  }
}

/**
 * The whole environment of a service: ours, without the owner's login, the secret and every other service's login, and with what the fleet
 * says. Durations, failpoints and the like pass through.
 */
export function serviceEnvironment(
  service: FleetService,
  base: Environment,
  fleet: FleetSettings,
  port: number,
): Record<string, string> {
  const kept = Object.entries(base).filter(
    (entry): entry is [string, string] =>
      entry[1] !== undefined && !OWNERS.includes(entry[0]) && !/^COUNTERSTAMP_[A-Z]+_DATABASE_URL$/.test(entry[0]),
  );
  const set = Object.fromEntries(kept);
  if (fleet.redis_url === undefined) delete set.REDIS_URL;
  return {
    ...set,
    COUNTERSTAMP_DEV: nonEmpty(set.COUNTERSTAMP_DEV) ?? '1',
    LOG_LEVEL: nonEmpty(set.LOG_LEVEL) ?? 'info',
    ...serviceVariables(service, fleet),
    // Only the api may be asked to listen to the world.
    COUNTERSTAMP_HTTP_HOST: (service === 'api' ? nonEmpty(set.COUNTERSTAMP_HTTP_HOST) : undefined) ?? '127.0.0.1',
    COUNTERSTAMP_HTTP_PORT: String(port),
  };
}

export function databaseVariable(service: FleetService): string {
  return `COUNTERSTAMP_${service.toUpperCase()}_DATABASE_URL`;
}

function nonEmpty(text: string | undefined): string | undefined {
  return text === '' ? undefined : text;
}
