import { execFileSync } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { existsSync } from 'node:fs';
import { chmod, mkdir, mkdtemp, readdir, readFile, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { startEmbeddedPostgres } from '@counterstamp/embedded-postgres';
import { connect } from '@counterstamp/manifest-store';
import connectTo from 'postgres';
import { migrationTags } from '../../packages/manifest-store/testing/earlier-schema.ts';
import { prepareFleetDatabase } from '../../testing/fleet.ts';
import { startOrphanGuard } from '../../testing/orphan-guard.ts';
import { upgradeDrill } from './upgrade-drill.ts';

const ROOT = fileURLToPath(new URL('../../', import.meta.url));
const ACCESS = { rolePrefix: 'cs_upgrade_', secret: 'upgrade-check-secret-of-this-run-only' };
/** Milliseconds for an install, and for a build. */
const INSTALL_MS = 600_000;
const BUILD_MS = 300_000;

const { values } = parseArgs({ options: { from: { type: 'string' }, help: { type: 'boolean', default: false } } });
if (values.help) {
  console.log(`npm run upgrade:check -- [--from GIT_REF]

Builds the code of an earlier commit or tag in a folder of its own and runs it side by side with this one: old processes on their own schema, this version's migrations
under them, both together, new ones alone, old ones again. Without --from it is the commit before the newest migration. Installs the old dependencies with npm ci where they differ. Sends only to this machine.
Ends with 1 when the old code cannot live with the new schema, a run does not end, or anything is there twice.`);
  process.exit(0);
}
const startedAt = performance.now();
const say = (sentence: string) =>
  console.log(`✓ ${sentence} (${((performance.now() - startedAt) / 1_000).toFixed(0)} s)`);

const folder = await mkdtemp(path.join(tmpdir(), 'cs-upgrade-'));
await chmod(folder, 0o711); // Postgres runs as another user when we are root, and must pass through.
const guard = startOrphanGuard(folder);
const old = path.join(folder, 'old');
let exit = 0;
try {
  const from = values.from ?? (await beforeNewestMigration());
  await buildOld(from);
  const postgres = await startEmbeddedPostgres({ dir: path.join(folder, 'postgres'), durable: false });
  await writeFile(path.join(folder, `postgres${guard.pidFileEnding}`), String(postgres.pid));
  try {
    const ownerUrl = await emptyDatabase(postgres.url);
    const env = {
      PATH: process.env.PATH ?? '',
      DATABASE_URL: ownerUrl,
      COUNTERSTAMP_SECRET: ACCESS.secret,
      COUNTERSTAMP_ROLE_PREFIX: ACCESS.rolePrefix,
    };
    const oldCommand = (...args: string[]) =>
      execFileSync(process.execPath, ['apps/cli/dist/main.js', ...args], {
        cwd: old,
        env: { ...env, COUNTERSTAMP_DEV: '1' },
        timeout: BUILD_MS,
        encoding: 'utf8',
      });
    oldCommand('migrate');
    const keyOf = (role: string) => {
      const made = oldCommand('key', 'create', '--tenant', 'shop_north', '--name', role, '--role', role, '--json');
      return (JSON.parse(made) as { key: string }).key;
    };
    const keys = { requester: keyOf('requester'), approver: keyOf('approver') };
    say(`The old code made its database: ${await appliedTo(ownerUrl)} migrations.`);
    await upgradeDrill({
      fleet: { ownerUrl, ...ACCESS, keys },
      oldRoot: old,
      async upgrade() {
        const before = await appliedTo(ownerUrl);
        await prepareFleetDatabase(ownerUrl, ACCESS);
        return (await migrationTags()).slice(before);
      },
      say,
    });
    console.log(`The code of ${from} and this one can work side by side and be exchanged for each other.`);
  } finally {
    await postgres.stop();
  }
} catch (error) {
  console.error(`✗ ${error instanceof Error ? error.message : String(error)}`);
  exit = 1;
} finally {
  await rm(folder, { recursive: true, force: true });
  guard.dismiss();
}
process.exit(exit);

/** The old code as `git archive` gives it, built. Its dependencies are ours where the lock is the same. */
async function buildOld(ref: string): Promise<void> {
  await mkdir(old);
  const archive = path.join(folder, 'old.tar');
  execFileSync('git', ['archive', '--format=tar', '--output', archive, `${ref}^{commit}`], {
    cwd: ROOT,
    timeout: BUILD_MS,
  });
  execFileSync('tar', ['-xf', archive, '-C', old], { timeout: BUILD_MS });
  const lock = (root: string) => readFile(path.join(root, 'package-lock.json'), 'utf8');
  if ((await lock(ROOT)) === (await lock(old))) {
    await linkDependencies();
    say(`The code of ${ref}, with the dependencies that are here: the lock is the same.`);
  } else {
    execFileSync('npm', ['ci', '--ignore-scripts', '--no-audit', '--no-fund'], {
      cwd: old,
      timeout: INSTALL_MS,
      stdio: ['ignore', 'ignore', 'inherit'],
    });
    say(`The code of ${ref}, with its own dependencies by npm ci.`);
  }
  execFileSync(path.join(old, 'node_modules/.bin/tsc'), ['-b'], { cwd: old, timeout: BUILD_MS, stdio: 'inherit' });
  say('Built.');
}

/** Every dependency as a link to ours, and the workspaces as links to the old folders: a package finds its siblings at its own version. */
async function linkDependencies(): Promise<void> {
  const theirs = path.join(old, 'node_modules');
  await mkdir(path.join(theirs, '@counterstamp'), { recursive: true });
  for (const name of await readdir(path.join(ROOT, 'node_modules')))
    if (name !== '@counterstamp' && name !== 'counterstamp')
      await symlink(path.join(ROOT, 'node_modules', name), path.join(theirs, name));
  for (const group of ['packages', 'services', 'apps'])
    for (const folderName of await readdir(path.join(old, group))) {
      const workspace = path.join(old, group, folderName);
      if (!existsSync(path.join(workspace, 'package.json'))) continue;
      const { name } = JSON.parse(await readFile(path.join(workspace, 'package.json'), 'utf8')) as { name: string };
      await symlink(workspace, path.join(theirs, name));
      const own = path.join(ROOT, group, folderName, 'node_modules');
      if (existsSync(own)) await symlink(own, path.join(workspace, 'node_modules'));
    }
}

async function beforeNewestMigration(): Promise<string> {
  const newest = `packages/manifest-store/migrations/${(await migrationTags()).at(-1)}.sql`;
  const added = ['log', '--diff-filter=A', '--format=%H', '--', newest];
  const [commit = ''] = execFileSync('git', added, { cwd: ROOT, encoding: 'utf8', timeout: BUILD_MS }).split('\n');
  // Not committed yet: then what is committed is the code before it.
  return commit === '' ? 'HEAD' : `${commit}^`;
}

async function emptyDatabase(serverUrl: string): Promise<string> {
  const sql = connectTo(serverUrl, { max: 1, onnotice: () => undefined });
  const name = `upgrade_${randomUUID().slice(0, 8)}`;
  await sql`create database ${sql(name)}`;
  await sql.end({ timeout: 2 });
  const url = new URL(serverUrl);
  url.pathname = `/${name}`;
  return url.href;
}

async function appliedTo(ownerUrl: string): Promise<number> {
  const sql = connect(ownerUrl, { max: 1, applicationName: 'upgrade-check' });
  const [row] = await sql<{ n: number }[]>`select count(*)::int as n from cs_migrations.__drizzle_migrations`;
  await sql.end({ timeout: 2 });
  return row?.n ?? 0;
}
