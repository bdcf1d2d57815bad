// Runs a tool of this repository from a fresh clone: installs and builds what is missing, then hands over.
// Usage: node scripts/tool.mjs [--services] FILE.ts [arguments]     --services: it needs the machine's packages as well (Redis, Postgres)
import { spawn, spawnSync } from 'node:child_process';
import { constants } from 'node:os';
import { ensureInstalled, ROOT } from './install.mjs';
import { endWithNpm } from './npm-parent.mjs';
import { ensureSystemPackages } from './system-packages.mjs';

const args = process.argv.slice(2);
const services = args[0] === '--services';
if (services) args.shift();

process.chdir(ROOT);
const forgetNpm = endWithNpm();
ensureInstalled();
if (services && !args.includes('--help')) {
  const need = await ensureSystemPackages();
  if (need !== undefined) {
    console.error(need);
    process.exit(1);
  }
}
const build = spawnSync(`${ROOT}node_modules/.bin/tsc`, ['-b'], { encoding: 'utf8' });
if (build.status !== 0) {
  console.error(build.error?.message ?? `${build.stdout}${build.stderr}`);
  process.exit(build.status || 1);
}
const child = spawn(process.execPath, ['--import', 'tsx', '--conditions', 'source', ...args], { stdio: 'inherit' });
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'])
  process.on(signal, () => {
    forgetNpm();
    child.kill(signal);
  });
child.once('error', (error) => {
  console.error(`could not start: ${error.message}`);
  process.exit(1);
});
child.once('exit', (code, signal) => process.exit(code ?? 128 + (constants.signals[signal] ?? 0)));
