import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { startEmbeddedPostgres } from '@counterstamp/embedded-postgres';

/** Milliseconds that clients get to notice that the server is away. */
const AWAY_MS = 500;
const START_TRIES_MAX = 10;

/** A Postgres of a test's own that may be killed and started again on its port. fsync off, synchronous_commit on. */
export interface OwnPostgres {
  /** The superuser's URL of the database `postgres`; stays the same over restarts. */
  readonly url: string;
  readonly port: number;
  pid(): number;
  /**
   * Immediate shutdown (SIGQUIT): every session is cut, nothing is written; then it starts again and recovers. `whileAway` runs in between, and
   * it stays away for half a second more. @returns milliseconds away.
   */
  restart(options?: { whileAway?: () => Promise<void> }): Promise<number>;
  stop(): Promise<void>;
}

export async function startOwnPostgres(dir: string): Promise<OwnPostgres> {
  const start = (port?: number) =>
    startEmbeddedPostgres({
      dir: path.join(dir, 'postgres'),
      port,
      durable: false,
      conf: { synchronous_commit: 'on' },
    });
  let server = await start();
  const { port } = server;
  /** A socket of somebody else may have the port for a moment as its own end. */
  const startAgain = async () => {
    for (let tries = 0; ; tries++) {
      try {
        return await start(port);
      } catch (error) {
        if (tries >= START_TRIES_MAX) throw error;
        await delay(AWAY_MS);
      }
    }
  };
  return {
    url: server.url,
    port,
    pid: () => server.pid,
    async restart({ whileAway } = {}) {
      const startedAt = performance.now();
      process.kill(server.pid, 'SIGQUIT');
      await server.exited;
      await server.stop(); // Already gone: gives the folder free.
      try {
        await whileAway?.();
        if (whileAway !== undefined) await delay(AWAY_MS);
      } finally {
        server = await startAgain();
      }
      return Math.round(performance.now() - startedAt);
    },
    stop: () => server.stop(),
  };
}
