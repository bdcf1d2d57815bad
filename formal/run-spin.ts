import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { keepTable } from './evidence.ts';

/** Milliseconds for one search. */
const LIMIT_MS = 240_000;
const MODEL = fileURLToPath(new URL('./spin/dispatch.pml', import.meta.url));

/** Flags of spin/dispatch.pml, and whether the assertions must hold with them. `live`: every run ends in a stop or parked. */
const SEARCHES: readonly { flags: string; must: 'hold' | 'break' | 'live' }[] = [
  { flags: '-DPERSON', must: 'hold' },
  { flags: '-DIDEM -DPERSON', must: 'hold' },
  { flags: '-DIDEM -DEVENTUAL', must: 'hold' },
  { flags: '-DNO_A1', must: 'hold' },
  { flags: '-DNO_A2', must: 'hold' },
  { flags: '', must: 'live' },
  { flags: '-DM_CAS -DPERSON', must: 'break' },
  { flags: '-DM_EXPIRY', must: 'break' },
  { flags: '-DM_WINNER', must: 'break' },
  { flags: '-DM_MONOSTART -DPERSON', must: 'break' },
  { flags: '-DM_MONOCHECK -DPERSON', must: 'break' },
  { flags: '-DM_REJECT -DIDEM -DPERSON -DNO_A2', must: 'break' },
  { flags: '-DM_TIMEOUT -DPERSON', must: 'break' },
  { flags: '-DM_REDELIVER', must: 'break' },
  { flags: '-DM_RECHECK -DIDEM', must: 'break' },
  { flags: '-DM_OBSERVED -DM_IDEMONLY -DPERSON', must: 'break' },
  { flags: '-DM_SETTLE -DM_IDEMONLY', must: 'break' },
  { flags: '-DM_PERSON -DPERSON -DEVENTUAL', must: 'break' },
  // Without A1 or A2 a person's "absent", or a retry, is no longer safe: the model must see that.
  { flags: '-DPERSON -DNO_A1', must: 'break' },
  { flags: '-DPERSON -DNO_A2', must: 'break' },
  { flags: '-DIDEM -DNO_A1', must: 'break' },
  { flags: '-DIDEM -DNO_A2', must: 'break' },
];

const missing = ['spin', 'gcc'].filter((program) => spawnSync(program, ['--version']).error !== undefined);
if (missing.length > 0) {
  console.error(`${missing.join(' and ')} not found: apt-get install -y spin gcc`);
  process.exit(1);
}

let failed = 0;
const lines: string[] = [];
for (const { flags, must } of SEARCHES) {
  const { outcome, states, seconds } = search(flags.split(' ').filter(Boolean), must === 'live');
  const expected = must === 'break' ? 'break' : 'hold';
  if (outcome !== expected) failed += 1;
  const said = { hold: must === 'live' ? 'every run ends' : 'holds', break: 'breaks', unknown: 'no result' }[outcome];
  const line = `${flags.padEnd(40)} ${states.padStart(10)} states  ${seconds.toFixed(1).padStart(6)} s  ${said}${outcome === expected ? '' : ', NOT AS EXPECTED'}`;
  console.log(line);
  lines.push(line);
}
const sum = `${SEARCHES.length} searches: ${failed === 0 ? 'all as expected' : `${failed} NOT AS EXPECTED`}`;
console.log(sum);
keepTable('spin', [...lines, sum]);
process.exitCode = failed === 0 ? 0 : 1;

/** Generates, compiles and runs the verifier with some flags, in a folder of its own. */
function search(
  flags: readonly string[],
  liveness: boolean,
): { outcome: 'hold' | 'break' | 'unknown'; states: string; seconds: number } {
  const folder = mkdtempSync(path.join(tmpdir(), 'cs-spin-'));
  const run = (program: string, args: readonly string[]) => {
    const { status, stdout, stderr } = spawnSync(program, args, { cwd: folder, encoding: 'utf8', timeout: LIMIT_MS });
    return { ok: status === 0, output: `${stdout}${stderr}` };
  };
  try {
    const generated = run('spin', ['-a', ...(liveness ? [] : ['-DMONITOR']), ...flags, MODEL]);
    const options = liveness ? ['-DNFAIR=4'] : ['-DSAFETY', '-DNOCLAIM'];
    const compiled = run('gcc', ['-O2', '-w', '-DCOLLAPSE', '-DVECTORSZ=2048', ...options, '-o', 'pan', 'pan.c']);
    if (!generated.ok || !compiled.ok) throw new Error(generated.output + compiled.output);
    const startedAt = performance.now();
    // Liveness with weak fairness: a process that can go on does so at last.
    const { output } = run('./pan', liveness ? ['-a', '-f', '-m400000', '-N', 'live'] : ['-m400000']);
    return {
      outcome: /errors: 0/.test(output) ? 'hold' : /errors: [1-9]/.test(output) ? 'break' : 'unknown',
      states: /([\d.e+]+) states, stored/.exec(output)?.[1] ?? '?',
      seconds: (performance.now() - startedAt) / 1_000,
    };
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}
