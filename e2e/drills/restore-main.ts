import { parseArgs } from 'node:util';
import { restoreDrill } from './restore-drill.ts';

const { values } = parseArgs({
  options: { runs: { type: 'string', default: '20' }, help: { type: 'boolean', default: false } },
});
if (values.help) {
  console.log(`npm run drill:restore -- [--runs N]

Goes through docs/operations/backup-and-restore.md on servers of its own: makes runs (N of them finished), takes a backup, lets more happen after it, loses the
database, restores it, and does every step until it is safe to send again. Needs Debian's postgresql-15 for pg_dump. Sends only to this machine.
Ends with 1 at the first step that is not as the guide says.`);
  process.exit(0);
}
const finished = Number(values.runs);
if (!Number.isSafeInteger(finished) || finished < 1 || finished > 10_000) {
  console.error('see npm run drill:restore -- --help');
  process.exit(2);
}
const startedAt = performance.now();
try {
  await restoreDrill({
    finished,
    say: (sentence) => console.log(`✓ ${sentence} (${((performance.now() - startedAt) / 1_000).toFixed(0)} s)`),
  });
  console.log(`Restored without doubling anything, in ${((performance.now() - startedAt) / 1_000).toFixed(0)} s.`);
} catch (error) {
  console.error(`✗ ${error instanceof Error ? error.message : String(error)}`);
  process.exitCode = 1;
}
