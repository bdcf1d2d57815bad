import { readFile } from 'node:fs/promises';

/**
 * A process, told apart from a later one that the system gave the same pid. `started` is in clock ticks since boot, '' where /proc does
 * not exist.
 */
export interface ProcessIdentity {
  pid: number;
  started: string;
}

export async function ownIdentity(): Promise<ProcessIdentity> {
  return { pid: process.pid, started: await startTime(process.pid) };
}

/** Whether this very process still lives. */
export async function lives(identity: ProcessIdentity): Promise<boolean> {
  return exists(identity.pid) && (await startTime(identity.pid)) === identity.started;
}

function exists(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return error instanceof Error && 'code' in error && error.code === 'EPERM';
  }
}

async function startTime(pid: number): Promise<string> {
  const line = await readFile(`/proc/${pid}/stat`, 'utf8').catch(() => '');
  // The second field is the program's name in parentheses and may hold spaces: count from its end.
  const fields = line.slice(line.lastIndexOf(')') + 2).split(' ');
  // A killed process stays a zombie where process 1 does not collect it, as in many containers.
  return fields[0] === 'Z' ? 'zombie' : (fields[19] ?? '');
}
