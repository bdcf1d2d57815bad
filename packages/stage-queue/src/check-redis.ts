import { Redis } from 'ioredis';
import { systemTimers, type Timers } from './ports/timers.ts';
import { within } from './within.ts';

export type RedisCheck =
  | { kind: 'ok'; version: string; flavour: 'redis' | 'valkey' }
  | {
      kind: 'refused';
      code: 'queue.redis_unreachable' | 'queue.redis_too_old' | 'queue.redis_evicts';
      message: string;
    };

/** Oldest Redis that BullMQ 6 recommends; it has LPOS and fractional blocking timeouts. */
const OLDEST = [6, 2] as const;

/** Longest check, milliseconds. */
const CHECK_MAX_MS = 3_000;

/**
 * Looks once whether a Redis can carry the queues. Each refusal is a sentence that says how to repair it and does not
 * contain the URL's password. Never rejects; takes at most 3 s.
 */
export async function checkRedis(url: string, timers: Timers = systemTimers): Promise<RedisCheck> {
  const place = placeOf(url);
  if (place === undefined) {
    return refuse(
      'queue.redis_unreachable',
      'The Redis URL cannot be read. Write it as redis://host:6379 or rediss://user:password@host:6379/0.',
    );
  }
  let lastError: Error | undefined;
  const client = new Redis(url, {
    lazyConnect: true,
    connectTimeout: CHECK_MAX_MS,
    disconnectTimeout: 200,
    maxRetriesPerRequest: 0,
    enableReadyCheck: false,
    retryStrategy: () => null,
  });
  client.on('error', (error: Error) => {
    lastError = error;
  });
  const why = (error: unknown): string => {
    const shown = lastError ?? error;
    return shown instanceof Error ? shown.message : String(shown);
  };
  try {
    const answer = await within(
      timers,
      CHECK_MAX_MS,
      client.connect().then(() => client.info()),
    );
    if (answer.kind === 'late') {
      return refuse(
        'queue.redis_unreachable',
        `Redis at ${place} did not answer within ${CHECK_MAX_MS / 1_000} s. Check that it runs and that no firewall drops the connection.`,
      );
    }
    return judgeInfo(answer.value, place);
  } catch (error) {
    return refuse(
      'queue.redis_unreachable',
      `Redis at ${place} cannot be used: ${why(error)}. Start it, or correct host, port and password in the Redis URL.`,
    );
  } finally {
    client.disconnect();
  }
}

/** Judges the text of INFO. Exported for its test. */
export function judgeInfo(info: string, place: string): RedisCheck {
  const fields = new Map(
    info.split(/\r?\n/).map((line): [string, string] => {
      const colon = line.indexOf(':');
      return [line.slice(0, colon), line.slice(colon + 1).trim()];
    }),
  );
  const valkey = fields.get('valkey_version');
  const version = valkey ?? fields.get('redis_version') ?? '0';
  const [major = 0, minor = 0] = version.split('.').map(Number);
  if (major < OLDEST[0] || (major === OLDEST[0] && minor < OLDEST[1])) {
    return refuse(
      'queue.redis_too_old',
      `Redis at ${place} is version ${version}; the queues need ${OLDEST.join('.')} or newer. Upgrade it, or use the Postgres backend by leaving the Redis URL unset.`,
    );
  }
  const policy = fields.get('maxmemory_policy') ?? 'unknown';
  if (policy !== 'noeviction') {
    return refuse(
      'queue.redis_evicts',
      `Redis at ${place} has maxmemory-policy ${policy} and may throw away parts of a queue. Run "redis-cli CONFIG SET maxmemory-policy noeviction" and put "maxmemory-policy noeviction" into redis.conf.`,
    );
  }
  return { kind: 'ok', version, flavour: valkey === undefined ? 'redis' : 'valkey' };
}

function refuse(code: Extract<RedisCheck, { kind: 'refused' }>['code'], message: string): RedisCheck {
  return { kind: 'refused', code, message };
}

/** Host and port for a message; user and password are left out. */
function placeOf(url: string): string | undefined {
  if (!/^rediss?:\/\//.test(url)) return undefined;
  try {
    const { hostname, port } = new URL(url);
    return `${hostname === '' ? 'localhost' : hostname}:${port === '' ? '6379' : port}`;
  } catch {
    return undefined;
  }
}
