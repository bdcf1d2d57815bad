import { spawn, spawnSync } from 'node:child_process';
import { constants } from 'node:os';
import { ensureInstalled, ROOT } from './install.mjs';
import { endWithNpm } from './npm-parent.mjs';

/** Milliseconds within which the same signal is one request: Ctrl-C reaches us from the terminal and again from npm. */
const SAME_SIGNAL_MS = 500;

ensureInstalled();

process.stdout.write('Building (tsc -b) … ');
const startedAt = performance.now();
const build = spawnSync(`${ROOT}node_modules/.bin/tsc`, ['-b'], { cwd: ROOT, encoding: 'utf8' });
if (build.status !== 0) {
  console.log('failed');
  console.error(build.error?.message ?? `${build.stdout}${build.stderr}`);
  process.exit(build.status || 1);
}
console.log(`${((performance.now() - startedAt) / 1000).toFixed(1)} s`);

// A process group of its own: a terminal's Ctrl-C then reaches only us, and the fleet gets every signal exactly once, from here.
// Should we be killed outright, the channel closes and end-with-parent.mjs ends it.
const child = spawn(
  process.execPath,
  [
    '--import',
    new URL('./end-with-parent.mjs', import.meta.url).href,
    `${ROOT}apps/cli/dist/main.js`,
    'up',
    ...process.argv.slice(2),
  ],
  { detached: true, stdio: ['inherit', 'inherit', 'inherit', 'ipc'] },
);
const passedAt = new Map();
const forgetNpm = endWithNpm();
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'])
  process.on(signal, () => {
    const now = performance.now();
    if (now - (passedAt.get(signal) ?? -SAME_SIGNAL_MS) < SAME_SIGNAL_MS) return;
    passedAt.set(signal, now);
    forgetNpm();
    child.kill(signal === 'SIGHUP' ? 'SIGTERM' : signal); // A closed terminal asks for an orderly end too.
  });
child.once('error', (error) => {
  console.error(`could not start: ${error.message}`);
  process.exit(1);
});
child.once('exit', (code, signal) => process.exit(code ?? 128 + (constants.signals[signal] ?? 0)));
