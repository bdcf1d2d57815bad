import { chmod, mkdir, stat } from 'node:fs/promises';
import path from 'node:path';
import { findBinaries } from './binaries.ts';
import { giveTo, OWNER, openDataFolder } from './data-folder.ts';
import { freePort } from './free-port.ts';
import { endOrphan, PortTakenError, type Postmaster, startPostmaster } from './postmaster.ts';
import { claimFolder } from './supervisor-mark.ts';
import { chooseRunAs } from './unprivileged-user.ts';

/** Attempts with a fresh port when the caller leaves it to us: another process may take it before Postgres binds it. */
const PORT_ATTEMPTS_MAX = 3;

export interface EmbeddedPostgresOptions {
  /** Folder of this cluster, made when missing. Keep it for the next start; remove it to begin anew. */
  dir: string;
  /** TCP port on 127.0.0.1; a free one when left out. */
  port?: number | undefined;
  /** False trades safety in a power cut for speed (fsync off). An acknowledged commit survives a killed process either way. */
  durable?: boolean | undefined;
  /** Settings that win over ours, as in postgresql.conf. */
  conf?: Readonly<Record<string, string | number>> | undefined;
  /** Folder with `initdb` and `postgres`, instead of the npm package's. */
  binDir?: string | undefined;
  /** Aborts the start; a cluster that runs is ended with `stop()`. */
  signal?: AbortSignal | undefined;
}

export interface EmbeddedPostgres {
  /** Superuser's URL of the database `postgres`, with its password: do not log it. */
  url: string;
  port: number;
  /** Where the programs came from: npm package or folder. */
  source: string;
  /** Milliseconds; `initdbMs` only when this start made the cluster. */
  timings: { initdbMs?: number; startMs: number };
  /** The postmaster's. */
  pid: number;
  /** Resolves when the postmaster has ended, for whatever reason. */
  exited: Promise<void>;
  /**
   * Ends the cluster: fast within 20 s, else immediately within 8 s, else by SIGKILL. May be called again.
   * @throws {Error} when even that fails.
   */
  stop: () => Promise<void>;
}

/**
 * Runs a real PostgreSQL from the npm package, or from the system where the package has none for this machine.
 * Listens on 127.0.0.1 only, without a Unix socket; the superuser `app` logs in with a generated password (scram-sha-256) that is kept
 * in `<dir>/owner-password`. As root, Postgres itself runs as an unprivileged user. A postmaster whose supervisor was killed is
 * ended first and its data recovered.
 * @throws {Error} when no PostgreSQL runs here, a living process uses `dir`, the port is taken, or a bounded wait ran out.
 */
export async function startEmbeddedPostgres(options: EmbeddedPostgresOptions): Promise<EmbeddedPostgres> {
  const dir = path.resolve(options.dir);
  const { signal } = options;
  const durable = options.durable ?? true;
  await mkdir(dir, { recursive: true, mode: 0o700 });
  const runAs = await chooseRunAs(dir);
  await refuseForeignFolder(dir);
  const release = await claimFolder(dir);
  try {
    await giveTo(dir, runAs);
    await chmod(dir, 0o700);
    const binaries = await findBinaries(runAs, options.binDir);
    await endOrphan(path.join(dir, 'pgdata'));
    const folder = await openDataFolder(dir, binaries, { runAs, durable, signal });
    const start = (port: number): Promise<Postmaster> =>
      startPostmaster(binaries, folder, { ...settings(port, durable), ...options.conf }, { runAs, signal });
    const { port, postmaster } = await onAPort(options.port, start);
    let stopped: Promise<void> | undefined;
    return {
      url: `postgres://${OWNER}:${folder.password}@127.0.0.1:${port}/postgres`,
      port,
      source: binaries.source,
      timings: {
        ...(folder.initdbMs === undefined ? {} : { initdbMs: folder.initdbMs }),
        startMs: postmaster.startMs,
      },
      pid: postmaster.pid,
      exited: postmaster.exited,
      stop: () => {
        stopped ??= postmaster.stop().then(release);
        return stopped;
      },
    };
  } catch (error) {
    await release();
    throw error;
  }
}

function settings(port: number, durable: boolean): Record<string, string | number> {
  return {
    listen_addresses: '127.0.0.1',
    port,
    unix_socket_directories: '',
    max_connections: 200,
    log_min_messages: 'warning',
    log_checkpoints: 'off', // One line every five minutes in a log that nobody rotates.
    timezone: 'UTC',
    // synchronous_commit stays on: an acknowledged commit must survive a killed process in tests too.
    ...(durable ? {} : { fsync: 'off', full_page_writes: 'off' }),
  };
}

async function onAPort(
  wanted: number | undefined,
  start: (port: number) => Promise<Postmaster>,
): Promise<{ port: number; postmaster: Postmaster }> {
  if (wanted !== undefined) return { port: wanted, postmaster: await start(wanted) };
  for (let attempt = 1; ; attempt++) {
    const port = await freePort();
    try {
      return { port, postmaster: await start(port) };
    } catch (error) {
      if (!(error instanceof PortTakenError) || attempt >= PORT_ATTEMPTS_MAX) throw error;
    }
  }
}

/** A normal user cannot open what root's start made; say so instead of failing on some file later. */
async function refuseForeignFolder(dir: string): Promise<void> {
  const uid = process.getuid?.();
  const owner = (await stat(dir)).uid;
  if (uid !== undefined && uid !== 0 && owner !== uid)
    throw new Error(`${dir} belongs to uid ${owner}, we are uid ${uid}: start as that user, or remove the folder`);
}
