import { spawn } from 'node:child_process';
import type { RunAs } from './unprivileged-user.ts';

/** Bytes of output kept for an error message; the end says why a program stopped. */
const OUTPUT_KEPT = 4_000;

/**
 * Environment for the programs of Postgres: none of ours, so that a stray PGPORT or locale cannot change the cluster.
 * TZ is UTC because initdb writes the machine's zone into the configuration.
 */
export const POSTGRES_ENV = { PATH: '/usr/bin:/bin', TZ: 'UTC', LC_ALL: 'C' } as const;

/**
 * Runs a short program to its end and returns what it printed.
 * @param limitMs bound in milliseconds; then the program is killed.
 * @throws {Error} with the end of its output when it cannot start, fails, is aborted or takes too long.
 */
export function runBounded(
  program: string,
  args: readonly string[],
  options: { limitMs: number; runAs: RunAs; cwd: string; signal?: AbortSignal | undefined },
): Promise<string> {
  return new Promise((resolve, reject) => {
    const child = spawn(program, args, {
      ...options.runAs,
      cwd: options.cwd,
      env: POSTGRES_ENV,
      stdio: ['ignore', 'pipe', 'pipe'],
      timeout: options.limitMs,
      killSignal: 'SIGKILL',
      signal: options.signal,
    });
    let output = '';
    const keep = (chunk: Buffer): void => {
      output = (output + String(chunk)).slice(-OUTPUT_KEPT);
    };
    child.stdout.on('data', keep);
    child.stderr.on('data', keep);
    child.once('error', (cause) => reject(new Error(`${program} did not run: ${cause.message}`, { cause })));
    child.once('close', (code, signal) => {
      if (code === 0) return resolve(output);
      reject(new Error(`${program} ended with ${signal ?? `code ${code}`} (bound ${options.limitMs} ms): ${output}`));
    });
  });
}
