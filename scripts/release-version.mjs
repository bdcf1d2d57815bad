// Sets the version of a release: one for all packages, since they are built, tested and released together. Changes files only; it commits,
// tags and publishes nothing.
// Usage: npm run release:version -- X.Y.Z
import { readFileSync, realpathSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { ROOT } from './install.mjs';
import { publishableWorkspaces } from './release-pack.mjs';

const VERSION = /^(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)$/;

/**
 * @param {string} version
 * @param {string} date YYYY-MM-DD
 * @param {string} [root]
 * @returns {string[]} the files that were changed, relative to the root.
 * @throws {Error} before anything is changed, with what a person must correct.
 */
export function setVersion(version, date, root = ROOT) {
  const text = (/** @type {string} */ file) => readFileSync(join(root, file), 'utf8');
  const current = JSON.parse(text('package.json')).version;
  if (!isLater(version, current)) throw new Error(`${version} must be X.Y.Z and later than ${current}`);

  /** @type {Map<string, string>} */
  const changed = new Map();
  changed.set('CHANGELOG.md', releasedChangelog(text('CHANGELOG.md'), version, date));
  for (const file of ['apps/cli/src/program.ts', 'packages/stage-runtime/src/version.ts'])
    changed.set(file, replacedOnce(text(file), `'${current}'`, `'${version}'`));
  const workspaces = publishableWorkspaces(root);
  const ours = new Set(workspaces.map(({ manifest }) => manifest.name));
  const update = (/** @type {any} */ manifest) => {
    manifest.version = version;
    for (const list of [manifest.dependencies ?? {}, manifest.devDependencies ?? {}])
      for (const name of Object.keys(list)) if (ours.has(name)) list[name] = version;
  };
  for (const file of ['package.json', ...workspaces.map(({ folder }) => `${folder}/package.json`)]) {
    const manifest = JSON.parse(text(file));
    update(manifest);
    changed.set(file, `${JSON.stringify(manifest, null, 2)}\n`);
  }
  const lock = JSON.parse(text('package-lock.json'));
  lock.version = version;
  for (const folder of ['', ...workspaces.map((one) => one.folder)]) update(lock.packages[folder]);
  changed.set('package-lock.json', `${JSON.stringify(lock, null, 2)}\n`);

  for (const [file, content] of changed) writeFileSync(join(root, file), content);
  return [...changed.keys()];
}

/**
 * The changelog with what was unreleased under the new version.
 * @param {string} changelog
 * @param {string} version
 * @param {string} date
 */
export function releasedChangelog(changelog, version, date) {
  const [, before, unreleased, rest] = /^(.*?\n## Unreleased\n)(.*?)(\n## .*)?$/s.exec(changelog) ?? [];
  if (before === undefined || unreleased === undefined) throw new Error('CHANGELOG.md has no section "## Unreleased"');
  if (!/^- /m.test(unreleased))
    throw new Error('CHANGELOG.md: nothing is listed under "## Unreleased"; a release needs a line there');
  return `${before}\n## ${version} - ${date}\n${unreleased}${rest ?? ''}`;
}

/** @param {string} version @param {string} current */
function isLater(version, current) {
  const parts = VERSION.exec(version)?.slice(1).map(Number);
  const than = VERSION.exec(current)?.slice(1).map(Number) ?? [];
  if (parts === undefined) return false;
  const at = parts.findIndex((part, index) => part !== than[index]);
  return at !== -1 && (parts[at] ?? 0) > (than[at] ?? 0);
}

/** @param {string} text @param {string} from @param {string} to */
function replacedOnce(text, from, to) {
  if (text.split(from).length !== 2) throw new Error(`apps/cli/src/program.ts must hold ${from} exactly once`);
  return text.replace(from, to);
}

if (realpathSync(process.argv[1] ?? '') === fileURLToPath(import.meta.url)) {
  try {
    const [version = ''] = process.argv.slice(2);
    const files = setVersion(version, new Date().toISOString().slice(0, 10));
    console.log(
      `${files.length} files are at ${version}. Next: npm test, npm run pack:check, commit, tag v${version}, publish (CONTRIBUTING.md).`,
    );
  } catch (error) {
    console.error(error instanceof Error ? error.message : String(error));
    process.exitCode = 2;
  }
}
