import { createHash } from 'node:crypto';
import { setTimeout as delay } from 'node:timers/promises';
import {
  connect,
  createApiKey,
  HOLD_ALL,
  migrate,
  parseApiKey,
  type Sql,
  serviceUrl,
} from '@counterstamp/manifest-store';
import { createApiStore } from '@counterstamp/manifest-store/api';
import { checkRedis, migrateQueue } from '@counterstamp/stage-queue';
import { randomIds } from '@counterstamp/stage-runtime';
import { CliFailure, EXIT, explain } from '../failure.ts';
import { DEMO_GROUPS, DEMO_PEOPLE, DEMO_TENANTS, type DemoPerson, demoName } from './demo-keys.ts';
import type { PrepareAnswer, Prepared, PrepareRequest } from './prepare-message.ts';
import { FLEET, type FleetService } from './service-environment.ts';
import type { DemoKeys } from './state-folder.ts';

// A process of its own, which `up` starts and waits for: the drivers that are needed once do not stay in its memory.

/** Milliseconds that a fleet which was just killed may take to leave the database. */
const LEAVE_MS = 15_000;

process.once('message', (request) => {
  // Sent by this version's own `up`, a moment ago.
  prepare(request as PrepareRequest)
    .catch((error: unknown): PrepareAnswer => ({ kind: 'failed', ...explain(error) }))
    .then((answer) => process.send?.(answer, () => process.exit(0)))
    .catch(() => process.exit(1));
});
process.once('disconnect', () => process.exit(1));

async function prepare(request: PrepareRequest): Promise<PrepareAnswer> {
  const redis = request.redis_url === undefined ? undefined : await acceptRedis(request.redis_url);
  const owner = connect(request.owner_url, { max: 2, applicationName: 'counterstamp up' });
  try {
    const server = await describeServer(owner);
    const urlOf = (service: FleetService) =>
      request.given_urls[service] ?? serviceUrl(request.owner_url, service, request.secret, request.role_prefix);
    const service_urls = Object.fromEntries(FLEET.map((service) => [service, urlOf(service)])) as Record<
      FleetService,
      string
    >;
    const makesRoles = request.embedded || (await mayMakeRoles(owner, server, request, Object.values(service_urls)));
    if (!request.embedded) await refuseSecondFleet(owner, server.database);

    const migrations = await migrate(request.owner_url, {
      rolePrefix: request.role_prefix,
      ...(makesRoles ? { secret: request.secret } : {}),
    });
    if (request.redis_url === undefined) {
      await migrateQueue(request.owner_url, {
        grantTo: Object.values(service_urls).map((url) => new URL(url).username),
      });
    }
    const { keys, made } = await demoKeys(owner, service_urls.api, request.keys);
    const holds = await holdDispatches(service_urls.api, keys, request.hold);
    return {
      kind: 'prepared',
      server_version: server.version,
      database: server.database,
      migrations,
      service_urls,
      queue_prefix: request.queue_prefix ?? queuePrefix(server),
      redis,
      keys,
      keys_made: made,
      holds,
    } satisfies Prepared;
  } finally {
    await owner.end({ timeout: 2 });
  }
}

async function acceptRedis(url: string): Promise<string> {
  const check = await checkRedis(url);
  if (check.kind === 'ok') return `${check.flavour === 'valkey' ? 'Valkey' : 'Redis'} ${check.version}`;
  const exit = check.code === 'queue.redis_unreachable' ? EXIT.refused : EXIT.configuration;
  throw new CliFailure(check.message, 'Or leave REDIS_URL unset: the queues then live in Postgres.', exit);
}

interface Server {
  version: string;
  user: string;
  database: string;
  makes_roles: boolean;
  /** Names this cluster; null where the owner may not read it. */
  system: string | null;
}

async function describeServer(owner: Sql): Promise<Server> {
  const [row] = await owner<Omit<Server, 'system'>[]>`
    select current_setting('server_version') as version, current_user as user, current_database() as database,
           (select rolsuper or rolcreaterole from pg_roles where rolname = current_user) as makes_roles`;
  if (row === undefined) throw new Error('Postgres does not say who we are');
  const system = await owner<{ id: string }[]>`select system_identifier::text as id from pg_control_system()`.then(
    (rows) => rows[0]?.id ?? null,
    () => null,
  );
  return { ...row, system };
}

/** Two installations on one Redis must not take each other's hints: the prefix names the database. */
function queuePrefix(server: Server): string {
  const place = createHash('sha256')
    .update(`${server.system ?? 'unknown'}/${server.database}`)
    .digest('hex')
    .slice(0, 12);
  return `counterstamp_${place}`;
}

/**
 * Whether `migrate` shall create the roles and set their passwords.
 * @throws {CliFailure} when it would have to and may not, or when that would lock another running fleet out.
 */
async function mayMakeRoles(
  owner: Sql,
  server: Server,
  request: PrepareRequest,
  urls: readonly string[],
): Promise<boolean> {
  const logins = await Promise.all(urls.map(canLogIn));
  const allGiven = Object.keys(request.given_urls).length === FLEET.length;
  if (logins.every((login) => login)) return server.makes_roles && !allGiven;
  if (allGiven) {
    throw new CliFailure(
      'The logins of COUNTERSTAMP_…_DATABASE_URL are not accepted.',
      'Correct their passwords, or remove these variables to have the logins made.',
      EXIT.configuration,
    );
  }
  if (!server.makes_roles) {
    throw new CliFailure(
      `The user ${server.user} of DATABASE_URL may not create roles, and the roles ${request.role_prefix}* do not take this installation's passwords.`,
      'Have an administrator run what `counterstamp migrate --print-roles` prints (with the same COUNTERSTAMP_SECRET), or give DATABASE_URL a user with CREATEROLE.',
      EXIT.configuration,
    );
  }
  const users = urls.map((url) => new URL(url).username);
  const [row] = await owner<{ count: number }[]>`
    select count(*)::int as count from pg_stat_activity where usename in ${owner(users)}`;
  if ((row?.count ?? 0) > 0) {
    throw new CliFailure(
      `Another installation is logged in to this server as ${request.role_prefix}*, with another secret.`,
      'Give both the same COUNTERSTAMP_SECRET, or this one a COUNTERSTAMP_ROLE_PREFIX of its own.',
      EXIT.configuration,
    );
  }
  return true;
}

async function canLogIn(url: string): Promise<boolean> {
  const sql = connect(url, { max: 1, applicationName: 'counterstamp up' });
  try {
    await sql`select 1`;
    return true;
  } catch {
    return false;
  } finally {
    await sql.end({ timeout: 1 });
  }
}

/** Two fleets on one database would act on each other's runs, each with its own sandbox. One that was killed gets time to leave. */
async function refuseSecondFleet(owner: Sql, database: string): Promise<void> {
  const endsAt = performance.now() + LEAVE_MS;
  for (;;) {
    const rows = await owner<{ name: string }[]>`
      select distinct application_name as name from pg_stat_activity
       where datname = current_database() and application_name like 'counterstamp-%' order by 1`;
    if (rows.length === 0) return;
    if (performance.now() > endsAt) {
      throw new CliFailure(
        `Another fleet works on the database ${database}: ${rows.map((row) => row.name).join(', ')}.`,
        'Stop it first, or give this one a database of its own.',
      );
    }
    await delay(500);
  }
}

/** What is on hold once `wanted` is done: a hold on everything, by the demo operator, unless somebody has set one already. */
async function holdDispatches(apiUrl: string, keys: DemoKeys, wanted: boolean): Promise<Prepared['holds']> {
  const sql = connect(apiUrl, { max: 1, applicationName: 'counterstamp up' });
  const store = createApiStore(sql);
  const [tenant] = DEMO_TENANTS;
  try {
    let holds = await store.holds(tenant);
    if (wanted && !holds.some((hold) => hold.scope === HOLD_ALL)) {
      const key = parseApiKey(keys[tenant]?.operator ?? '');
      const operator = key === undefined ? undefined : await store.authenticate(key.key_id, key.secret_hash);
      if (operator === undefined) throw new Error('the demo operator has no key');
      await store.setHold(operator, HOLD_ALL, 'started with --hold');
      holds = await store.holds(tenant);
    }
    return holds.map(({ scope, reason }) => ({ scope: scope === HOLD_ALL ? 'everything' : scope, reason }));
  } finally {
    await sql.end({ timeout: 2 });
  }
}

/** The demo keys that the database still accepts, and new ones for the rest. */
async function demoKeys(owner: Sql, apiUrl: string, kept: DemoKeys): Promise<{ keys: DemoKeys; made: number }> {
  const sql = connect(apiUrl, { max: 2, applicationName: 'counterstamp up' });
  const store = createApiStore(sql);
  const keys: DemoKeys = {};
  let made = 0;
  try {
    for (const tenant of DEMO_TENANTS) {
      const own: Record<string, string> = {};
      for (const [person, role] of Object.entries(DEMO_PEOPLE)) {
        const known = kept[tenant]?.[person];
        const parsed = known === undefined ? undefined : parseApiKey(known);
        const principal =
          parsed === undefined ? undefined : await store.authenticate(parsed.key_id, parsed.secret_hash);
        if (known !== undefined && principal?.tenant_id === tenant && principal.role === role) {
          own[person] = known;
          continue;
        }
        const fresh = await createApiKey(owner, randomIds, {
          tenant_id: tenant,
          name: demoName(person as DemoPerson),
          role,
          groups: DEMO_GROUPS[person as DemoPerson] ?? [],
        });
        own[person] = fresh.key;
        made += 1;
      }
      keys[tenant] = own;
    }
    return { keys, made };
  } finally {
    await sql.end({ timeout: 2 });
  }
}
