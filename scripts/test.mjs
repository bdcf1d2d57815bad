import { existsSync, mkdirSync, readFileSync, rmSync } from 'node:fs';
import { boundedRun } from './bounded-run.mjs';
import { runStaticChecks } from './check.mjs';
import { ensureInstalled, ROOT } from './install.mjs';
import { endWithNpm } from './npm-parent.mjs';
import { ensureSystemPackages } from './system-packages.mjs';

/** Milliseconds for the tests, and for everything together. CI ends a job after 30 minutes and would hide why. */
const TESTS_MS = 28 * 60_000;
const ALL_MS = 29 * 60_000;

process.chdir(ROOT);
endWithNpm();
ensureInstalled();

const total = { passed: 0, failed: 0 };
const need = await ensureSystemPackages();
if (need !== undefined) total.failed += 1; // Tests that need none still run.

const checks = await runStaticChecks();
const tests = await runTests(process.argv.slice(2));
for (const part of [checks, tests]) {
  total.passed += part.passed;
  total.failed += part.failed;
}
if (need !== undefined) console.log(`FAILED  system packages\n${need}`);
if (tests.skipped > 0) console.log(`${tests.skipped} skipped or to do`);
console.log(`${total.passed} passed, ${total.failed} failed`);
process.exitCode = total.failed === 0 ? 0 : 1;

/**
 * Runs vitest and counts from its report, because its own closing line is not read by every CI.
 * @param {string[]} filters paths or other arguments for vitest.
 * @returns {Promise<{ passed: number, failed: number, skipped: number }>}
 */
async function runTests(filters) {
  const report = `${ROOT}.cache/vitest.json`;
  mkdirSync(`${ROOT}.cache`, { recursive: true });
  rmSync(report, { force: true });
  const vitest = ['run', '--reporter=default', '--reporter=json', `--outputFile.json=${report}`, ...filters];
  const limitMs = Math.max(60_000, Math.min(TESTS_MS, ALL_MS - performance.now()));
  const run = await boundedRun(`${ROOT}node_modules/.bin/vitest`, vitest, { limitMs, show: true });
  if (!run.ok) console.log(`FAILED  vitest (${run.why})`);
  if (!existsSync(report)) return { passed: 0, failed: 1, skipped: 0 };
  const { numPassedTests, numFailedTests, numPendingTests, numTodoTests, testResults } = JSON.parse(
    readFileSync(report, 'utf8'),
  );
  // A file that does not load has no tests to fail.
  const brokenFiles = testResults.filter(
    (file) => file.status === 'failed' && !file.assertionResults.some((t) => t.status === 'failed'),
  ).length;
  const failed = numFailedTests + brokenFiles;
  // Vitest also fails for an unhandled rejection, a filter without tests, or a teardown that failed.
  return {
    passed: numPassedTests,
    failed: run.ok ? failed : Math.max(1, failed),
    skipped: numPendingTests + numTodoTests,
  };
}
