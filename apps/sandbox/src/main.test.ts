import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { build } from 'vite';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { readConfig } from './config.ts';

let bundleFolder: string;

// Node 20 runs no TypeScript, and `dist` may be missing or old: the entry point is bundled from its source.
beforeAll(async () => {
  bundleFolder = await mkdtemp(join(tmpdir(), 'sandbox-main-'));
  await build({
    configFile: false,
    logLevel: 'error',
    ssr: { noExternal: true },
    build: {
      ssr: fileURLToPath(new URL('./main.ts', import.meta.url)),
      outDir: bundleFolder,
      target: 'node20',
      rolldownOptions: { output: { entryFileNames: 'main.mjs' } },
    },
  });
});
afterAll(async () => rm(bundleFolder, { recursive: true }));

/** Runs the real entry point in a process of its own. */
function run(environment: Record<string, string>): { child: ChildProcess; firstLine: Promise<string> } {
  const child = spawn(process.execPath, [join(bundleFolder, 'main.mjs')], {
    env: { ...process.env, ...environment },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  const firstLine = new Promise<string>((resolve) => {
    const onLine = (chunk: Buffer): void => resolve(chunk.toString());
    child.stdout.once('data', onLine);
    child.stderr.once('data', onLine);
  });
  return { child, firstLine };
}

test.each(['SIGTERM', 'SIGINT'] as const)(
  'the process logs one line, serves, and ends with 0 on %s',
  async (signal) => {
    const { child, firstLine } = run({ SANDBOX_PORT: '0' });
    const line = JSON.parse(await firstLine) as { url: string; msg: string };
    expect(line.msg).toBe('listening');
    expect((await fetch(`${line.url}/readyz`)).status).toBe(200);
    const exited = once(child, 'exit');
    child.kill(signal);
    expect(await exited).toEqual([0, null]);
  },
);

test('the process names every problem of its environment and does not start', async () => {
  const { child, firstLine } = run({ SANDBOX_PORT: '70000', SANDBOX_HOST: '' });
  const exited = once(child, 'exit');
  const line = JSON.parse(await firstLine) as { problems: string[] };
  expect(line.problems).toHaveLength(2);
  expect(await exited).toEqual([78, null]);
});

test.each([
  ['nothing', {}, { port: 4010, host: '127.0.0.1' }],
  ['a port', { SANDBOX_PORT: '0' }, { port: 0, host: '127.0.0.1' }],
  ['both', { SANDBOX_PORT: '8080', SANDBOX_HOST: '0.0.0.0' }, { port: 8080, host: '0.0.0.0' }],
])('the environment with %s gives a configuration', (_name, environment, config) => {
  expect(readConfig(environment)).toEqual({ ok: true, config });
});

test.each(['', '65536', '-1', '80a', ' 80', '1e3'])('the port %j is refused', (port) => {
  expect(readConfig({ SANDBOX_PORT: port })).toMatchObject({ ok: false });
});
