import { randomBytes } from 'node:crypto';
import { chown, mkdir, readFile, rename, rm, stat, writeFile } from 'node:fs/promises';
import path from 'node:path';
import type { Binaries } from './binaries.ts';
import { runBounded } from './bounded-command.ts';
import { isBelowOpenParents, type RunAs } from './unprivileged-user.ts';

/** Milliseconds for initdb. It takes 1–8 s; a loaded machine with a slow disk needs more. */
const INITDB_MS = 120_000;

/** Name of the superuser. */
export const OWNER = 'app';

/** Files of one embedded cluster: `<dir>/pgdata`, `<dir>/owner-password`, `<dir>/postgres.log`, `<dir>/supervisor.json`. */
export interface DataFolder {
  pgdata: string;
  /** What to pass as `-D`, together with `pgdata` as the working folder. */
  dashD: string;
  log: string;
  password: string;
  /** Milliseconds of initdb when this start made the cluster. */
  initdbMs?: number;
}

/**
 * Opens the cluster in `dir`, made with initdb on first use. A start that was killed half-way leaves nothing that looks finished.
 * @throws {Error} when initdb fails, another user owns the folder, or another major version of PostgreSQL made it.
 */
export async function openDataFolder(
  dir: string,
  binaries: Binaries,
  options: { runAs: RunAs; durable: boolean; signal?: AbortSignal | undefined },
): Promise<DataFolder> {
  const { runAs, durable, signal } = options;
  const pgdata = path.join(dir, 'pgdata');
  const password = await ownerPassword(path.join(dir, 'owner-password'), runAs);
  const folder: DataFolder = {
    pgdata,
    dashD: await dashD(dir, pgdata, runAs),
    log: path.join(dir, 'postgres.log'),
    password,
  };
  const made = (await readFile(path.join(pgdata, 'PG_VERSION'), 'utf8').catch(() => '')).trim();
  if (made !== '') {
    if (Number(made) !== binaries.major)
      throw new Error(`${pgdata} was made by PostgreSQL ${made}; ${binaries.source} is PostgreSQL ${binaries.major}`);
    return folder;
  }
  const startedAt = performance.now();
  const fresh = path.join(dir, 'pgdata.new');
  await rm(fresh, { recursive: true, force: true });
  await mkdir(fresh, { mode: 0o700 });
  await giveTo(fresh, runAs);
  const passwordFile = path.join(fresh, '..', 'owner-password');
  await runBounded(
    path.join(binaries.binDir, 'initdb'),
    [
      ...['-D', await dashD(dir, fresh, runAs), '-U', OWNER, '-A', 'scram-sha-256', '-E', 'UTF8', '--no-instructions'],
      `--pwfile=${folder.dashD === pgdata ? passwordFile : '/proc/self/cwd/../owner-password'}`,
      // The built-in provider sorts the same on every machine; before 17 the system's C.UTF-8 comes nearest.
      ...(binaries.major >= 17
        ? ['--locale=C', '--locale-provider=builtin', '--builtin-locale=C.UTF-8']
        : ['--locale=C.UTF-8']),
      ...(durable ? [] : ['--no-sync']),
    ],
    { limitMs: INITDB_MS, runAs, cwd: fresh, signal },
  );
  await rm(pgdata, { recursive: true, force: true });
  await rename(fresh, pgdata);
  return { ...folder, initdbMs: Math.round(performance.now() - startedAt) };
}

/** Makes `folder` belong to whoever Postgres runs as. */
export async function giveTo(folder: string, runAs: RunAs): Promise<void> {
  if (runAs.uid !== undefined && runAs.gid !== undefined) await chown(folder, runAs.uid, runAs.gid);
}

/** The superuser's password, made on first use and kept in a file that only its owner reads. */
async function ownerPassword(file: string, runAs: RunAs): Promise<string> {
  const kept = (await readFile(file, 'utf8').catch(() => '')).trim();
  if (kept !== '') return kept;
  const password = randomBytes(24).toString('base64url'); // 192 bits, and needs no escaping in a URL.
  const fresh = `${file}.new`;
  await rm(fresh, { force: true });
  await writeFile(fresh, `${password}\n`, { mode: 0o600 });
  await giveTo(fresh, runAs); // initdb reads it.
  await rename(fresh, file);
  return password;
}

/**
 * Root's clones often lie below a closed folder such as /root, through which the user of Postgres may not pass. The working folder
 * is entered before the user changes, so that `/proc/self/cwd` reaches it without touching anybody's permissions.
 */
async function dashD(dir: string, folder: string, runAs: RunAs): Promise<string> {
  // `dir` itself belongs to that user; only what lies above it can be closed.
  if (runAs.uid === undefined || (await isBelowOpenParents(dir))) return folder;
  await stat('/proc/self/cwd').catch(() => {
    throw new Error(
      `uid ${runAs.uid}, under which PostgreSQL runs, cannot reach ${folder}: choose a folder below open parents`,
    );
  });
  return '/proc/self/cwd';
}
