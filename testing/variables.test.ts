import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, test } from 'vitest';

const ROOT = fileURLToPath(new URL('../', import.meta.url));
const read = (file: string) => readFileSync(path.join(ROOT, file), 'utf8');

/** Ours by their prefix; others where an environment is read, or a container is given one with a default. */
const VARIABLE = /\bCOUNTERSTAMP_[A-Z_]*[A-Z]\b|(?<=\benv\.)[A-Z][A-Z_]+\b|(?<=\$\{)[A-Z][A-Z_]+(?=:-)/g;

/** Our sources and the files that deploy them, without tests, whose variables are their own. */
function sources(): string[] {
  const workspaces = ['apps', 'packages', 'services'].flatMap((group) =>
    readdirSync(path.join(ROOT, group)).map((name) => path.join(group, name, 'src')),
  );
  const code = [...workspaces, 'deploy']
    .flatMap((folder) =>
      readdirSync(path.join(ROOT, folder), { recursive: true, encoding: 'utf8' }).map((file) =>
        path.join(folder, file),
      ),
    )
    .filter((file) => /\.(ts|mjs|sh|yml)$/.test(file) && !file.endsWith('.test.ts'));
  return [...code, 'docker-compose.yml', 'Dockerfile'];
}

test('every variable that the code or a deployment file names is in the reference', () => {
  const reference = read('docs/reference/configuration.md');
  const isDescribed = (name: string) => reference.includes(`\`${name}\``);
  const named = new Set(sources().flatMap((file) => read(file).match(VARIABLE) ?? []));
  named.delete('PATH'); // The machine's own.
  expect(named.size).toBeGreaterThan(40);
  expect([...named].filter((name) => !isDescribed(name) && !isDescribed(name.replace(/_FILE$/, '')))).toEqual([]);
});
