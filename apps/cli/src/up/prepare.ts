import { fork } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { CliFailure } from '../failure.ts';
import type { PrepareAnswer, Prepared, PrepareRequest } from './prepare-message.ts';

/** Milliseconds for migrations, roles and keys: under a second when nothing waits for a lock; another `up` may hold one. */
const PREPARE_MS = 120_000;

/** Characters of what a crash prints. */
const SAID_KEPT = 4_000;

/**
 * Prepares the database and the queues in a process of its own.
 * @throws {CliFailure} with the sentence of whatever refused.
 */
export function prepare(request: PrepareRequest, signal: AbortSignal): Promise<Prepared> {
  return new Promise((resolve, reject) => {
    const child = fork(fileURLToPath(new URL('./prepare-main.js', import.meta.url)), {
      execArgv: [],
      detached: true, // As every child: Ctrl-C is ours.
      timeout: PREPARE_MS,
      killSignal: 'SIGKILL',
      stdio: ['ignore', 'ignore', 'pipe', 'ipc'],
    });
    const stop = () => child.kill('SIGKILL');
    signal.addEventListener('abort', stop, { once: true });
    let answer: PrepareAnswer | undefined;
    let said = '';
    child.stderr?.on('data', (data: Buffer) => {
      said = (said + data.toString()).slice(-SAID_KEPT);
    });
    child.once('message', (message) => {
      answer = message as PrepareAnswer; // From this version's own prepare-main.
    });
    child.once('error', reject);
    child.once('close', (code, ended) => {
      signal.removeEventListener('abort', stop);
      if (answer?.kind === 'prepared') resolve(answer);
      else if (answer?.kind === 'failed') reject(new CliFailure(answer.sentence, answer.next, answer.exit));
      else if (signal.aborted) reject(signal.reason);
      else {
        const error = /^\w*Error.*$/m.exec(said)?.[0] ?? '';
        reject(new CliFailure(`Preparing the database ended with ${ended ?? `exit code ${code}`}. ${error}`.trimEnd()));
      }
    });
    child.send(request);
  });
}
