// Keeps the import arrows of ARCHITECTURE.md: prints every violation and ends with 1 when there is one.
// Globals that hide a clock, chance, the network or the environment are oxlint's part (.oxlintrc.json); `new Date()` is here, because
// oxlint cannot forbid it without forbidding `new Date(ms)`.
// Usage: node scripts/check-arrows.mjs [root]
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseSync } from 'vite';

/** A folder imports only from folders above it. Services stand side by side and never import each other. */
const ORDER = [
  'packages/manifest-core',
  'packages/signatures',
  'packages/embedded-postgres',
  'packages/telemetry',
  'packages/manifest-store',
  'packages/history-checker',
  'packages/receipts',
  'packages/stage-queue',
  'packages/stage-runtime',
  'packages/connectors',
  'packages/workflows',
  'packages/api-contract',
  'services/*',
  'apps/console',
  'apps/sandbox',
  'apps/cli',
];

/** Packages that one workspace owns, so that replacing one touches one folder. */
const OWNERS = {
  bullmq: 'packages/stage-queue',
  ioredis: 'packages/stage-queue',
  pg: 'packages/stage-queue',
  postgres: 'packages/manifest-store',
  'drizzle-orm': 'packages/manifest-store',
  'prom-client': 'packages/telemetry',
  pino: 'packages/telemetry',
  '@opentelemetry/api': 'packages/telemetry',
  '@opentelemetry/exporter-trace-otlp-http': 'packages/telemetry',
  '@opentelemetry/resources': 'packages/telemetry',
  '@opentelemetry/sdk-trace-node': 'packages/telemetry',
  'openid-client': 'services/api',
};

/** Where reading the real clock is the purpose. */
const CLOCK_ALLOWED = [
  'packages/stage-runtime/src/ports/',
  'packages/embedded-postgres/',
  'apps/cli/',
  'apps/sandbox/',
];

/** What a test may import beyond its own workspace's references. */
const TESTS_MAY_IMPORT = 'apps/sandbox';

const root = path.resolve(process.argv[2] ?? fileURLToPath(new URL('../', import.meta.url)));
const violations = [];
const workspaces = readWorkspaces();
for (const workspace of workspaces) {
  checkReferences(workspace);
  for (const file of sourceFiles(path.join(workspace.path, 'src'))) checkFile(workspace, file);
}
for (const violation of violations) console.log(violation);
console.log(`${workspaces.length} workspaces, ${violations.length} violations of the import arrows`);
process.exitCode = violations.length === 0 ? 0 : 1;

/** Every folder with a package.json below packages, services and apps. */
function readWorkspaces() {
  const found = [];
  for (const parent of ['packages', 'services', 'apps'])
    for (const name of existsSync(path.join(root, parent)) ? readdirSync(path.join(root, parent)) : []) {
      const folder = `${parent}/${name}`;
      const file = path.join(root, folder, 'package.json');
      if (!existsSync(file)) continue;
      const manifest = JSON.parse(readFileSync(file, 'utf8'));
      const tsconfig = path.join(root, folder, 'tsconfig.json');
      const { references = [] } = existsSync(tsconfig) ? JSON.parse(readFileSync(tsconfig, 'utf8')) : {};
      found.push({
        folder,
        path: path.join(root, folder),
        name: manifest.name,
        dependencies: Object.keys(manifest.dependencies ?? {}),
        devDependencies: Object.keys(manifest.devDependencies ?? {}),
        references: references.map((r) => path.posix.join(folder, r.path)),
      });
    }
  return found;
}

function checkReferences({ folder, references }) {
  const rank = (of) => ORDER.indexOf(of.startsWith('services/') ? 'services/*' : of);
  const say = (what) => violations.push(`${folder}/tsconfig.json: ${what}`);
  if (rank(folder) === -1) say('this workspace has no place in ORDER of scripts/check-arrows.mjs');
  for (const reference of references) {
    if (folder.startsWith('services/') && reference.startsWith('services/'))
      say(`services never import each other: ${reference}`);
    else if (rank(reference) === -1 || rank(reference) >= rank(folder)) say(`${reference} is not above ${folder}`);
  }
}

/** TypeScript files below `folder`. */
function sourceFiles(folder) {
  if (!existsSync(folder)) return [];
  return readdirSync(folder, { recursive: true, encoding: 'utf8' })
    .filter((name) => /\.[cm]?tsx?$/.test(name) && !name.split(path.sep).includes('node_modules'))
    .map((name) => path.join(folder, name));
}

function checkFile(workspace, file) {
  const relative = path.relative(root, file);
  const isTest = /\.test\.tsx?$/.test(file);
  const text = readFileSync(file, 'utf8');
  const { program, module, errors } = parseSync(relative, text);
  const say = (at, what) => violations.push(`${relative}:${text.slice(0, at).split('\n').length}: ${what}`);
  if (errors.length > 0) say(0, `does not parse: ${errors[0]?.message}`);

  const imports = [...module.staticImports, ...module.staticExports.flatMap((e) => e.entries)].flatMap((i) =>
    i.moduleRequest ? [{ specifier: i.moduleRequest.value, at: i.start }] : [],
  );
  for (const { moduleRequest, start } of module.dynamicImports) {
    const literal = /^(['"`])([^'"`$]+)\1$/.exec(text.slice(moduleRequest.start, moduleRequest.end));
    if (literal?.[2]) imports.push({ specifier: literal[2], at: start });
  }
  walk(program, (node) => {
    if (node.type === 'TSImportType')
      imports.push({ specifier: node.source?.value ?? node.argument?.literal?.value ?? '', at: node.start });
    if (isTest || CLOCK_ALLOWED.some((place) => relative.startsWith(place))) return;
    const readsClock = node.type === 'CallExpression' || (node.type === 'NewExpression' && node.arguments.length === 0);
    if (readsClock && node.callee.type === 'Identifier' && node.callee.name === 'Date')
      say(node.start, 'reads the real clock: take the Clock port');
  });
  for (const { specifier, at } of imports) {
    const problem = specifier.startsWith('.')
      ? relativeProblem(workspace, file, specifier, isTest)
      : packageProblem(workspace, specifier, isTest);
    if (problem !== undefined) say(at, problem);
  }
}

function relativeProblem(workspace, file, specifier, isTest) {
  const target = path.resolve(path.dirname(file), specifier);
  if (target.startsWith(workspace.path + path.sep)) return undefined;
  if (isTest && target.startsWith(path.join(root, 'testing') + path.sep)) return undefined;
  return `"${specifier}" leaves the workspace: import a package by its name`;
}

function packageProblem(workspace, specifier, isTest) {
  const parts = specifier.split('/');
  const name = specifier.startsWith('@') ? `${parts[0]}/${parts[1]}` : parts[0];
  const owner = Object.hasOwn(OWNERS, name) ? OWNERS[name] : undefined;
  if (owner !== undefined && owner !== workspace.folder && !isTest) return `only ${owner} imports ${name}`;
  const ours = workspaces.find((w) => w.name === name);
  if (ours === undefined) return name.startsWith('@counterstamp/') ? `${name} is no workspace` : undefined;
  if (ours === workspace) return 'a workspace imports its own files by relative path';
  if (isTest && ours.folder === TESTS_MAY_IMPORT) return undefined;
  if (!workspace.references.includes(ours.folder))
    return `${name} is not among the references of ${workspace.folder}/tsconfig.json`;
  const declared = isTest ? [...workspace.dependencies, ...workspace.devDependencies] : workspace.dependencies;
  if (!declared.includes(name)) return `${name} is not among the dependencies of ${workspace.folder}/package.json`;
  return undefined;
}

/** Calls `visit` for every node of a syntax tree. */
function walk(node, visit) {
  if (Array.isArray(node)) for (const item of node) walk(item, visit);
  else if (node !== null && typeof node === 'object') {
    if (typeof node.type === 'string') visit(node);
    for (const value of Object.values(node)) walk(value, visit);
  }
}
