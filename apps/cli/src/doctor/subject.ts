import { SERVICES, type Service } from '@counterstamp/manifest-core';
import {
  type ConfigResult,
  type Environment,
  parseServiceConfig,
  type ServiceConfig,
  withSecretFiles,
} from '@counterstamp/stage-runtime';
import { z } from 'zod';
import { CliFailure, EXIT } from '../failure.ts';
import type { FleetFile } from '../up/state-folder.ts';

/** One service as it would be configured. */
export interface ExaminedService {
  service: Service;
  env: Environment;
  /** What the service itself would say. */
  config: ConfigResult<ServiceConfig>;
  /** Where it would connect to, whatever else is wrong; absent when its environment does not even say that. */
  connections: Pick<ServiceConfig, 'database_url' | 'queue'> | undefined;
}

/** What `doctor` examines: each service as it would be configured, and how to look at what they share. */
export interface Subject {
  /** In words, for the first line. */
  source: string;
  services: ExaminedService[];
  /** The database owner's URL; absent: what only the owner may see is not looked at. */
  owner_url: string | undefined;
  /** The api's, when one should answer. */
  api_url: string | undefined;
}

const PARSERS: Readonly<Record<Service, () => Promise<(env: Environment) => ConfigResult<ServiceConfig>>>> = {
  api: async () => (await import('@counterstamp/api')).parseConfig,
  preflight: async () => (await import('@counterstamp/preflight')).parseConfig,
  executor: async () => (await import('@counterstamp/executor')).parseConfig,
  verifier: async () => (await import('@counterstamp/verifier')).parseConfig,
  reconciler: async () => (await import('@counterstamp/reconciler')).parseConfig,
};

/**
 * Finds out what is to be examined: the environment when it names a database, else the local fleet. A fleet on the environment's own database
 * is examined as it runs, unless the environment says more than that database.
 * @param only services to examine; all when empty.
 * @throws {CliFailure} when neither names a database.
 */
export async function subjectOf(
  env: Environment,
  fleet: FleetFile | undefined,
  only: readonly Service[],
): Promise<Subject> {
  const given = withSecretFiles(env).env;
  const owner_url = nonEmpty(given.DATABASE_URL);
  const logins = SERVICES.some((service) => nonEmpty(given[loginVariable(service)]) !== undefined);
  const ownFleet =
    fleet?.services !== undefined &&
    !logins &&
    (owner_url === undefined || (owner_url === fleet.owner_url && nonEmpty(given.COUNTERSTAMP_SECRET) === undefined));
  if (!ownFleet && owner_url === undefined && !logins) {
    throw new CliFailure(
      fleet === undefined
        ? 'DATABASE_URL is not set, and no local fleet runs.'
        : 'DATABASE_URL is not set, and the local fleet is still starting.',
      'Set the services’ environment as they get it, or start a fleet with `counterstamp up`.',
      EXIT.configuration,
    );
  }
  const wanted = only.length === 0 ? SERVICES : only;
  const services = await Promise.all(
    wanted.map(async (service) => {
      const its = ownFleet
        ? fleetEnvironment(env, fleet.services?.[service] ?? {})
        : wanted.length === 1 || service === 'executor'
          ? env
          : withoutWriteKeys(env);
      return {
        service,
        env: withSecretFiles(its).env,
        config: (await PARSERS[service]())(its),
        connections: connectionsOf(service, its),
      };
    }),
  );
  return {
    source: ownFleet ? `the local fleet of process ${fleet.pid}` : 'the environment',
    services,
    owner_url: ownFleet ? fleet.owner_url : owner_url,
    api_url: nonEmpty(env.COUNTERSTAMP_URL) ?? (ownFleet ? fleet.api_url : undefined),
  };
}

/** As `service --join` makes it: without the owner's login and secret, which no service of a fleet has. */
function fleetEnvironment(env: Environment, variables: Readonly<Record<string, string>>): Environment {
  const { DATABASE_URL: _url, COUNTERSTAMP_SECRET: _secret, ...kept } = env;
  return { COUNTERSTAMP_DEV: '1', COUNTERSTAMP_HTTP_PORT: '0', ...kept, ...variables };
}

/** One environment for several services: the keys for effects in it are the executor's, and the others would refuse them. */
function withoutWriteKeys(env: Environment): Environment {
  return Object.fromEntries(
    Object.entries(env).filter(([name]) => !/^COUNTERSTAMP_(?:[A-Z]+_)*WRITE_KEY(?:_FILE)?$/.test(name)),
  );
}

function connectionsOf(service: Service, env: Environment): ExaminedService['connections'] {
  const others = Object.entries(env).filter(
    ([name]) => !/^COUNTERSTAMP_(?:[A-Z]+_)*MS$|^COUNTERSTAMP_FAILPOINTS$/.test(name),
  );
  const parsed = parseServiceConfig(service, Object.fromEntries(others), z.object({}), { http_port: 0 });
  return parsed.ok ? parsed.config : undefined;
}

function loginVariable(service: Service): string {
  return `COUNTERSTAMP_${service.toUpperCase()}_DATABASE_URL`;
}

function nonEmpty(text: string | undefined): string | undefined {
  return text === '' ? undefined : text;
}
