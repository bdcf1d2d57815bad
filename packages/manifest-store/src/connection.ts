import postgres from 'postgres';
import { withDeadline } from './ports/deadline.ts';
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

/**
 * Opens a pool. Statements run as prepared ones: one round trip each.
 * @param max connections at most; a worker needs few, since each commit is one statement.
 */
export function connect(url: string, options: { max?: number; applicationName: string }): Sql {
  return postgres(url, {
    max: options.max ?? 5,
    connect_timeout: 5,
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

/** Longest wait for an answer, in milliseconds: the server itself ends a statement after 10 s, so a longer silence is a dead connection. */
const ANSWER_MAX_MS = 12_000;

/** Runs a statement; failures of the connection become `StoreUnavailable`, everything else is a bug and passes through. */
export async function answered<T>(query: PromiseLike<T>): Promise<T> {
  try {
    return await withDeadline(query, ANSWER_MAX_MS);
  } catch (error) {
    if (error instanceof StoreUnavailable) throw error;
    const code = error instanceof Error && 'code' in error ? String(error.code) : '';
    if (UNAVAILABLE.test(code)) throw new StoreUnavailable(`the database does not answer (${code})`, { cause: error });
    if (code === 'CS005') throw new NotPermitted('the caller may not do this', { cause: error });
    throw error;
  }
}
