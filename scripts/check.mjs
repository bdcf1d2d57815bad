import { realpathSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { boundedRun } from './bounded-run.mjs';
import { ensureInstalled, ROOT } from './install.mjs';

/** Milliseconds for one check; the slowest takes seconds here. */
const CHECK_MS = 300_000;

const bin = (/** @type {string} */ name) => `${ROOT}node_modules/.bin/${name}`;
const CHECKS = [
  { name: 'biome', program: bin('biome'), args: ['ci', '--colors=off'] },
  // --force: an incremental build keeps stale errors when `lib` or a package changes.
  { name: 'tsc', program: bin('tsc'), args: ['-b', '--force'] },
  // After the build: in a fresh clone the packages' types exist only then, and the linter reads them.
  // Both linters look for floating promises: each misses some that the other finds.
  { name: 'oxlint', program: bin('oxlint'), args: ['--type-aware', '--deny-warnings'] },
  { name: 'tsc of the tests', program: bin('tsc'), args: ['-p', 'tsconfig.tests.json'] },
  { name: 'generated files', program: process.execPath, args: [`${ROOT}scripts/generate.mjs`, '--check'] },
  { name: 'knip', program: bin('knip'), args: ['--no-progress'] },
  { name: 'import arrows', program: process.execPath, args: [`${ROOT}scripts/check-arrows.mjs`] },
];

/**
 * Runs every static check, one line each, with the output of those that fail.
 * @returns {Promise<{ passed: number, failed: number }>}
 */
export async function runStaticChecks() {
  let failed = 0;
  for (const { name, program, args } of CHECKS) {
    const startedAt = performance.now();
    const run = await boundedRun(program, args, { limitMs: CHECK_MS, show: false });
    if (!run.ok) console.log(run.output.trimEnd());
    const seconds = ((performance.now() - startedAt) / 1000).toFixed(1);
    console.log(`${run.ok ? 'ok    ' : 'FAILED'}  ${name} (${seconds} s${run.ok ? '' : `, ${run.why}`})`);
    if (!run.ok) failed += 1;
    if (run.why === 'interrupted') process.exit(130);
  }
  return { passed: CHECKS.length - failed, failed };
}

if (realpathSync(process.argv[1] ?? '') === fileURLToPath(import.meta.url)) {
  process.chdir(ROOT);
  ensureInstalled();
  const { passed, failed } = await runStaticChecks();
  console.log(`${passed} passed, ${failed} failed`);
  process.exitCode = failed === 0 ? 0 : 1;
}
