import type { Service } from '@counterstamp/manifest-core';
import {
  connect,
  DEFAULT_ROLE_PREFIX,
  loginReport,
  migrationStanding,
  type RoleReport,
  roleName,
  roleReports,
  type Sql,
} from '@counterstamp/manifest-store';
import { bounded } from './bounded.ts';
import { type Finding, failed, ok, warning } from './finding.ts';
import type { Subject } from './subject.ts';

/** Oldest PostgreSQL that is tested. */
const OLDEST_MAJOR = 15;

/** Milliseconds between the clocks above which logs of the two are hard to read together. Nothing is decided by this machine's clock. */
const CLOCK_MAX_MS = 1_000;

/** How often the clock is asked; the quickest answer counts. */
const CLOCK_ASKS = 3;

const MIGRATE = 'Run `counterstamp migrate` as the database’s owner.';
const CORRECT = 'Correct what this says, then look again.';

/** Opens a connection for one check and closes it again, however the check ends. */
async function looking<T>(url: string, look: (sql: Sql) => Promise<T>): Promise<T> {
  const sql = connect(url, { max: 1, applicationName: 'counterstamp doctor' });
  try {
    return await look(sql);
  } finally {
    void sql.end({ timeout: 1 });
  }
}

/** Whether each service's own login is accepted, is the service that it should be, and carries its timeouts. */
export async function loginFindings({ services }: Pick<Subject, 'services'>): Promise<Finding[]> {
  const found = await Promise.all(
    services.map(async ({ service, connections }): Promise<Finding[]> => {
      if (connections === undefined) return [];
      const check = `login of ${service}`;
      const { database_url } = connections;
      const login = userOf(database_url);
      const looked = await bounded(looking(database_url, (sql) => loginReport(sql, service)));
      if (looked.kind === 'failed')
        return [
          failed(
            check,
            `${login}: ${looked.sentence}`,
            looked.sentence.startsWith('Postgres cannot be reached')
              ? 'Start Postgres, or correct the host and port of this URL.'
              : 'Correct the URL or the password of this login, or make it with `counterstamp migrate` and the same COUNTERSTAMP_SECRET.',
          ),
        ];
      const { fault, settings } = looked.value;
      if (fault !== undefined) return [failed(check, sentence(fault), MIGRATE)];
      if (settings.length > 0) {
        const wrong = settings.map(({ name, expected, found: is }) => `${name} is ${is}, not ${expected}`).join(', ');
        return [
          failed(
            check,
            `${login}: ${wrong}.`,
            'Run the `alter role … set …` lines that `counterstamp migrate --print-roles` prints; a stopped worker would otherwise hold what it locked.',
          ),
        ];
      }
      return [ok(check, `${login} is accepted as ${service}, with its isolation, durability and timeouts.`)];
    }),
  );
  return found.flat();
}

/** The server, the clock, the migrations, the roles and what is on hold: what all services share. Read-only. */
export async function databaseFindings(subject: Subject): Promise<Finding[]> {
  const url = subject.owner_url ?? anyLogin(subject);
  if (url === undefined) return [];
  const looked = await bounded(looking(url, describeServer));
  if (looked.kind === 'failed') {
    return [failed('database', looked.sentence, looked.next ?? CORRECT)];
  }
  const shared = await Promise.all([
    migrationFindings(subject.owner_url),
    clockFindings(url),
    roleFindings(url, subject),
    holdFindings(subject),
  ]);
  return [...serverFindings(looked.value), ...shared.flat()];
}

interface Server {
  version: string;
  major: number;
  fsync: string;
  full_page_writes: string;
}

async function describeServer(sql: Sql): Promise<Server> {
  const [row] = await sql<Server[]>`
    select current_setting('server_version') as version, current_setting('server_version_num')::int / 10000 as major,
      current_setting('fsync') as fsync, current_setting('full_page_writes') as full_page_writes`;
  if (row === undefined) throw new Error('Postgres does not say what it is');
  return row;
}

function serverFindings({ version, major, fsync, full_page_writes }: Server): Finding[] {
  const check = 'database';
  if (major < OLDEST_MAJOR) {
    return [
      failed(check, `PostgreSQL ${version} is older than ${OLDEST_MAJOR}.`, `Use PostgreSQL ${OLDEST_MAJOR} or newer.`),
    ];
  }
  if (fsync !== 'on' || full_page_writes !== 'on') {
    return [
      warning(
        check,
        `PostgreSQL ${version} runs with fsync ${fsync} and full_page_writes ${full_page_writes}: after a crash of the machine an acknowledged dispatch may be forgotten.`,
        'Set both to on wherever real effects are made.',
      ),
    ];
  }
  return [ok(check, `PostgreSQL ${version.split(' ')[0]} answers and keeps what it acknowledges.`)];
}

async function migrationFindings(ownerUrl: string | undefined): Promise<Finding[]> {
  const check = 'migrations';
  if (ownerUrl === undefined) {
    return [
      warning(
        check,
        'Only the owner may see which migrations were applied, and no DATABASE_URL is given.',
        'Set DATABASE_URL to the owner’s URL for this check; no service needs it.',
      ),
    ];
  }
  const looked = await bounded(migrationStanding(ownerUrl));
  if (looked.kind === 'failed') return [failed(check, looked.sentence, looked.next ?? CORRECT)];
  const { pending, unknown } = looked.value;
  if (pending.length > 0) return [failed(check, `Pending: ${pending.join(', ')}.`, MIGRATE)];
  if (unknown > 0) {
    return [
      warning(
        check,
        `The database has ${unknown} migration${unknown === 1 ? '' : 's'} that this version does not know.`,
        'After a roll-back within one minor version that is as it should be (docs/operations/upgrade.md); else use the version that migrated it.',
      ),
    ];
  }
  return [ok(check, 'none is pending.')];
}

/** How far this machine's clock is from the database's, by the quickest of a few questions. Pure. */
export function clockDifference(asks: readonly { sentMs: number; database_ms: number; gotMs: number }[]): {
  difference_ms: number;
  uncertain_ms: number;
} {
  const quickest = asks.reduce((best, one) => (one.gotMs - one.sentMs < best.gotMs - best.sentMs ? one : best));
  const uncertain_ms = (quickest.gotMs - quickest.sentMs) / 2;
  return {
    difference_ms: Math.round(quickest.sentMs + uncertain_ms - quickest.database_ms),
    uncertain_ms: Math.ceil(uncertain_ms),
  };
}

async function clockFindings(url: string): Promise<Finding[]> {
  const check = 'clock';
  const looked = await bounded(
    looking(url, async (sql) => {
      const asks = [];
      for (let ask = 0; ask < CLOCK_ASKS; ask++) {
        const sentMs = Date.now();
        const [row] = await sql<{ ms: number }[]>`select (extract(epoch from clock_timestamp()) * 1000)::float8 as ms`;
        asks.push({ sentMs, database_ms: row?.ms ?? Number.NaN, gotMs: Date.now() });
      }
      return clockDifference(asks);
    }),
  );
  if (looked.kind === 'failed') return [failed(check, looked.sentence, looked.next ?? CORRECT)];
  const { difference_ms, uncertain_ms } = looked.value;
  const apart = `This machine’s clock is ${Math.abs(difference_ms)} ms ${difference_ms < 0 ? 'behind' : 'ahead of'} the database’s (± ${uncertain_ms} ms)`;
  if (Math.abs(difference_ms) - uncertain_ms > CLOCK_MAX_MS) {
    return [
      warning(
        check,
        `${apart}; the database’s decides every expiry and deadline, but logs of the two cannot be read together.`,
        'Let both machines follow the same time server.',
      ),
    ];
  }
  return [ok(check, `${apart}.`)];
}

async function roleFindings(url: string, { services }: Subject): Promise<Finding[]> {
  const roles: Partial<Record<Service, string>> = Object.fromEntries(
    services.map(({ service, env, connections }) => [
      service,
      connections !== undefined
        ? userOf(connections.database_url)
        : roleName(prefixOf(env.COUNTERSTAMP_ROLE_PREFIX), service),
    ]),
  );
  const looked = await bounded(looking(url, (sql) => roleReports(sql, roles)));
  if (looked.kind === 'failed') return [failed('roles', looked.sentence, looked.next ?? CORRECT)];
  return looked.value.flatMap(roleFinding);
}

/** What a role's report means. Pure. */
export function roleFinding({ service, role, exists, powers, missing, excess }: RoleReport): Finding[] {
  const check = `role of ${service}`;
  if (!exists) {
    return [
      failed(
        check,
        `The role ${role} does not exist.`,
        'Run `counterstamp migrate` with COUNTERSTAMP_SECRET, or have an administrator run what `counterstamp migrate --print-roles` prints.',
      ),
    ];
  }
  const found: Finding[] = [];
  if (powers.length > 0) {
    found.push(
      failed(
        check,
        `${role} is more than a plain login: ${powers.join(', ')}.`,
        `Take that away with \`alter role ${role} nosuperuser nocreatedb nocreaterole noinherit nobypassrls noreplication login\` and \`revoke … from ${role}\`.`,
      ),
    );
  }
  if (excess.length > 0) {
    found.push(
      failed(
        check,
        `${role} may do what is not its own: ${listed(excess)}.`,
        'Run `counterstamp migrate` as the owner: it revokes everything and grants anew; what was granted to single columns has to be revoked by hand.',
      ),
    );
  }
  if (missing.length > 0) found.push(failed(check, `${role} lacks: ${listed(missing)}.`, MIGRATE));
  return found.length > 0
    ? found
    : [ok(check, `${role} is a plain login with exactly its own functions and no right to write a table.`)];
}

async function holdFindings(subject: Subject): Promise<Finding[]> {
  const url = anyLogin(subject) ?? subject.owner_url;
  if (url === undefined) return [];
  const looked = await bounded(
    looking(url, (sql) => sql<{ scope: string; reason: string }[]>`select scope, reason from cs.hold order by scope`),
  );
  // A database without our tables is another check's finding.
  if (looked.kind === 'failed') return [];
  return looked.value.map(({ scope, reason }) =>
    warning(
      'hold',
      `${scope === '*' ? 'Every dispatch is' : `Dispatches to ${scope} are`} on hold: ${reason}`,
      `When it is over: \`counterstamp hold release${scope === '*' ? '' : ` --connector ${scope}`}\`.`,
    ),
  );
}

function anyLogin({ services }: Pick<Subject, 'services'>): string | undefined {
  return services.find(({ connections }) => connections !== undefined)?.connections?.database_url;
}

function userOf(url: string): string {
  return decodeURIComponent(new URL(url).username);
}

function prefixOf(given: string | undefined): string {
  return given !== undefined && /^[a-z][a-z0-9_]{0,30}$/.test(given) ? given : DEFAULT_ROLE_PREFIX;
}

/** The first few of a list; a role without any grant lacks dozens of rights. */
function listed(what: readonly string[]): string {
  const FEW = 6;
  return what.length <= FEW ? what.join(', ') : `${what.slice(0, FEW).join(', ')} and ${what.length - FEW} more`;
}

function sentence(text: string): string {
  return `${text.charAt(0).toUpperCase()}${text.slice(1)}.`;
}
