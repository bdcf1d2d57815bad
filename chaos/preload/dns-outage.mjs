// Preloaded into a fleet (NODE_OPTIONS=--import): CHAOS_DNS_NAME is this machine, unless CHAOS_DNS_OUTAGE, a file, is there: then nobody knows it.
import dns from 'node:dns';
import { existsSync } from 'node:fs';

const name = process.env.CHAOS_DNS_NAME;
const outage = process.env.CHAOS_DNS_OUTAGE ?? '';
const real = dns.lookup;

/** @type {(hostname: string, options: unknown, callback?: unknown) => unknown} */
const lookup = (hostname, options, callback) => {
  if (hostname !== name) return Reflect.apply(real, dns, [hostname, options, callback]);
  const done = typeof options === 'function' ? options : callback;
  if (typeof done !== 'function') throw new TypeError('a look-up without a callback');
  const all = typeof options === 'object' && options !== null && 'all' in options && options.all === true;
  process.nextTick(() => {
    if (existsSync(outage)) {
      done(
        Object.assign(new Error(`getaddrinfo ENOTFOUND ${hostname}`), {
          code: 'ENOTFOUND',
          syscall: 'getaddrinfo',
          hostname,
        }),
      );
    } else if (all) done(null, [{ address: '127.0.0.1', family: 4 }]);
    else done(null, '127.0.0.1', 4);
  });
};
Object.defineProperty(dns, 'lookup', { value: lookup });
