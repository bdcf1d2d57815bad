import { spawnSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

/** Root of the repository, with a closing slash. */
export const ROOT = fileURLToPath(new URL('../', import.meta.url));

/** sysexits.h EX_CONFIG: the machine is not set up for this; trying again does not help. */
const EX_CONFIG = 78;
/** Milliseconds for `npm ci`; 15 s here, minutes on a slow line. */
const INSTALL_MS = 600_000;

/**
 * Installs the packages when they are missing or older than package-lock.json. Ends the process with code 78 when Node is older than
 * 20.19, and with npm's own code when it fails.
 */
export function ensureInstalled() {
  const [major = 0, minor = 0] = process.versions.node.split('.').map(Number);
  if (major < 20 || (major === 20 && minor < 19)) {
    console.error(`Counterstamp needs Node 20.19 or newer; this is ${process.versions.node}. Node 24 is recommended.`);
    process.exit(EX_CONFIG);
  }
  if (isInstalled()) return;
  console.log('Installing packages (npm ci) …');
  const npm = spawnSync('npm', ['ci', '--ignore-scripts', '--no-audit', '--no-fund', '--loglevel=error'], {
    cwd: ROOT,
    stdio: ['ignore', 'ignore', 'inherit'],
    timeout: INSTALL_MS,
  });
  if (npm.status === 0) return;
  console.error(`npm ci failed: ${npm.error?.message ?? npm.signal ?? `exit code ${npm.status}`}`);
  process.exit(npm.status || 1);
}

/**
 * True when node_modules holds what the lock file asks for. npm writes what it installed to node_modules/.package-lock.json; packages
 * for other machines are optional there and absent. Times would mislead after a git checkout.
 */
export function isInstalled() {
  const installedFile = `${ROOT}node_modules/.package-lock.json`;
  if (!existsSync(installedFile)) return false;
  const wanted = JSON.parse(readFileSync(`${ROOT}package-lock.json`, 'utf8')).packages;
  const installed = JSON.parse(readFileSync(installedFile, 'utf8')).packages;
  return Object.entries(wanted).every(([place, want]) => {
    if (!place.includes('node_modules/')) return true; // The root and the workspaces themselves.
    const have = installed[place];
    if (have === undefined) return want.optional === true || want.peer === true;
    return have.version === want.version && have.integrity === want.integrity;
  });
}
