import { readFileSync, statSync } from 'node:fs';
import type { Environment } from './config.ts';

/** Variables that carry a password or a key, and so may be given as a file: `NAME_FILE` instead of `NAME`. */
const SECRET_NAME =
  /^(DATABASE_URL|REDIS_URL|COUNTERSTAMP_SECRET|COUNTERSTAMP_OIDC_CLIENT_SECRET|COUNTERSTAMP_([A-Z]+_)*KEYS?|COUNTERSTAMP_[A-Z]+_DATABASE_URL|OTEL_EXPORTER_OTLP_(TRACES_)?HEADERS)$/;

/** Longest secret file, bytes. A URL or a key is far shorter; a log or a device that is named by mistake is not read to its end. */
const SECRET_MAX_BYTES = 16_384;

/**
 * The environment with every secret that is given as a file put in its place: `REDIS_URL_FILE=/run/secrets/redis_url` becomes REDIS_URL.
 * Container runtimes hand secrets over as files, since everybody who may inspect a container or its children reads its environment.
 * One newline at the end is left out. Every fault names its variable, never a file's content.
 * `unread`: names whose file could not be used, so that nobody also calls them missing.
 */
export function withSecretFiles(env: Environment): { env: Environment; faults: string[]; unread: ReadonlySet<string> } {
  const resolved: Record<string, string | undefined> = { ...env };
  const faults: string[] = [];
  const unread = new Set<string>();
  for (const [variable, path] of Object.entries(env)) {
    const name = variable.endsWith('_FILE') ? variable.slice(0, -'_FILE'.length) : '';
    if (!SECRET_NAME.test(name) || path === undefined || path === '') continue;
    delete resolved[variable];
    if (env[name] !== undefined && env[name] !== '') {
      faults.push(`${variable}: ${name} is set too; keep one of them`);
      continue;
    }
    const read = readSecret(path);
    if (read.ok) resolved[name] = read.secret;
    else {
      faults.push(`${variable}: ${read.fault}`);
      unread.add(name);
    }
  }
  return { env: resolved, faults, unread };
}

function readSecret(path: string): { ok: true; secret: string } | { ok: false; fault: string } {
  try {
    const file = statSync(path);
    if (!file.isFile()) return { ok: false, fault: `${path} is not a file` };
    if (file.size > SECRET_MAX_BYTES)
      return { ok: false, fault: `${path} is longer than ${SECRET_MAX_BYTES} bytes, which no secret is` };
    const secret = readFileSync(path, 'utf8').replace(/\r?\n$/, '');
    if (secret === '') return { ok: false, fault: `${path} is empty` };
    // A URL parser would drop a line break silently, and a key with one fits into no header.
    if (/\p{Cc}/u.test(secret)) return { ok: false, fault: `${path} must hold one line of text` };
    return { ok: true, secret };
  } catch (error) {
    const code = error instanceof Error && 'code' in error ? String(error.code) : String(error);
    return { ok: false, fault: `${path} cannot be read by user ${process.getuid?.() ?? 'unknown'} (${code})` };
  }
}
