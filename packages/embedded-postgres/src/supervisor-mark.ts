import { readFile, rm, writeFile } from 'node:fs/promises';
import path from 'node:path';

/**
 * Says which process supervises a cluster, so that a second start can tell a neighbour (refuse) from a corpse (take over).
 * The start time guards against a pid that the system gave away again; it is '' where /proc does not exist.
 */
interface SupervisorMark {
  pid: number;
  started: string;
}

/**
 * Claims `folder` for this process.
 * @returns a function that gives the claim back.
 * @throws {Error} when a living process, this one included, holds it.
 */
export async function claimFolder(folder: string): Promise<() => Promise<void>> {
  const file = path.join(folder, 'supervisor.json');
  const mark: SupervisorMark = { pid: process.pid, started: await startTime(process.pid) };
  const write = (): Promise<void> => writeFile(file, JSON.stringify(mark), { flag: 'wx', mode: 0o600 });
  try {
    await write();
  } catch (error) {
    if (!(error instanceof Error && 'code' in error && error.code === 'EEXIST')) throw error;
    const other = await readMark(file);
    if (other !== undefined && (await isSameProcess(other)))
      throw new Error(`the database in ${folder} is in use by process ${other.pid}: stop that first`);
    await rm(file, { force: true });
    await write();
  }
  return () => rm(file, { force: true });
}

async function readMark(file: string): Promise<SupervisorMark | undefined> {
  try {
    const parsed: unknown = JSON.parse(await readFile(file, 'utf8'));
    if (typeof parsed !== 'object' || parsed === null || !('pid' in parsed) || !('started' in parsed)) return undefined;
    const { pid, started } = parsed;
    return Number.isInteger(pid) && typeof started === 'string' ? { pid: Number(pid), started } : undefined;
  } catch {
    return undefined; // Half-written by a process that was killed meanwhile: nobody holds the folder.
  }
}

async function isSameProcess(mark: SupervisorMark): Promise<boolean> {
  return isAlive(mark.pid) && (await startTime(mark.pid)) === mark.started;
}

/** True when a process with this pid exists, whoever owns it. */
export function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return error instanceof Error && 'code' in error && error.code === 'EPERM';
  }
}

/** Clock ticks since boot at which `pid` started (field 22 of /proc/pid/stat); '' when it cannot be known. */
async function startTime(pid: number): Promise<string> {
  const line = await readFile(`/proc/${pid}/stat`, 'utf8').catch(() => '');
  // The second field is the program's name in parentheses and may hold spaces: count from its end.
  const fields = line.slice(line.lastIndexOf(')') + 2).split(' ');
  // A killed process stays a zombie where process 1 does not collect it, as in many containers. It holds nothing.
  return fields[0] === 'Z' ? 'zombie' : (fields[19] ?? '');
}
