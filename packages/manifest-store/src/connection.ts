import { backoffMs } from '@counterstamp/manifest-core';
import postgres from 'postgres';
import { elapsed, withDeadline } from './ports/deadline.ts';
import { asTransaction, counted } from './ports/open-statements.ts';
import { StoreUnavailable } from './store-unavailable.ts';

export type Sql = postgres.Sql;
/** What runs one statement after the other: a pool, or a transaction of one. */
export type Statements = postgres.ISql;

/** The caller may not do this: a principal disabled since its key was checked, or a login that is not the service it claims to be. */
export class NotPermitted extends Error {
  override readonly name = 'NotPermitted';
}

/**
 * SQLSTATEs and driver codes after which the statement may simply be tried again later: connection lost, resources short, the server going
 * down, a lock not had in time (55P03), a deadlock (40P01), a serialization failure (40001), an unknown completion (40003), a server that turned
 * read-only under us at a failover (25006).
 */
const UNAVAILABLE =
  /^(?:08|57|53|58|XX)|^(?:55P03|40P01|40001|40003|25006)$|^(?:CONNECTION_|CONNECT_TIMEOUT|ECONN|EPIPE|ENOTFOUND|EAI_AGAIN|ETIMEDOUT|EHOSTUNREACH|ENETUNREACH)/;

/** Connections of a process at most when nobody says otherwise: a worker needs few, since each commit is one statement. */
const POOL_MAX = 5;

/** Opens a pool of at most `max` connections. Statements run as prepared ones: one round trip each. */
export function connect(url: string, options: { max?: number; applicationName: string }): Sql {
  return postgres(url, {
    max: options.max ?? POOL_MAX,
    connect_timeout: 5,
    backoff: reconnectDelayS,
    keep_alive: 15,
    fetch_types: false,
    onnotice: () => undefined,
    connection: { application_name: options.applicationName, TimeZone: 'UTC' },
  });
}

/**
 * Opens the one connection of a session lease: never closed for its age, and probed from both ends, so that a cut network or a vanished host frees
 * the lease within a quarter of a minute. It must reach Postgres itself: a pooler that shares sessions would lend the lease to others.
 */
export function connectForLease(url: string, options: { applicationName: string; onClose: () => void }): Sql {
  return postgres(url, {
    max: 1,
    max_lifetime: null,
    connect_timeout: 5,
    backoff: reconnectDelayS,
    keep_alive: 5,
    fetch_types: false,
    onnotice: () => undefined,
    onclose: options.onClose,
    connection: {
      application_name: options.applicationName,
      TimeZone: 'UTC',
      tcp_keepalives_idle: 5,
      tcp_keepalives_interval: 2,
      tcp_keepalives_count: 4,
    },
  });
}

/**
 * Seconds before a closed connection is opened again, after `failures` in a row. The driver's own delay grows to 20 s: a caller would wait as long for
 * the news that the database is away, and a worker would stay idle as long after it is back.
 */
function reconnectDelayS(failures: number): number {
  return backoffMs(failures, 20, 1_000) / 1_000;
}

/** Longest wait for an answer, in milliseconds: the server itself ends a statement after 10 s, so a longer silence is a dead connection. */
const ANSWER_MAX_MS = 12_000;

/**
 * Milliseconds from a socket's error to its close, with room: a statement in between is put on the dead connection, and the driver never
 * answers it (postgres.js 3.4.9, its pull request 1142).
 */
const CLOSED_AFTER_MS = 10;

/** Runs a statement; failures of the connection become `StoreUnavailable`, everything else is a bug and passes through. */
export function answered<T>(query: PromiseLike<T>): Promise<T> {
  return counted(
    () => answer(query),
    (error) => error instanceof StoreUnavailable,
  );
}

async function answer<T>(query: PromiseLike<T>): Promise<T> {
  try {
    return await withDeadline(query, ANSWER_MAX_MS);
  } catch (error) {
    if (error instanceof StoreUnavailable) throw error;
    const code = error instanceof Error && 'code' in error ? String(error.code) : '';
    if (connectionIsGone(error)) await elapsed(CLOSED_AFTER_MS);
    if (UNAVAILABLE.test(code)) throw new StoreUnavailable(`the database does not answer (${code})`, { cause: error });
    if (code === 'CS005') throw new NotPermitted('the caller may not do this', { cause: error });
    throw error;
  }
}

/** Runs `work` in one transaction: all of it happens, or nothing. */
export async function transaction<T>(
  sql: Sql,
  work: (tx: Statements) => Promise<T>,
  mode: 'read write' | 'read only' = 'read write',
): Promise<T> {
  const done = await sql.begin(mode, async (tx) => {
    try {
      return { result: await asTransaction(() => work(tx)) };
    } catch (error) {
      // The driver would answer with a ROLLBACK, whose write to the closed socket ends the process. Without our answer it rejects at the close.
      if (connectionIsGone(error)) return new Promise<never>(() => undefined);
      throw error;
    }
  });
  return done.result;
}

function connectionIsGone(error: unknown): boolean {
  if (error instanceof postgres.PostgresError) return error.severity !== 'ERROR';
  return error instanceof Error && 'code' in error && UNAVAILABLE.test(String(error.code));
}
