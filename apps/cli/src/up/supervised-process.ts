import { type ChildProcess, spawn } from 'node:child_process';
import { closeSync, fstatSync, openSync, readFileSync } from 'node:fs';
import { setTimeout as delay } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { CliFailure, EXIT } from '../failure.ts';
import { httpGet } from './http-get.ts';
import { lastWords } from './last-words.ts';
import { afterEnd } from './restart-policy.ts';

/** Milliseconds between two looks at a process that starts. It takes about a second. */
const LOOK_MS = 50;
/** Milliseconds that one look may take; the process's own look at its database takes up to 1 s. */
const LOOK_MAX_MS = 1_500;
/** Milliseconds until a process must be ready: a second when idle, with a margin for a loaded machine. */
const READY_MAX_MS = 60_000;
/** Milliseconds that the kernel takes to deliver SIGKILL, generously. */
const KILL_MS = 5_000;

/**
 * V8 keeps 16 MB for each of three young spaces; these processes make little garbage at a time. Measured: about 15 MB of resident memory less in each,
 * which keeps the workers below 100 for no CPU time that could be told from noise. The api alone needs the stronger flag for that, which costs
 * about a sixth of its CPU time.
 */
function nodeFlags(service: string): string[] {
  return ['--max-semi-space-size=2', ...(service === 'api' ? ['--optimize-for-size'] : [])];
}

export const MAIN = fileURLToPath(new URL('../main.js', import.meta.url));

export interface ProcessSpec {
  /** Shown to people: `executor`, `executor-2`. */
  name: string;
  /** What `counterstamp service` is asked for. */
  service: string;
  log_file: string;
  /** Chosen for each start: another process may have taken the last one. */
  port: () => Promise<number>;
  environment: (port: number) => Readonly<Record<string, string | undefined>>;
  /** Milliseconds that its current work may take to end after SIGTERM. */
  drain_ms: number;
  /** Told of every end but an orderly one, before the next start. */
  onLost?: (pid: number, how: string) => Promise<void>;
}

/** One process that is kept running. */
export interface SupervisedProcess {
  readonly name: string;
  pid(): number | undefined;
  port(): number;
  /**
   * Resolves once it does its work.
   * @throws {CliFailure} when it is configured wrongly, keeps ending, or is not ready in time.
   */
  ready(signal: AbortSignal): Promise<void>;
  /** Ends it: SIGTERM, then SIGKILL after its time. Resolves when it is gone. */
  stop(): Promise<void>;
  /** Ends it at once, for someone who does not want to wait. */
  kill(): void;
}

/** Starts a process and starts it again when it ends by itself, with back-off and within bounds. `report` tells a person. */
export function superviseProcess(spec: ProcessSpec, report: (line: string) => void): SupervisedProcess {
  const endedAtMs: number[] = [];
  let child: ChildProcess | undefined;
  let gone: Promise<void> = Promise.resolve();
  let port = 0;
  let stopping = false;
  let failure: CliFailure | undefined;
  /** Somebody waits for it to be ready, and is told of its failure. */
  let awaited = false;
  const wait = new AbortController();

  const running = keepRunning();

  async function keepRunning(): Promise<void> {
    for (;;) {
      const { code, signal, said } = await runOnce(endedAtMs.length === 0);
      if (stopping) return;
      const how = signal ?? `exit code ${code}`;
      const next = afterEnd(code, endedAtMs, performance.now());
      endedAtMs.push(performance.now());
      if (next.kind === 'leave') {
        failure =
          next.why === 'configuration'
            ? new CliFailure(
                `${spec.name} refused its configuration:\n${said}`,
                'Correct these variables and start again.',
                EXIT.configuration,
              )
            : new CliFailure(
                `${spec.name} ended again and again, last with ${how}${said === '' ? '' : `: ${said}`}`,
                `Read ${spec.log_file}; it is not started any more.`,
              );
        if (!awaited) report(`${failure.message}\n${failure.next ?? ''}`);
        return;
      }
      const why = said === '' ? '' : ` (${said.split('\n')[0]})`;
      report(`${spec.name} ended unexpectedly with ${how}${why}; starting it again in ${next.in_ms / 1_000} s`);
      await delay(next.in_ms, undefined, { signal: wait.signal }).catch(() => undefined);
      if (stopping) return;
    }
  }

  /** One life of the process. */
  async function runOnce(
    first: boolean,
  ): Promise<{ code: number | null; signal: NodeJS.Signals | null; said: string }> {
    port = await spec.port();
    if (stopping) return { code: 0, signal: null, said: '' };
    // Each `up` begins a new log, which bounds it; a restart goes on in the same one.
    const log = openSync(spec.log_file, first ? 'w' : 'a', 0o600);
    const from = fstatSync(log).size;
    try {
      child = spawn(process.execPath, [...nodeFlags(spec.service), MAIN, 'service', spec.service], {
        // A process group of its own: a terminal's Ctrl-C must reach only us, who end the fleet in order.
        detached: true,
        env: spec.environment(port),
        // The channel tells the child when we are gone, however we ended.
        stdio: ['ignore', log, log, 'ipc'],
      });
    } finally {
      closeSync(log);
    }
    const { pid } = child;
    const ended = endOf(child).then(async (end) => {
      if (end.code !== 0 && pid !== undefined) await spec.onLost?.(pid, end.signal ?? `exit code ${end.code}`);
      return end;
    });
    gone = ended.then(() => undefined);
    const end = await ended;
    child = undefined;
    return { ...end, said: end.said ?? lastWords(readFileSync(spec.log_file).subarray(from).toString()) };
  }

  return {
    name: spec.name,
    pid: () => child?.pid,
    port: () => port,

    async ready(signal) {
      const endsAt = performance.now() + READY_MAX_MS;
      let why = 'no answer';
      awaited = true;
      for (;;) {
        signal.throwIfAborted();
        if (failure !== undefined) throw failure;
        if (stopping) throw new CliFailure(`${spec.name} was ended before it was ready.`);
        const answer = child === undefined ? undefined : await httpGet(`http://127.0.0.1:${port}/readyz`, LOOK_MAX_MS);
        if (answer?.status === 200) {
          awaited = false;
          return;
        }
        if (answer !== undefined) why = answer.text;
        if (performance.now() > endsAt) {
          throw new CliFailure(
            `${spec.name} was not ready within ${READY_MAX_MS / 1_000} s: ${why}.`,
            `Read ${spec.log_file}.`,
          );
        }
        await delay(LOOK_MS);
      }
    },

    async stop() {
      stopping = true;
      wait.abort();
      const living = child;
      if (living !== undefined) {
        living.kill('SIGTERM');
        if (!(await within(gone, spec.drain_ms))) {
          report(`${spec.name} did not end within ${spec.drain_ms / 1_000} s; killing it`);
          living.kill('SIGKILL');
          await within(gone, KILL_MS);
        }
      }
      await running;
    },

    kill() {
      stopping = true;
      child?.kill('SIGKILL');
    },
  };
}

function endOf(child: ChildProcess): Promise<{ code: number | null; signal: NodeJS.Signals | null; said?: string }> {
  return new Promise((resolve) => {
    child.once('error', (error) => resolve({ code: 1, signal: null, said: `did not start: ${error.message}` }));
    child.once('exit', (code, signal) => resolve({ code, signal }));
  });
}

async function within(done: Promise<void>, ms: number): Promise<boolean> {
  const timer = new AbortController();
  try {
    return await Promise.race([done.then(() => true), delay(ms, false, { signal: timer.signal }).catch(() => false)]);
  } finally {
    timer.abort();
  }
}
