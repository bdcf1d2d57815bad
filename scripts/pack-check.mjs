// Checks the packages as somebody who installs them: packs them, installs the tarballs into an empty project, type-checks and runs the
// README's library example there, and starts the command. Needs the registry for what our packages depend on.
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, posix, relative } from 'node:path';
import { publint } from 'publint';
import { formatMessage } from 'publint/utils';
import { boundedRun } from './bounded-run.mjs';
import { ensureInstalled, ROOT } from './install.mjs';
import { packWorkspaces } from './release-pack.mjs';

/** Milliseconds for the installation; 10 s here. */
const INSTALL_MS = 600_000;
/** Milliseconds for a step that needs no network. */
const STEP_MS = 120_000;

const faults = [];
const project = mkdtempSync(join(tmpdir(), 'counterstamp-pack-check-'));
try {
  ensureInstalled();
  const packed = await packWorkspaces(join(project, 'tarballs'));
  console.log(
    `packed ${packed.length} packages, ${Math.round(sum(packed.map(({ tarball }) => statSync(tarball).size)) / 1024)} kB`,
  );
  process.chdir(project);
  await install(packed);
  for (const one of packed) await checkPackage(one);
  await checkTypes(packed);
  await checkExample();
  await checkCommand();
} catch (error) {
  faults.push(error instanceof Error ? error.message : String(error));
} finally {
  process.chdir(ROOT);
  rmSync(project, { recursive: true, force: true });
}
for (const fault of faults) console.log(`FAILED  ${fault}`);
if (faults.length === 0) console.log('The packages install, type-check and run in an empty project.');
process.exitCode = faults.length === 0 ? 0 : 1;

/** @param {import('./release-pack.mjs').Packed[]} packed */
async function install(packed) {
  const dependencies = Object.fromEntries(packed.map(({ manifest, tarball }) => [manifest.name, `file:${tarball}`]));
  const root = JSON.parse(readFileSync(`${ROOT}package.json`, 'utf8'));
  const devDependencies = { '@types/node': root.devDependencies['@types/node'] };
  writeJson('package.json', { name: 'empty-project', private: true, type: 'module', dependencies, devDependencies });
  // The embedded Postgres is an optional package of 120 MB; nothing here starts it.
  await step(
    'npm',
    ['install', '--ignore-scripts', '--omit=optional', '--no-audit', '--no-fund', '--loglevel=error'],
    INSTALL_MS,
  );
  console.log('installed into an empty project');
}

/**
 * What is in the package, and whether its package.json tells the truth.
 * @param {import('./release-pack.mjs').Packed} packed
 */
async function checkPackage({ manifest, tarball }) {
  const folder = join(project, 'node_modules', manifest.name);
  const files = filesBelow(folder);
  const fault = (/** @type {string} */ sentence) => faults.push(`${manifest.name}: ${sentence}`);
  for (const needed of ['LICENSE', 'package.json', 'dist/index.js', 'dist/index.d.ts'])
    if (!files.includes(needed)) fault(`${needed} is missing`);
  for (const file of files) {
    if (/\.(test|test-support|spec)\.|(^|\/)(testing|__tests__)\/|\.tsbuildinfo$|(^|\/)\.env/.test(file))
      fault(`${file} is not for publication`);
    if (!file.endsWith('.map')) continue;
    for (const source of JSON.parse(readFileSync(join(folder, file), 'utf8')).sources) {
      const target = posix.join(posix.dirname(file), source);
      if (!files.includes(target)) fault(`${file} points to ${target}, which the package does not hold`);
    }
  }
  const bytes = readFileSync(tarball);
  const archive = bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.byteLength);
  const { messages } = await publint({ pack: { tarball: archive }, strict: true });
  for (const message of messages.filter(({ type }) => type !== 'suggestion'))
    fault(formatMessage(message, manifest) ?? message.code);
  if (!tarball.endsWith(`-${manifest.version}.tgz`)) fault(`${tarball} is not version ${manifest.version}`);
  for (const [name, version] of Object.entries(manifest.dependencies ?? {}))
    if (name.startsWith('@counterstamp/') && version !== manifest.version)
      fault(`${name} is asked for as ${version}, not ${manifest.version}`);
}

/**
 * Every entry point's types, seen without our own settings: a type that a consumer cannot resolve would silently be `any` for them.
 * @param {import('./release-pack.mjs').Packed[]} packed
 */
async function checkTypes(packed) {
  const entries = packed.flatMap(({ manifest }) =>
    Object.keys(manifest.exports).map((entry) => posix.join(manifest.name, entry)),
  );
  writeFileSync(
    join(project, 'entries.ts'),
    entries.map((entry, i) => `export * as e${i} from '${entry}';\n`).join(''),
  );
  const said = await compile(['entries.ts'], { types: ['node'], skipLibCheck: false, noEmit: true });
  // Other projects' declarations are theirs to keep.
  const ours = said
    .split('\n')
    .filter(
      (line) =>
        /error TS/.test(line) &&
        (/node_modules\/(@counterstamp\/|counterstamp\/)/.test(line) || line.startsWith('entries.ts')),
    );
  for (const line of ours) faults.push(`types: ${line}`);
  console.log(`type-checked ${entries.length} entry points`);
}

/** The README's library example, as it stands there. */
async function checkExample() {
  const section = /^## As a library$(.*?)(?=^## )/ms.exec(readFileSync(`${ROOT}README.md`, 'utf8'))?.[1] ?? '';
  const code = /^```ts\n(.*?)^```$/ms.exec(section)?.[1];
  const expected = /^```text\n(.*?)^```$/ms.exec(section)?.[1];
  if (code === undefined || expected === undefined) {
    faults.push('README.md: the section "As a library" has no ```ts example with its output as ```text');
    return;
  }
  writeFileSync(join(project, 'example.ts'), code);
  const said = await compile(['example.ts'], { types: ['node'], skipLibCheck: true, outDir: 'out' });
  if (said !== '') faults.push(`README example, types: ${said}`);
  const output = await step(process.execPath, ['out/example.js'], STEP_MS);
  if (output !== expected) faults.push(`README example: it printed\n${output}but README.md says\n${expected}`);
  console.log('ran the README example');
}

async function checkCommand() {
  const { version } = JSON.parse(readFileSync(`${ROOT}apps/cli/package.json`, 'utf8'));
  const help = await step('npx', ['--no-install', 'counterstamp', '--help'], STEP_MS);
  if (!help.startsWith('Usage: counterstamp ')) faults.push(`counterstamp --help printed: ${help}`);
  const said = (await step('npx', ['--no-install', 'counterstamp', '--version'], STEP_MS)).trim();
  if (said !== version) faults.push(`counterstamp --version printed ${said}, not ${version}`);
  // Services refuse an empty environment; that they can say so shows that everything they import is there.
  for (const service of ['api', 'preflight', 'executor', 'verifier', 'reconciler']) {
    const run = await boundedRun(
      process.execPath,
      ['node_modules/counterstamp/bin/counterstamp.mjs', 'service', service],
      { limitMs: STEP_MS, show: false, env: { PATH: process.env.PATH } },
    );
    if (run.why !== 'exit code 78') faults.push(`counterstamp service ${service}: ${run.why}\n${run.output}`);
  }
  console.log('started the command and each service');
}

/**
 * Compiles in the empty project with our compiler and a consumer's strict settings.
 * @param {string[]} files
 * @param {Record<string, unknown>} options
 * @returns {Promise<string>} what the compiler says; '' when nothing.
 */
async function compile(files, options) {
  const compilerOptions = { target: 'es2023', module: 'nodenext', strict: true, rootDir: '.', ...options };
  writeJson('tsconfig.json', { compilerOptions, files });
  const run = await boundedRun(`${ROOT}node_modules/.bin/tsc`, ['-p', '.', '--pretty', 'false'], {
    limitMs: STEP_MS,
    show: false,
  });
  if (!run.ok && run.output.trim() === '') throw new Error(`tsc: ${run.why}`);
  return run.output.trim();
}

/**
 * @param {string} program
 * @param {string[]} args
 * @param {number} limitMs
 * @returns {Promise<string>} what it printed.
 */
async function step(program, args, limitMs) {
  const run = await boundedRun(program, args, { limitMs, show: false });
  if (!run.ok) throw new Error(`${program} ${args.join(' ')}: ${run.why}\n${run.output}`);
  return run.output;
}

/** @param {string} folder @returns {string[]} files below it, relative, with `/`. Packages inside it are not its own. */
function filesBelow(folder) {
  return readdirSync(folder, { withFileTypes: true, recursive: true })
    .filter((entry) => entry.isFile())
    .map((entry) => relative(folder, join(entry.parentPath ?? entry.path, entry.name)).replaceAll('\\', '/'))
    .filter((file) => !file.startsWith('node_modules/'));
}

/** @param {string} file @param {unknown} value */
function writeJson(file, value) {
  mkdirSync(project, { recursive: true });
  writeFileSync(join(project, file), `${JSON.stringify(value, null, 2)}\n`);
}

/** @param {number[]} numbers */
function sum(numbers) {
  return numbers.reduce((total, one) => total + one, 0);
}
