import { spawn } from 'node:child_process';
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import type { EmbeddedPostgres } from '@counterstamp/embedded-postgres';
import { CliFailure } from '../failure.ts';
import { afterEnd } from './restart-policy.ts';

/**
 * Seconds after our own violent end in which the services drain; then the guard ends Postgres. 12: above the 5 s grace of the profile `fast`
 * and what closing takes.
 */
const GUARD_S = 12;

/**
 * Ends Postgres when we were killed: reads until our end of the pipe closes, waits, and interrupts the postmaster. Ends at once when it is not
 * the one in this folder any more: the next `up` has ended it and started its own.
 */
const GUARD = `read -r _
left=${GUARD_S}
while [ "$(head -n 1 "$2" 2>/dev/null)" = "$1" ]; do
  [ "$left" -eq 0 ] && exec kill -INT "$1"
  left=$((left - 1))
  sleep 1
done`;

export interface LocalPostgres {
  url: string;
  port: number;
  source: string;
  stop(): Promise<void>;
}

/**
 * Runs the embedded Postgres of a state folder and starts it again, on the same port, should it end by itself.
 * @throws {CliFailure} when it does not start.
 */
export async function startLocalPostgres(
  dir: string,
  signal: AbortSignal,
  report: (line: string) => void,
): Promise<LocalPostgres> {
  const { startEmbeddedPostgres } = await import('@counterstamp/embedded-postgres');
  const start = async (port?: number): Promise<{ cluster: EmbeddedPostgres; dismissGuard: () => void }> => {
    const cluster = await startEmbeddedPostgres({ dir, durable: true, port, signal });
    return { cluster, dismissGuard: guard(cluster.pid, path.join(dir, 'pgdata', 'postmaster.pid')) };
  };
  let current = await start().catch((error: unknown) => {
    signal.throwIfAborted();
    throw new CliFailure(
      `The embedded Postgres did not start: ${error instanceof Error ? error.message : String(error)}`,
      'Correct that, or give a Postgres of your own with DATABASE_URL.',
    );
  });
  const { url, port, source } = current.cluster;
  const endedAtMs: number[] = [];
  const stopped = new AbortController();
  const running = keepRunning();

  async function keepRunning(): Promise<void> {
    for (;;) {
      await current.cluster.exited;
      if (stopped.signal.aborted) return;
      current.dismissGuard();
      await current.cluster.stop(); // Gives the folder back.
      for (;;) {
        const next = afterEnd(null, endedAtMs, performance.now());
        endedAtMs.push(performance.now());
        if (next.kind === 'leave')
          return report(`Postgres ended again and again; read ${path.join(dir, 'postgres.log')}`);
        report(`Postgres ended unexpectedly; starting it again in ${next.in_ms / 1_000} s`);
        await delay(next.in_ms, undefined, { signal: stopped.signal }).catch(() => undefined);
        if (stopped.signal.aborted) return;
        try {
          current = await start(port);
          break;
        } catch (error) {
          report(
            `Postgres did not start: ${error instanceof Error ? (error.message.split('\n')[0] ?? '') : String(error)}`,
          );
        }
      }
    }
  }

  return {
    url,
    port,
    source,
    async stop() {
      stopped.abort();
      await current.cluster.stop();
      await running;
      await current.cluster.stop(); // A restart that was under way.
      current.dismissGuard();
    },
  };
}

/** In its own session, so that a killed process group leaves it alive. @returns what ends it when it is not needed. */
function guard(postmaster: number, pidFile: string): () => void {
  const child = spawn('/bin/sh', ['-c', GUARD, 'counterstamp postgres guard', String(postmaster), pidFile], {
    detached: true,
    stdio: ['pipe', 'ignore', 'ignore'],
  });
  child.on('error', () => undefined); // No shell, no guard: the next start ends an orphan anyway.
  child.stdin.on('error', () => undefined);
  child.unref();
  return () => child.kill('SIGKILL');
}
