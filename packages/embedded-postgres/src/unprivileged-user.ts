import { readFile, stat } from 'node:fs/promises';
import path from 'node:path';

/** The ids Postgres runs under; empty means our own. */
export interface RunAs {
  uid?: number;
  gid?: number;
}

/** True when this process is root, under which Postgres refuses to run. */
export function isRoot(): boolean {
  return process.getuid?.() === 0;
}

/**
 * Chooses who Postgres runs as: ourselves, unless we are root. As root the owner of an existing data folder keeps it, so that a
 * folder made by a normal user still works under sudo; otherwise `nobody`, which has a passwd entry everywhere (initdb needs one).
 * @throws {Error} as root on a machine without a usable `nobody`.
 */
export async function chooseRunAs(dataFolder: string): Promise<RunAs> {
  if (!isRoot()) return {};
  const owner = await stat(dataFolder).catch(() => undefined);
  if (owner !== undefined && owner.uid !== 0) return { uid: owner.uid, gid: owner.gid };
  const passwd = await readFile('/etc/passwd', 'utf8').catch(() => '');
  const nobody = /^nobody:[^:]*:(\d+):(\d+):/m.exec(passwd);
  if (nobody === null || nobody[1] === '0')
    throw new Error('PostgreSQL does not run as root and /etc/passwd has no user "nobody": start as a normal user');
  return { uid: Number(nobody[1]), gid: Number(nobody[2]) };
}

/** True when every user may pass through all folders from the root down to `folder`, and read `folder` itself. */
export async function isReachableByAll(folder: string): Promise<boolean> {
  const resolved = path.resolve(folder);
  if (((await stat(resolved)).mode & 0o005) !== 0o005) return false;
  return isBelowOpenParents(resolved);
}

/** True when every user may pass through all parents of `folder`. */
export async function isBelowOpenParents(folder: string): Promise<boolean> {
  for (let at = path.dirname(path.resolve(folder)); ; at = path.dirname(at)) {
    if (((await stat(at)).mode & 0o001) === 0) return false;
    if (at === path.dirname(at)) return true;
  }
}
