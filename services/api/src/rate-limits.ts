import { isIPv6 } from 'node:net';
import type { Principal } from '@counterstamp/manifest-store';
import { RateLimiterMemory, RateLimiterRes } from 'rate-limiter-flexible';
import type { ApiLog } from './deps.ts';
import { type Refused, refused } from './problem.ts';

/** Seconds over which requests are counted: long enough for a burst, short enough that whoever was refused soon goes on. */
export const RATE_WINDOW_S = 10;

/** Requests in `RATE_WINDOW_S` that one process of the api takes. */
export interface RateLimits {
  per_principal: number;
  per_tenant: number;
  /** Of one address, without a valid credential. */
  unauthenticated: number;
}

/**
 * Far above what one busy agent or person sends, since each request is a few milliseconds of a shared database: a limit is there so that a
 * loop gone wrong slows down its own tenant and nobody else's. Five principals at their limit are one tenant at its own.
 */
export const DEFAULT_RATE_LIMITS: RateLimits = { per_principal: 2_000, per_tenant: 10_000, unauthenticated: 300 };

/** Counts requests in this process's memory; an entry lives for one window. */
export interface RateGate {
  /** A refusal, or `undefined` when the request may go on. */
  admit(who: Pick<Principal, 'tenant_id' | 'principal_id'>): Promise<Refused | undefined>;
  /**
   * For whoever shows no valid credential. Asked after the credential was checked: one of somebody else behind the same address, a proxy's
   * perhaps, must not be refused for its neighbours.
   * @param address of the socket; what a header says about it, anybody may say.
   */
  admitUnknown(address: string | undefined): Promise<Refused | undefined>;
}

/** @param refusedBy told of each refusal: `principal`, `tenant` or `address`. */
export function createRateGate(
  limits: RateLimits,
  log: ApiLog,
  refusedBy: (limiter: string) => void = () => undefined,
): RateGate {
  const limiter = (keyPrefix: string, points: number) =>
    new RateLimiterMemory({ keyPrefix, points, duration: RATE_WINDOW_S });
  const principals = limiter('principal', limits.per_principal);
  const tenants = limiter('tenant', limits.per_tenant);
  const unknown = limiter('address', limits.unauthenticated);

  async function take(from: RateLimiterMemory, key: string): Promise<Refused | undefined> {
    try {
      await from.consume(key);
      return undefined;
    } catch (caught) {
      if (caught instanceof RateLimiterRes) {
        refusedBy(from.keyPrefix);
        return rateLimited(from, caught.msBeforeNext);
      }
      // A fault of ours must keep nobody from deciding.
      log.error({ err: caught, limiter: from.keyPrefix }, 'a rate limit could not be counted; the request goes on');
      return undefined;
    }
  }

  return {
    // What a principal sends beyond its own limit does not use up its tenant's.
    admit: async ({ tenant_id, principal_id }) =>
      (await take(principals, principal_id)) ?? (await take(tenants, tenant_id)),
    admitUnknown: (address) => take(unknown, networkOf(address)),
  };
}

function rateLimited({ keyPrefix, points }: RateLimiterMemory, msBeforeNext: number): Refused {
  const seconds = Math.max(1, Math.ceil(msBeforeNext / 1_000));
  return refused('rate_limited', '', {
    detail: `at most ${points} requests in ${RATE_WINDOW_S} s of one ${keyPrefix}; try again in ${seconds} s`,
    headers: {
      'retry-after': String(seconds),
      // https://www.ietf.org/archive/id/draft-ietf-httpapi-ratelimit-headers-10.html
      'ratelimit-policy': `"${keyPrefix}";q=${points};w=${RATE_WINDOW_S}`,
      ratelimit: `"${keyPrefix}";r=0;t=${seconds}`,
    },
  });
}

/** What counts as one address: of IPv6 the first 64 bits, since the rest is its owner's to choose. */
function networkOf(address: string | undefined): string {
  if (address === undefined || !isIPv6(address) || address.includes('.')) return address ?? 'unknown';
  const [head = '', tail] = address.split('::');
  const left = head === '' ? [] : head.split(':');
  const right = tail === undefined || tail === '' ? [] : tail.split(':');
  const zeros = Array.from({ length: Math.max(0, 8 - left.length - right.length) }, () => '0');
  return [...left, ...zeros, ...right].slice(0, 4).join(':');
}
