// Packs every publishable workspace from a clean copy: what is published is what git sees, freshly built, with the licence in each package.
// Usage: npm run release:pack -- FOLDER, then `npm publish` each file that it names, in that order.
import {
  copyFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  realpathSync,
  rmSync,
  symlinkSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { boundedRun } from './bounded-run.mjs';
import { ensureInstalled, ROOT } from './install.mjs';

/** Milliseconds for the build, and for one `npm pack`; seconds here. */
const STEP_MS = 300_000;

/**
 * A workspace as it is published.
 * @typedef {{ folder: string, manifest: any, tarball: string }} Packed
 */

/**
 * Every workspace that is not private, each after those that it depends on.
 * @param {string} [root]
 * @returns {{ folder: string, manifest: any }[]} `folder` is relative to the root.
 */
export function publishableWorkspaces(root = ROOT) {
  const { workspaces } = readJson(join(root, 'package.json'));
  const found = workspaces
    .map((/** @type {string} */ glob) => glob.replace(/\/\*$/, ''))
    .flatMap((/** @type {string} */ parent) => readdirSync(join(root, parent)).map((name) => `${parent}/${name}`))
    .filter((/** @type {string} */ folder) => existsSync(join(root, folder, 'package.json')))
    .map((/** @type {string} */ folder) => ({ folder, manifest: readJson(join(root, folder, 'package.json')) }))
    .filter((/** @type {{ manifest: any }} */ { manifest }) => manifest.private !== true);
  const byName = new Map(found.map((/** @type {{ manifest: any }} */ one) => [one.manifest.name, one]));
  const ordered = new Set();
  const visit = (/** @type {any} */ one) => {
    if (one === undefined || ordered.has(one)) return;
    for (const name of Object.keys(one.manifest.dependencies ?? {})) visit(byName.get(name));
    ordered.add(one);
  };
  for (const one of found) visit(one);
  return [...ordered];
}

/**
 * Builds a clean copy and packs it.
 * @param {string} destination folder for the tarballs; made when it is missing.
 * @returns {Promise<Packed[]>} in the order in which they can be published.
 * @throws {Error} with the output of the step that failed.
 */
export async function packWorkspaces(destination) {
  mkdirSync(destination, { recursive: true });
  const copy = mkdtempSync(join(tmpdir(), 'counterstamp-pack-'));
  try {
    await copyTree(copy);
    await step(join(copy, 'node_modules/.bin/tsc'), ['-b', copy]);
    const packed = [];
    for (const { folder, manifest } of publishableWorkspaces(copy)) {
      copyFileSync(join(copy, 'LICENSE'), join(copy, folder, 'LICENSE'));
      const said = await step('npm', [
        'pack',
        join(copy, folder),
        '--json',
        '--ignore-scripts',
        `--pack-destination=${resolve(destination)}`,
        '--loglevel=error',
      ]);
      packed.push({ folder, manifest, tarball: join(resolve(destination), packedFile(said)) });
    }
    return packed;
  } finally {
    rmSync(copy, { recursive: true, force: true });
  }
}

/**
 * The name of the file from what `npm pack --json` prints: a list, or from npm 12 on an object by package name.
 * @param {string} said
 */
function packedFile(said) {
  const [one] = Object.values(JSON.parse(said));
  return one.filename;
}

/**
 * Copies what git tracks or would track. Installed packages are linked, our own among them to the copy: the build must not see the original.
 * @param {string} copy
 */
async function copyTree(copy) {
  const listed = await step('git', ['-C', ROOT, 'ls-files', '-z', '--cached', '--others', '--exclude-standard']);
  for (const file of listed.split('\0')) {
    if (file === '' || !existsSync(join(ROOT, file))) continue; // Deleted, not yet committed.
    mkdirSync(dirname(join(copy, file)), { recursive: true });
    copyFileSync(join(ROOT, file), join(copy, file));
  }
  const ours = new Map(publishableWorkspaces(copy).map(({ folder, manifest }) => [manifest.name, join(copy, folder)]));
  mkdirSync(join(copy, 'node_modules/@counterstamp'), { recursive: true });
  for (const name of readdirSync(join(ROOT, 'node_modules'))) {
    if (name === '@counterstamp' || name === '.package-lock.json' || ours.has(name)) continue;
    symlinkSync(join(ROOT, 'node_modules', name), join(copy, 'node_modules', name));
  }
  for (const [name, folder] of ours) symlinkSync(folder, join(copy, 'node_modules', name));
  // Packages that npm could not hoist, because another workspace has another version of them.
  for (const { folder } of publishableWorkspaces(copy)) {
    const nested = join(ROOT, folder, 'node_modules');
    if (existsSync(nested)) symlinkSync(nested, join(copy, folder, 'node_modules'));
  }
}

/**
 * @param {string} program
 * @param {string[]} args
 * @returns {Promise<string>} what it printed.
 * @throws {Error} with what it printed when it fails.
 */
async function step(program, args) {
  const run = await boundedRun(program, args, { limitMs: STEP_MS, show: false });
  if (!run.ok) throw new Error(`${program} ${args.join(' ')}: ${run.why}\n${run.output}`);
  return run.output;
}

/** @param {string} file */
function readJson(file) {
  return JSON.parse(readFileSync(file, 'utf8'));
}

if (realpathSync(process.argv[1] ?? '') === fileURLToPath(import.meta.url)) {
  const [destination] = process.argv.slice(2);
  if (destination === undefined) {
    console.error('Name the folder for the packages: npm run release:pack -- FOLDER');
    process.exit(2);
  }
  ensureInstalled();
  for (const { tarball } of await packWorkspaces(destination)) console.log(tarball);
}
