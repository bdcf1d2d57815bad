import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { expect, test } from 'vitest';

test('the packages install into an empty project, type-check there and run the README’s library example', async () => {
  const run = await promisify(execFile)(process.execPath, ['scripts/pack-check.mjs']).catch(
    ({ stdout, stderr }: { stdout: string; stderr: string }) => ({ stdout, stderr }),
  );
  expect(`${run.stdout}${run.stderr}`).toMatch(/The packages install, type-check and run in an empty project\.\n$/);
}, 600_000);
