import { existsSync } from 'node:fs';
import { delimiter, join } from 'node:path';
import { boundedRun } from './bounded-run.mjs';

/** Milliseconds for each apt-get call, including the wait of 300 s for another one's lock. */
const APT_MS = 600_000;

/** What tests need of the machine. Packaged servers may start by themselves: tests start their own on free ports. */
const PACKAGES = [
  { name: 'redis-server', isPresent: () => Boolean(process.env.REDIS_URL) || isOnPath('redis-server') },
  // Makes the certificates of the TLS tests; postgresql-15 happens to bring it, which is nobody's promise.
  { name: 'openssl', isPresent: () => isOnPath('openssl') },
  // Passkeys are tried in a real browser, with its virtual authenticator.
  { name: 'chromium', isPresent: () => existsSync('/usr/bin/chromium') },
  // Rules are checked by its promtool and tried on a real server, which tests start on a free port; the packaged one is left alone.
  { name: 'prometheus', isPresent: () => isOnPath('prometheus') && isOnPath('promtool') },
  { name: 'postgresql-15', isPresent: () => existsSync('/usr/lib/postgresql/15/bin/initdb') },
];

/**
 * Installs what is missing with apt-get, as root or through `sudo -n`.
 * @returns {Promise<string | undefined>} what a person must do when that is not possible; `undefined` when all is there.
 */
export async function ensureSystemPackages() {
  const missing = missingPackages();
  if (missing.length === 0) return undefined;
  const line = `apt-get update && apt-get install -y --no-install-recommends ${missing.join(' ')}`;
  if (!isOnPath('apt-get'))
    return `This machine lacks ${missing.join(' and ')}, and has no apt-get. On Debian: ${line}`;
  console.log(`Installing ${missing.join(' and ')} …`);
  const sudo = process.getuid?.() === 0 ? [] : ['sudo', '-n'];
  let said = '';
  for (const args of [['update'], ['install', '-y', '--no-install-recommends', ...missing]]) {
    const environment = ['env', 'DEBIAN_FRONTEND=noninteractive'];
    const [program = '', ...rest] = [
      ...sudo,
      ...environment,
      'apt-get',
      '-qq',
      '-o',
      'DPkg::Lock::Timeout=300',
      ...args,
    ];
    const run = await boundedRun(program, rest, { limitMs: APT_MS, show: false });
    said = run.ok ? '' : `${run.output.slice(-2_000)}\n${run.why}`;
  }
  const still = missingPackages();
  return still.length === 0 ? undefined : `${said}\nThis machine lacks ${still.join(' and ')}. As root: ${line}`;
}

function missingPackages() {
  return PACKAGES.filter((p) => !p.isPresent()).map((p) => p.name);
}

function isOnPath(program) {
  return (process.env.PATH ?? '').split(delimiter).some((folder) => existsSync(join(folder, program)));
}
