import { spawn } from 'node:child_process';

/** Milliseconds between the request to end and SIGKILL. Vitest stops its databases within this. */
const GRACE_MS = 15_000;

/**
 * Runs a program to its end, or kills its whole process group after `limitMs`.
 * It gets a process group of its own, so Ctrl-C and SIGTERM are passed on to it here.
 * @param {string} program
 * @param {readonly string[]} args
 * @param {{ limitMs: number, show: boolean, env?: NodeJS.ProcessEnv }} options `show` prints the output as it comes.
 * @returns {Promise<{ ok: boolean, why: string, output: string }>} `why` says how it ended; `output` is '' when shown. Never throws.
 */
export function boundedRun(program, args, { limitMs, show, env = process.env }) {
  return new Promise((resolve) => {
    const stdio = show ? 'inherit' : 'pipe';
    const child = spawn(program, args, { env, detached: true, stdio: ['ignore', stdio, stdio] });
    let output = '';
    for (const stream of [child.stdout, child.stderr])
      stream?.on('data', (chunk) => {
        output += chunk;
      });
    const signalGroup = (/** @type {NodeJS.Signals} */ signal) => {
      try {
        if (child.pid !== undefined) process.kill(-child.pid, signal);
      } catch {
        // The group has ended meanwhile.
      }
    };
    let why;
    /** @type {NodeJS.Timeout | undefined} */
    let killer;
    const end = (/** @type {string} */ reason) => {
      why ??= reason;
      signalGroup('SIGTERM');
      killer ??= setTimeout(signalGroup, GRACE_MS, 'SIGKILL');
    };
    const limit = setTimeout(end, limitMs, `killed after ${Math.round(limitMs / 1000)} s`);
    const onInterrupt = () => end('interrupted');
    const signals = ['SIGINT', 'SIGTERM', 'SIGHUP'];
    for (const signal of signals) process.on(signal, onInterrupt);
    const finish = (/** @type {boolean} */ ok, /** @type {string} */ how) => {
      clearTimeout(limit);
      clearTimeout(killer);
      for (const signal of signals) process.off(signal, onInterrupt);
      signalGroup('SIGKILL'); // Grandchildren must not outlive the bound.
      resolve({ ok: ok && why === undefined, why: why ?? how, output });
    };
    child.once('error', (error) => finish(false, `did not run: ${error.message}`));
    child.once('exit', (code, signal) => {
      // Wait for the last output, but not for a grandchild that holds the pipe.
      setTimeout(finish, show ? 0 : 100, code === 0, signal ?? `exit code ${code}`);
    });
  });
}
