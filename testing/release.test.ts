import { spawnSync } from 'node:child_process';
import { cpSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { VERSION } from '@counterstamp/stage-runtime';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';

interface PackageJson {
  name: string;
  version: string;
  private?: boolean;
  license?: string;
  files?: string[];
  exports?: Record<string, { types?: string; default?: string }>;
  publishConfig?: { access?: string };
  engines?: { node?: string };
  description?: string;
  dependencies?: Record<string, string>;
  devDependencies?: Record<string, string>;
}

const read = (path: string) => JSON.parse(readFileSync(path, 'utf8')) as PackageJson;
const root = read('package.json');
const folders = ['packages', 'services', 'apps'].flatMap((parent) =>
  readdirSync(parent).map((name) => `${parent}/${name}`),
);
const published = folders
  .map((folder) => ({ folder, ...read(`${folder}/package.json`) }))
  .filter((one) => !one.private);

describe('every package that is published', () => {
  test.each(published)('$folder says what it is, carries types and names its own parts by version', (one) => {
    expect(one).toMatchObject({
      version: root.version,
      license: root.license,
      engines: { node: '>=20.19' },
      publishConfig: { access: 'public' },
    });
    expect(one.description?.length).toBeGreaterThan(20);
    expect(one.files).toEqual(expect.arrayContaining(['dist', 'src', '!src/**/*.test.ts']));
    for (const entry of Object.values(one.exports ?? {}))
      expect(entry).toMatchObject({
        types: expect.stringMatching(/^\.\/dist\/.*\.d\.ts$/),
        default: expect.stringMatching(/^\.\/dist\/.*\.js$/),
      });
    for (const [name, version] of Object.entries(one.dependencies ?? {})) {
      expect(version, name).toMatch(/^\d+\.\d+\.\d+(-[\w.]+)?$/);
      if (folders.some((folder) => read(`${folder}/package.json`).name === name)) {
        expect(version, name).toBe(root.version);
        expect(published.map((other) => other.name)).toContain(name);
      }
    }
  });

  test('the command says the version that its package has', () => {
    expect(readFileSync('apps/cli/src/program.ts', 'utf8')).toContain(`.version('${root.version}')`);
    expect(VERSION).toBe(root.version);
  });
});

describe('npm run release:version', () => {
  let tree: string;
  beforeEach(() => {
    tree = mkdtempSync(join(tmpdir(), 'cs-release-'));
    for (const file of [
      'package.json',
      'package-lock.json',
      'apps/cli/src/program.ts',
      'packages/stage-runtime/src/version.ts',
      ...folders.map((folder) => `${folder}/package.json`),
    ]) {
      mkdirSync(join(tree, file, '..'), { recursive: true });
      cpSync(file, join(tree, file));
    }
    cpSync('scripts', join(tree, 'scripts'), { recursive: true });
    writeFileSync(
      join(tree, 'CHANGELOG.md'),
      '# Changelog\n\n## Unreleased\n\n### Added\n- One.\n\n## 0.0.1 - 2026-01-01\n\n- Zero.\n',
    );
  });
  afterEach(() => rmSync(tree, { recursive: true }));

  const release = (version: string) =>
    spawnSync(process.execPath, ['scripts/release-version.mjs', version], { cwd: tree, encoding: 'utf8' });

  test('sets one version everywhere and dates the changelog', () => {
    expect(release('7.8.9')).toMatchObject({ status: 0, stdout: expect.stringContaining('are at 7.8.9') });
    const now = ['package.json', ...published.map(({ folder }) => `${folder}/package.json`)].map((file) =>
      read(join(tree, file)),
    );
    const ours = new Set(published.map(({ name }) => name));
    for (const { name, version, dependencies, devDependencies } of now) {
      expect(version, name).toBe('7.8.9');
      for (const [dependency, wanted] of Object.entries({ ...dependencies, ...devDependencies }))
        if (ours.has(dependency)) expect(wanted).toBe('7.8.9');
    }
    const lock = JSON.parse(readFileSync(join(tree, 'package-lock.json'), 'utf8')) as {
      version: string;
      packages: Record<string, PackageJson>;
    };
    expect(lock.version).toBe('7.8.9');
    for (const { folder } of published) expect(lock.packages[folder]?.version, folder).toBe('7.8.9');
    expect(readFileSync(join(tree, 'apps/cli/src/program.ts'), 'utf8')).toContain(".version('7.8.9')");
    expect(readFileSync(join(tree, 'packages/stage-runtime/src/version.ts'), 'utf8')).toContain("VERSION = '7.8.9'");
    expect(readFileSync(join(tree, 'CHANGELOG.md'), 'utf8')).toMatch(
      /^# Changelog\n\n## Unreleased\n\n## 7\.8\.9 - \d{4}-\d\d-\d\d\n\n### Added\n- One\.\n\n## 0\.0\.1 - 2026-01-01\n\n- Zero\.\n$/,
    );
  });

  test.each(['', '0.0.1', root.version, 'v9.0.0', '9.0', '9.0.0-rc.1'])(
    'refuses the version "%s" and changes nothing',
    (version) => {
      expect(release(version)).toMatchObject({ status: 2, stderr: expect.stringContaining('later than') });
      expect(read(join(tree, 'package.json')).version).toBe(root.version);
    },
  );

  test('refuses a release of which the changelog says nothing', () => {
    writeFileSync(join(tree, 'CHANGELOG.md'), '# Changelog\n\n## Unreleased\n\n## 0.0.1 - 2026-01-01\n\n- Zero.\n');
    expect(release('9.0.0')).toMatchObject({ status: 2, stderr: expect.stringContaining('nothing is listed') });
    expect(read(join(tree, 'packages/manifest-core/package.json')).version).toBe(root.version);
  });
});
