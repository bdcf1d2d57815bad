import { type ChildProcess, spawn } from 'node:child_process';
import { open, readdir, readFile, rm, stat } from 'node:fs/promises';
import path from 'node:path';
import type { Binaries } from './binaries.ts';
import { POSTGRES_ENV } from './bounded-command.ts';
import { waitFor } from './bounded-wait.ts';
import type { DataFolder } from './data-folder.ts';
import { isAlive } from './supervisor-mark.ts';
import type { RunAs } from './unprivileged-user.ts';

/** Milliseconds to readiness. 0.1 s when warm; recovery after a crash replays up to max_wal_size (1 GB), about a minute here. */
const READY_MS = 120_000;
/** Milliseconds for a fast shutdown: it ends the sessions and writes a checkpoint. */
const FAST_STOP_MS = 20_000;
/** Milliseconds for an immediate shutdown: the postmaster itself kills what is left after 5 s. */
const IMMEDIATE_STOP_MS = 8_000;
/** Milliseconds after SIGKILL, which the kernel delivers at once unless the disk hangs. */
const KILL_MS = 5_000;
/** Bytes of the log that an error quotes. */
const LOG_QUOTED = 4_000;

/** The port was taken between choosing and binding it. */
export class PortTakenError extends Error {
  override readonly name = 'PortTakenError';
}

/**
 * Ends a postmaster that outlived its supervisor. Only call it with the folder claimed: it cannot tell an orphan from a cluster in use.
 * @throws {Error} when the orphan survives even SIGKILL.
 */
export async function endOrphan(pgdata: string): Promise<void> {
  const pidFile = path.join(pgdata, 'postmaster.pid');
  const recorded = Number((await readFile(pidFile, 'utf8').catch(() => '')).split('\n')[0]);
  if (!Number.isInteger(recorded) || recorded <= 0) return;
  for (const [signal, limitMs] of [
    ['SIGINT', FAST_STOP_MS],
    ['SIGQUIT', IMMEDIATE_STOP_MS],
    ['SIGKILL', KILL_MS],
  ] as const) {
    const processes = await clusterProcesses(pgdata, recorded);
    if (processes.length === 0) break;
    // SIGKILL goes to every process; the others to the postmaster, which passes them on. Without one, its children end by themselves.
    for (const pid of signal === 'SIGKILL' ? processes : processes.filter((p) => p === recorded))
      sendSignal(pid, signal);
    const gone = await waitFor(`the end of the orphaned PostgreSQL ${recorded}`, limitMs, async () =>
      (await clusterProcesses(pgdata, recorded)).length === 0 ? true : undefined,
    ).catch(() => false);
    if (gone) break;
    if (signal === 'SIGKILL') throw new Error(`PostgreSQL ${recorded} in ${pgdata} survives SIGKILL`);
  }
  // No process of this cluster is left. Without this a pid that the system gave to another program would block the start.
  await rm(pidFile, { force: true });
}

/**
 * Living processes of the cluster. Linux tells by their working folder, which every one of them has; elsewhere the recorded pid must do.
 */
async function clusterProcesses(pgdata: string, recorded: number): Promise<number[]> {
  const entries = (await readdir('/proc').catch(() => [])).filter((e) => /^\d+$/.test(e));
  if (entries.length === 0) return isAlive(recorded) ? [recorded] : [];
  const home = await stat(pgdata);
  const found: number[] = [];
  for (const pid of entries) {
    const [cwd, comm] = await Promise.all([
      stat(`/proc/${pid}/cwd`).catch(() => undefined),
      readFile(`/proc/${pid}/comm`, 'utf8').catch(() => ''),
    ]);
    if (cwd?.ino === home.ino && cwd.dev === home.dev && comm.startsWith('postgres')) found.push(Number(pid));
  }
  return found;
}

function sendSignal(pid: number, signal: NodeJS.Signals): void {
  try {
    process.kill(pid, signal);
  } catch (error) {
    if (!(error instanceof Error && 'code' in error && error.code === 'ESRCH')) throw error;
  }
}

/** A postmaster that answers. */
export interface Postmaster {
  pid: number;
  startMs: number;
  exited: Promise<void>;
  stop: () => Promise<void>;
}

/**
 * Starts the postmaster and waits until it takes connections.
 * @throws {PortTakenError} when another program has the port.
 * @throws {Error} with the end of its log when it ends or is not ready in time; nothing is left running.
 */
export async function startPostmaster(
  binaries: Binaries,
  folder: DataFolder,
  conf: Readonly<Record<string, string | number>>,
  options: { runAs: RunAs; signal?: AbortSignal | undefined },
): Promise<Postmaster> {
  const startedAt = performance.now();
  const log = await open(folder.log, 'w', 0o600); // Each start begins a new log, which bounds it.
  let child: ChildProcess;
  try {
    child = spawn(
      path.join(binaries.binDir, 'postgres'),
      ['-D', folder.dashD, ...Object.entries(conf).flatMap(([name, value]) => ['-c', `${name}=${value}`])],
      // Its own process group: Ctrl-C in a terminal must reach only the supervisor, which ends the workers first.
      {
        ...options.runAs,
        cwd: folder.pgdata,
        env: POSTGRES_ENV,
        detached: true,
        stdio: ['ignore', log.fd, log.fd],
      },
    );
  } finally {
    await log.close();
  }
  let ended: string | undefined;
  const exited = new Promise<void>((resolve) => {
    child.once('error', (error) => {
      ended = `did not run: ${error.message}`;
      resolve();
    });
    child.once('exit', (code, signal) => {
      ended = `ended with ${signal ?? `code ${code}`}`;
      resolve();
    });
  });
  const stop = (): Promise<void> => stopChild(child, exited);
  const pidFile = path.join(folder.pgdata, 'postmaster.pid');
  try {
    await waitFor(
      'the start of PostgreSQL',
      READY_MS,
      async () => {
        if (ended !== undefined) throw new Error(`PostgreSQL ${ended}`);
        const lines = (await readFile(pidFile, 'utf8').catch(() => '')).split('\n');
        return Number(lines[0]) === child.pid && lines[7]?.trim() === 'ready' ? true : undefined;
      },
      options.signal,
    );
  } catch (cause) {
    await stop();
    const said = (await readFile(folder.log, 'utf8').catch(() => '')).slice(-LOG_QUOTED);
    const message = `${cause instanceof Error ? cause.message : String(cause)}; its log ${folder.log} ends:\n${said}`;
    throw said.includes('could not bind') ? new PortTakenError(message, { cause }) : new Error(message, { cause });
  }
  const pid = child.pid;
  if (pid === undefined) throw new Error('PostgreSQL has no pid although it is ready');
  return { pid, startMs: Math.round(performance.now() - startedAt), exited, stop };
}

async function stopChild(child: ChildProcess, exited: Promise<void>): Promise<void> {
  for (const [signal, limitMs] of [
    ['SIGINT', FAST_STOP_MS],
    ['SIGQUIT', IMMEDIATE_STOP_MS],
    ['SIGKILL', KILL_MS],
  ] as const) {
    if (child.pid === undefined || child.exitCode !== null || child.signalCode !== null) return;
    child.kill(signal);
    if (await endsWithin(exited, limitMs)) return;
  }
  throw new Error(`PostgreSQL ${child.pid} survives SIGKILL`);
}

async function endsWithin(exited: Promise<void>, limitMs: number): Promise<boolean> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<boolean>((resolve) => {
    timer = setTimeout(resolve, limitMs, false);
  });
  try {
    return await Promise.race([exited.then(() => true), late]);
  } finally {
    clearTimeout(timer);
  }
}
