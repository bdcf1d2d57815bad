import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdir } from 'node:fs/promises';
import net from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import { freePort } from '@counterstamp/embedded-postgres';

/** Milliseconds until Redis answers; it takes 20 ms. */
const READY_MS = 15_000;
/** Milliseconds for SIGTERM; without persistence there is nothing to save. */
const STOP_MS = 5_000;
/** Attempts with a fresh port: another process may take it first. */
const PORT_ATTEMPTS_MAX = 3;

export interface RedisServer {
  url: string;
  pid: number;
  stop: () => Promise<void>;
}

/**
 * Runs an own redis-server on a free port of 127.0.0.1: no persistence, and `noeviction` as BullMQ requires.
 * @returns `undefined` when this machine has no redis-server.
 * @throws {Error} with its output when it does not answer within 15 s.
 */
export async function startRedisServer(dir: string): Promise<RedisServer | undefined> {
  await mkdir(dir, { recursive: true });
  for (let attempt = 1; ; attempt++) {
    const port = await freePort();
    const child = spawn(
      'redis-server',
      [
        '--port',
        String(port),
        '--bind',
        '127.0.0.1',
        '--save',
        '',
        '--appendonly',
        'no',
        '--maxmemory-policy',
        'noeviction',
      ],
      { cwd: dir, stdio: ['ignore', 'pipe', 'pipe'], detached: true },
    );
    let output = '';
    const keep = (chunk: Buffer): void => {
      output = (output + String(chunk)).slice(-2_000);
    };
    child.stdout.on('data', keep);
    child.stderr.on('data', keep);
    const started = await once(child, 'spawn').then(
      () => true,
      (error: NodeJS.ErrnoException) => {
        if (error.code === 'ENOENT') return false;
        throw error;
      },
    );
    if (!started || child.pid === undefined) return undefined;
    if (await answers(child, port))
      return { url: `redis://127.0.0.1:${port}`, pid: child.pid, stop: () => stop(child) };
    await stop(child);
    if (attempt >= PORT_ATTEMPTS_MAX) throw new Error(`redis-server did not answer on port ${port}: ${output}`);
  }
}

async function answers(child: ChildProcess, port: number): Promise<boolean> {
  const endsAt = performance.now() + READY_MS;
  while (performance.now() < endsAt && child.exitCode === null && child.signalCode === null) {
    if (await ping(port)) return true;
    await delay(20);
  }
  return false;
}

function ping(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = net.connect(port, '127.0.0.1', () => socket.write('PING\r\n'));
    const end = (pong: boolean): void => {
      socket.destroy();
      resolve(pong);
    };
    socket.setTimeout(1_000, () => end(false));
    socket.once('error', () => end(false));
    socket.once('data', (chunk) => end(String(chunk).startsWith('+PONG')));
  });
}

async function stop(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const exited = once(child, 'exit');
  child.kill('SIGTERM');
  const late = setTimeout(() => child.kill('SIGKILL'), STOP_MS);
  await exited;
  clearTimeout(late);
}
