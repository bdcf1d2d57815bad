import { spawnSync } from 'node:child_process';
import { copyFile, mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';

const ROOT = fileURLToPath(new URL('../', import.meta.url));
let tree: string;

beforeEach(async () => {
  tree = await mkdtemp(path.join(os.tmpdir(), 'cs-arrows-'));
  await plantWorkspace('packages/manifest-core', '@counterstamp/manifest-core', []);
  await plantWorkspace('packages/stage-queue', '@counterstamp/stage-queue', ['packages/manifest-core']);
  await plantWorkspace('services/executor', '@counterstamp/executor', ['packages/manifest-core']);
  await plantWorkspace('services/verifier', '@counterstamp/verifier', []);
  await plantWorkspace('apps/sandbox', '@counterstamp/sandbox', ['packages/manifest-core']);
});

afterEach(() => rm(tree, { recursive: true, force: true }));

async function plant(file: string, text: string): Promise<void> {
  await mkdir(path.dirname(path.join(tree, file)), { recursive: true });
  await writeFile(path.join(tree, file), text);
}

async function plantWorkspace(folder: string, name: string, references: readonly string[]): Promise<void> {
  const dependencies = Object.fromEntries(references.map((r) => [`@counterstamp/${path.basename(r)}`, '0.1.0']));
  await plant(`${folder}/package.json`, JSON.stringify({ name, dependencies }));
  await plant(
    `${folder}/tsconfig.json`,
    JSON.stringify({ references: references.map((r) => ({ path: `../../${r}` })) }),
  );
  await plant(`${folder}/src/index.ts`, 'export {};\n');
}

function run(program: string, args: readonly string[]): { code: number | null; output: string } {
  const { status, stdout, stderr } = spawnSync(program, args, { cwd: tree, encoding: 'utf8', timeout: 30_000 });
  return { code: status, output: `${stdout}${stderr}` };
}

describe('the import arrows', () => {
  const check = (): ReturnType<typeof run> =>
    run(process.execPath, [path.join(ROOT, 'scripts/check-arrows.mjs'), tree]);

  test('hold in a tree that keeps them', async () => {
    await plant(
      'services/executor/src/a.ts',
      `import { x } from '@counterstamp/manifest-core';\nexport const y = new Date(x);\n`,
    );
    await plant(
      'services/executor/src/a.test.ts',
      `import '@counterstamp/sandbox';\nimport '../../../testing/services.ts';\nimport 'postgres';\n`,
    );
    await plant('packages/stage-queue/src/a.ts', `import { Queue } from 'bullmq';\nexport const queue = Queue;\n`);
    expect(check()).toEqual({ code: 0, output: expect.stringContaining('0 violations') });
  });

  test.each([
    [
      'a package that is no reference',
      'services/executor',
      `import '@counterstamp/stage-queue';`,
      'not among the references',
    ],
    ['another service', 'services/executor', `export * from '@counterstamp/verifier';`, 'not among the references'],
    [
      'a folder below',
      'packages/manifest-core',
      `const a = import('@counterstamp/stage-queue');`,
      'not among the references',
    ],
    [
      'a type of a folder below',
      'packages/manifest-core',
      `export type A = import('@counterstamp/sandbox').A;`,
      'not among',
    ],
    [
      'the sandbox outside of tests',
      'services/executor',
      `import '@counterstamp/sandbox';`,
      'not among the references',
    ],
    [
      'a relative path out of the workspace',
      'services/executor',
      `import '../../verifier/src/index.ts';`,
      'leaves the workspace',
    ],
    [
      'the driver',
      'services/executor',
      `import postgres from 'postgres';`,
      'only packages/manifest-store imports postgres',
    ],
    ['a part of the driver', 'services/executor', `import 'drizzle-orm/postgres-js';`, 'only packages/manifest-store'],
    [
      'the queue',
      'services/executor',
      `import type { Queue } from 'bullmq';`,
      'only packages/stage-queue imports bullmq',
    ],
    ['the real clock', 'services/executor', `export const now = new Date();`, 'reads the real clock'],
  ])('forbid %s', async (_what, folder, text, expected) => {
    await plant(`${folder}/src/planted.ts`, `// First line.\n${text}\n`);
    const { code, output } = check();
    expect(output).toContain(`${folder}/src/planted.ts:2: `);
    expect(output).toContain(expected);
    expect(code).toBe(1);
  });

  test.each([
    ['a reference to a service', 'services/executor', ['services/verifier'], 'services never import each other'],
    ['a reference to a folder below', 'packages/stage-queue', ['apps/sandbox'], 'apps/sandbox is not above'],
    ['a workspace without a place', 'packages/helpers', [], 'has no place in ORDER'],
  ])('forbid %s', async (_what, folder, references, expected) => {
    await plantWorkspace(folder, `@counterstamp/${path.basename(folder)}`, references);
    expect(check()).toEqual({ code: 1, output: expect.stringContaining(expected) });
  });

  test('want a reference to be a dependency too', async () => {
    await plantWorkspace('services/executor', '@counterstamp/executor', ['packages/manifest-core']);
    await plant('services/executor/package.json', JSON.stringify({ name: '@counterstamp/executor' }));
    await plant('services/executor/src/a.ts', `import '@counterstamp/manifest-core';\n`);
    expect(check()).toEqual({ code: 1, output: expect.stringContaining('not among the dependencies') });
  });
});

describe('the clock, chance, the network and the environment', () => {
  const lint = (): ReturnType<typeof run> =>
    run(path.join(ROOT, 'node_modules/.bin/oxlint'), ['-c', '.oxlintrc.json', '.']);

  beforeEach(() => copyFile(path.join(ROOT, '.oxlintrc.json'), path.join(tree, '.oxlintrc.json')));

  test.each([
    'export const a = Date.now();',
    'export const a = Math.random();',
    'export const a = process.env.A;',
    `export const a = fetch('http://127.0.0.1');`,
    'export const a = setTimeout(() => {}, 1);',
    'export const a = setInterval(() => {}, 1);',
    `export { setTimeout } from 'node:timers/promises';`,
    `export { env } from 'node:process';`,
  ])('are not read outside the ports: %s', async (text) => {
    await plant('services/executor/src/planted.ts', `${text}\n`);
    const { code, output } = lint();
    expect(output).toMatch(/no-restricted-(globals|properties|imports)/);
    expect(code).toBe(1);
  });

  test.each([
    ['packages/stage-runtime/src/ports/clock.ts', 'export const a = Date.now() + Math.random();'],
    ['services/executor/src/config.ts', 'export const a = process.env.A;'],
    ['services/executor/src/main.ts', 'export const a = process.env.A;'],
    ['services/executor/src/decide.test.ts', 'export const a = Date.now();'],
    ['services/executor/src/http.ts', 'export const a = (fetch: () => void) => fetch();'],
    ['apps/sandbox/src/pauses.ts', 'export const a = setTimeout(() => {}, 1);'],
    ['apps/cli/src/up.ts', 'export const a = process.env.A;'],
  ])('may be read in %s', async (file, text) => {
    await plant(file, `${text}\n`);
    expect(lint()).toMatchObject({ code: 0 });
  });

  test.each([
    ['services/executor/src/config.ts', 'export const a = Date.now();'],
    ['apps/sandbox/src/pauses.ts', 'export const a = process.env.A;'],
  ])('an exception for one is none for the other: %s', async (file, text) => {
    await plant(file, `${text}\n`);
    expect(lint()).toMatchObject({ code: 1 });
  });
});
