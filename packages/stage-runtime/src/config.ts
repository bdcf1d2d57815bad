import {
  type Durations,
  durationFaults,
  type FailpointName,
  LIMITS,
  type Limits,
  PROFILES,
  type Profile,
  type Service,
  type Stage,
} from '@counterstamp/manifest-core';
import {
  createSealing,
  DEFAULT_ROLE_PREFIX,
  parseDataKeys,
  type Sealing,
  serviceUrl,
} from '@counterstamp/manifest-store';
import type { QueueSettings } from '@counterstamp/stage-queue';
import type { TracingSettings } from '@counterstamp/telemetry';
import { z } from 'zod';
import { type FailpointAction, parseFailpoints } from './ports/failpoint.ts';
import { withSecretFiles } from './secret-files.ts';
import { TRACING_VARIABLES, tracingOf } from './tracing-environment.ts';
import { variable } from './variable.ts';

/** The process environment before it is parsed. */
export type Environment = Readonly<Record<string, string | undefined>>;

/** What every service needs; each service's `config.ts` adds its own. */
export interface ServiceConfig {
  service: Service;
  /** The service's own login. */
  database_url: string;
  queue: QueueSettings;
  profile: Profile;
  durations: Durations;
  limits: Limits;
  /** COUNTERSTAMP_DEV=1: approver keys and failpoints are permitted. */
  development: boolean;
  failpoints: ReadonlyMap<FailpointName, FailpointAction>;
  /** What seals and opens personal data; absent only in development, where it stays in plain text. */
  sealing?: Sealing;
  log_level: string;
  /** Absent: nothing is traced. */
  tracing?: TracingSettings;
  http_host: string;
  /** 0: any free port. */
  http_port: number;
  /** Hints of each of the service's stages that the process works on at a time. */
  concurrency: Partial<Record<Stage, number>>;
  /** Connections of the process's pool to the database. */
  database_connections: number;
}

export type ConfigResult<C> = { ok: true; config: C } | { ok: false; faults: string[] };

const { url, wholeNumber, flag } = variable;

const LOG_LEVELS = ['trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent'];

/** What every service takes. Each member says what it means; docs/reference/configuration.md is rendered from here. */
export const Common = z.object({
  DATABASE_URL: url('postgres:', 'postgresql:')
    .optional()
    .describe(
      'URL of the database’s owner: for `counterstamp migrate` and `up`. A service takes server and database from it where its own login is derived',
    ),
  COUNTERSTAMP_SECRET: z
    .string()
    .min(16, 'must have at least 16 characters')
    .optional()
    .describe(
      'the passwords of the services’ logins are derived from it, in development; elsewhere each service gets its own URL. At least 16 characters',
    ),
  COUNTERSTAMP_ROLE_PREFIX: z
    .string()
    .regex(/^[a-z][a-z0-9_]{0,30}$/, 'must be lower-case letters, digits and _')
    .default(DEFAULT_ROLE_PREFIX)
    .describe('what the names of the services’ roles begin with: roles are shared by all databases of a server'),
  REDIS_URL: url('redis:', 'rediss:')
    .optional()
    .describe('Redis or Valkey with maxmemory-policy noeviction, for the queues; absent: the queues are in Postgres'),
  COUNTERSTAMP_QUEUE_PREFIX: z
    .string()
    .regex(/^[A-Za-z0-9_-]{1,64}$/, 'must be letters, digits, _ and -')
    .optional()
    .describe('what every key in Redis begins with, so that two installations can share one; absent: counterstamp'),
  COUNTERSTAMP_PROFILE: z
    .enum(Object.keys(PROFILES) as [Profile, ...Profile[]])
    .default('production')
    .describe('which durations apply where none is set: production, or fast for demonstration and tests'),
  COUNTERSTAMP_DEV: flag
    .default(false)
    .describe('1: keys may approve, and failpoints may be armed. Never in production'),
  COUNTERSTAMP_DATA_KEY: z
    .string()
    .optional()
    .describe(
      'seals personal data in the database: 32 random bytes as base64url, the same for every service; several with commas between while a key is replaced, the first for what is new. Required outside development; lost, what it sealed is lost too',
    ),
  COUNTERSTAMP_FAILPOINTS: z
    .string()
    .default('')
    .describe(
      'places where the process kills, stops or delays itself, for tests: name=kill, name=stop, name=wait:MS, or *=folder:PATH to arm them while it runs',
    ),
  COUNTERSTAMP_HTTP_HOST: z
    .string()
    .min(1)
    .default('127.0.0.1')
    .describe('address to listen at; of the workers for /healthz, /readyz and /metrics only'),
  COUNTERSTAMP_HTTP_PORT: wholeNumber(65_535).optional().describe('port to listen at; 0: any free one'),
  COUNTERSTAMP_CONCURRENCY: wholeNumber(1_000, 1)
    .optional()
    .describe(
      'hints of one queue that the process works on at a time, 1 to 1000; COUNTERSTAMP_CONCURRENCY_<STAGE> says otherwise for one stage of the service',
    ),
  LOG_LEVEL: z
    .enum(LOG_LEVELS)
    .default('info')
    .describe(`what is logged: ${LOG_LEVELS.join(', ')}`),
  ...TRACING_VARIABLES,
});

/** Hints of one queue that a process works on at a time when nobody says otherwise. */
export const CONCURRENCY_DEFAULT = 16;

/** The stages that each service works on. */
const STAGES_OF: Readonly<Record<Service, readonly Stage[]>> = {
  api: [],
  preflight: ['preflight', 'collect', 'propose'],
  executor: ['execute'],
  verifier: ['verify'],
  reconciler: ['reconcile'],
};

/** The concurrency of each stage of a service; of no other, which another process works on. */
export function concurrencyVariables(service: Service): z.ZodObject<Record<string, z.ZodOptional<z.ZodType<number>>>> {
  return z.object(
    Object.fromEntries(
      STAGES_OF[service].map((stage) => [
        concurrencyVariable(stage),
        wholeNumber(1_000, 1)
          .optional()
          .describe(
            `hints of the queue ${stage} that the process works on at a time; absent: COUNTERSTAMP_CONCURRENCY`,
          ),
      ]),
    ),
  );
}

function concurrencyVariable(stage: Stage): string {
  return `COUNTERSTAMP_CONCURRENCY_${stage.toUpperCase()}`;
}

/** Connections that a process's pool has at least and at most, and the hints under work for which it gets one more. */
const CONNECTIONS_MIN = 5;
const CONNECTIONS_MAX = 20;
const HINTS_PER_CONNECTION = 10;

/**
 * A hint under work mostly waits for systems outside and needs the database for a few milliseconds, one statement at a time: one connection serves
 * ten. Above the most, statements wait for each other; more processes help then, if the database can take more at all.
 */
function connectionsFor(concurrency: ServiceConfig['concurrency']): number {
  const hints = Object.values(concurrency).reduce((sum, one) => sum + one, 0);
  return Math.min(CONNECTIONS_MAX, Math.max(CONNECTIONS_MIN, Math.ceil(hints / HINTS_PER_CONNECTION)));
}

/**
 * The durations that an environment sets: those of its profile, changed one by one by `COUNTERSTAMP_<NAME>_MS`. `faults`: what is no number,
 * and every inequality between them that does not hold.
 */
export function parseDurations(env: Environment, profile: Profile): { durations: Durations; faults: string[] } {
  const faults: string[] = [];
  const durations: Durations = { ...PROFILES[profile] };
  for (const name of Object.keys(durations) as (keyof Durations)[]) {
    const text = env[durationVariable(name)];
    if (text === undefined || text === '') continue;
    if (/^\d{1,12}$/.test(text)) durations[name] = Number(text);
    else faults.push(`${durationVariable(name)}: must be a whole number of milliseconds`);
  }
  faults.push(...durationFaults(durations, profile));
  return { durations, faults };
}

/** The variable that sets one duration. */
export function durationVariable(name: keyof Durations): string {
  return `COUNTERSTAMP_${name.toUpperCase()}`;
}

/**
 * Parses a service's environment: the common variables, the durations (`COUNTERSTAMP_<NAME>_MS`, e.g. COUNTERSTAMP_CALL_DEADLINE_MS) and the
 * service's own `schema`. A secret may be given as a file (`NAME_FILE`). Every problem is reported at once, as a sentence that names its
 * variable.
 */
export function parseServiceConfig<S extends z.ZodRawShape>(
  service: Service,
  env: Environment,
  schema: z.ZodObject<S>,
  defaults: { http_port: number; concurrency?: number },
): ConfigResult<ServiceConfig & { own: z.output<z.ZodObject<S>> }> {
  const given = withSecretFiles(env);
  const faults: string[] = [...given.faults];
  const set = Object.fromEntries(Object.entries(given.env).filter(([, value]) => value !== undefined && value !== ''));
  const common = collect(Common, set, faults);
  const own = collect(schema, set, faults);
  const ofStages = collect(concurrencyVariables(service), set, faults);

  const profile = common?.COUNTERSTAMP_PROFILE ?? 'production';
  const { durations, faults: ofDurations } = parseDurations(set, profile);
  faults.push(...ofDurations);

  const development = common?.COUNTERSTAMP_DEV ?? false;
  const failpoints = parseFailpoints(common?.COUNTERSTAMP_FAILPOINTS ?? '');
  faults.push(...failpoints.faults.map((fault) => `COUNTERSTAMP_FAILPOINTS: ${fault}`));
  if (failpoints.actions.size > 0 && !development)
    faults.push('COUNTERSTAMP_FAILPOINTS: failpoints are for development; set COUNTERSTAMP_DEV=1 or remove them');

  const sealing = sealingOf(common?.COUNTERSTAMP_DATA_KEY, common !== undefined && !development, faults);

  const tracing = common === undefined ? undefined : tracingOf(common, faults);

  const database_url = common === undefined ? undefined : databaseUrl(service, set, common, faults);
  if (
    common === undefined ||
    own === undefined ||
    ofStages === undefined ||
    database_url === undefined ||
    faults.length > 0
  ) {
    const missing = [...given.unread].map((name) => `${name}: is required`);
    return { ok: false, faults: faults.filter((fault) => !missing.some((start) => fault.startsWith(start))) };
  }

  const ofAll = common.COUNTERSTAMP_CONCURRENCY ?? defaults.concurrency ?? CONCURRENCY_DEFAULT;
  const concurrency: ServiceConfig['concurrency'] = Object.fromEntries(
    STAGES_OF[service].map((stage) => [stage, ofStages[concurrencyVariable(stage)] ?? ofAll]),
  );
  return {
    ok: true,
    config: {
      service,
      database_url,
      queue: queueSettings(common, database_url),
      profile,
      durations,
      limits: LIMITS,
      development,
      failpoints: failpoints.actions,
      ...(sealing === undefined ? {} : { sealing }),
      log_level: common.LOG_LEVEL,
      ...(tracing === undefined ? {} : { tracing }),
      http_host: common.COUNTERSTAMP_HTTP_HOST,
      http_port: common.COUNTERSTAMP_HTTP_PORT ?? defaults.http_port,
      concurrency,
      database_connections: connectionsFor(concurrency),
      own,
    },
  };
}

/** What a schema makes of the environment. Variables with a fault are reported and then left out, so that the rest can be judged too. */
function collect<T>(schema: z.ZodType<T>, env: Record<string, string | undefined>, faults: string[]): T | undefined {
  const result = schema.safeParse(env);
  if (result.success) return result.data;
  faults.push(
    ...result.error.issues.map(
      (issue) => `${issue.path.join('.')}: ${issue.code === 'invalid_type' ? 'is required' : issue.message}`,
    ),
  );
  const faulty = new Set(result.error.issues.map((issue) => issue.path[0]));
  return schema.safeParse(Object.fromEntries(Object.entries(env).filter(([name]) => !faulty.has(name)))).data;
}

function sealingOf(text: string | undefined, required: boolean, faults: string[]): Sealing | undefined {
  if (text === undefined) {
    if (required) faults.push('COUNTERSTAMP_DATA_KEY: is required, or personal data would be kept in plain text');
    return undefined;
  }
  const parsed = parseDataKeys(text);
  if (!parsed.ok) faults.push(`COUNTERSTAMP_DATA_KEY: ${parsed.fault}`);
  return parsed.ok ? createSealing(parsed.keys) : undefined;
}

function databaseUrl(
  service: Service,
  env: Record<string, string | undefined>,
  common: z.output<typeof Common>,
  faults: string[],
): string | undefined {
  const name = `COUNTERSTAMP_${service.toUpperCase()}_DATABASE_URL`;
  const given = env[name];
  if (given !== undefined) {
    const parsed = url('postgres:', 'postgresql:').safeParse(given);
    if (!parsed.success) faults.push(`${name}: ${parsed.error.issues[0]?.message}`);
    return parsed.data;
  }
  if (common.DATABASE_URL !== undefined && common.COUNTERSTAMP_SECRET !== undefined) {
    return serviceUrl(common.DATABASE_URL, service, common.COUNTERSTAMP_SECRET, common.COUNTERSTAMP_ROLE_PREFIX);
  }
  // Given, but with a fault that is reported already.
  if (env.DATABASE_URL !== undefined && env.COUNTERSTAMP_SECRET !== undefined) return undefined;
  faults.push(
    `${name}: is required (or DATABASE_URL together with COUNTERSTAMP_SECRET, from which the service's own login is derived)`,
  );
  return undefined;
}

function queueSettings(common: z.output<typeof Common>, database_url: string): QueueSettings {
  if (common.REDIS_URL === undefined) return { backend: 'postgres', url: database_url };
  return {
    backend: 'redis',
    url: common.REDIS_URL,
    ...(common.COUNTERSTAMP_QUEUE_PREFIX === undefined ? {} : { prefix: common.COUNTERSTAMP_QUEUE_PREFIX }),
  };
}
