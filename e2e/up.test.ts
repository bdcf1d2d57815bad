import { type ChildProcess, spawn } from 'node:child_process';
import { mkdtemp, readdir, readFile, rm } from 'node:fs/promises';
import net from 'node:net';
import os from 'node:os';
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { GROUPS } from '../apps/cli/src/tour/groups.ts';
import { redisUrl, testDatabase } from '../testing/services.ts';

/** The built command, as a user runs it: `tsc -b` comes first. */
const MAIN = fileURLToPath(new URL('../apps/cli/dist/main.js', import.meta.url));

/** Milliseconds for a whole tour with start and end. It takes 12 s on an idle machine. */
const TOUR_MS = 120_000;
/** Milliseconds for a fleet to start, and for it to end. */
const START_MS = 60_000;
const END_MS = 40_000;

const SCENARIOS = GROUPS.flatMap((group) => group.scenarios).length;

/** One `counterstamp up` under observation. */
interface Up {
  child: ChildProcess;
  output(): string;
  ended: Promise<number | string | null>;
  /** Every process that it ever had as a child. */
  children: ReadonlySet<number>;
}

let folder: string;
let started: Up[];

beforeEach(async () => {
  folder = await mkdtemp(path.join(os.tmpdir(), 'cs-testing-up-'));
  started = [];
});

afterEach(async () => {
  for (const up of started) {
    up.child.kill('SIGTERM');
    await within(up.ended, END_MS, 'the end of a fleet');
  }
  await rm(folder, { recursive: true, force: true });
});

/** Starts `up` on this test's state folder with nothing of the test's own environment. */
function startUp(args: readonly string[], env: Readonly<Record<string, string>> = {}): Up {
  const child = spawn(process.execPath, [MAIN, 'up', '--state', path.join(folder, 'state'), '--port', '0', ...args], {
    cwd: folder,
    env: { PATH: process.env.PATH ?? '', ...env },
    // With a channel it ends when this test run is killed.
    stdio: ['ignore', 'pipe', 'pipe', 'ipc'],
  });
  let text = '';
  const keep = (data: Buffer) => {
    text += data.toString();
  };
  child.stdout?.on('data', keep);
  child.stderr?.on('data', keep);
  const children = new Set<number>();
  const watch = setInterval(() => {
    void childrenOf(child.pid ?? 0).then((pids) => {
      for (const pid of pids) children.add(pid);
    });
  }, 100);
  const ended = new Promise<number | string | null>((resolve) => {
    child.once('close', (code, signal) => {
      clearInterval(watch);
      resolve(code ?? signal);
    });
  });
  const up = { child, output: () => text, ended, children };
  started.push(up);
  return up;
}

async function childrenOf(pid: number): Promise<number[]> {
  const text = await readFile(`/proc/${pid}/task/${pid}/children`, 'utf8').catch(() => '');
  return text
    .split(' ')
    .filter((word) => word !== '')
    .map(Number);
}

/** Living ones of these processes, with their command lines. A zombie that nobody collected holds nothing. */
async function living(pids: Iterable<number>): Promise<string[]> {
  const found: string[] = [];
  for (const pid of pids) {
    const stat = await readFile(`/proc/${pid}/stat`, 'utf8').catch(() => '');
    if (stat === '' || stat.slice(stat.lastIndexOf(')') + 2).startsWith('Z')) continue;
    found.push(`${pid} ${(await readFile(`/proc/${pid}/cmdline`, 'utf8').catch(() => '')).replaceAll('\0', ' ')}`);
  }
  return found;
}

/** Every port of a fleet that runs: each process says its own in its log, Postgres and the sandbox in fleet.json. */
async function portsOf(): Promise<number[]> {
  const state = path.join(folder, 'state');
  const ports: number[] = [];
  for (const name of await readdir(path.join(state, 'logs'))) {
    const log = await readFile(path.join(state, 'logs', name), 'utf8');
    for (const [, port] of log.matchAll(/"port":(\d+)/g)) ports.push(Number(port));
  }
  const fleet = await readFile(path.join(state, 'fleet.json'), 'utf8');
  for (const [, port] of fleet.matchAll(/(?:127\.0\.0\.1|localhost):(\d+)/g)) ports.push(Number(port));
  return [...new Set(ports)];
}

function isOpen(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = net.connect({ port, host: '127.0.0.1' });
    socket.once('connect', () => {
      socket.destroy();
      resolve(true);
    });
    socket.once('error', () => resolve(false));
  });
}

async function openOf(ports: readonly number[]): Promise<number[]> {
  const open = await Promise.all(ports.map(isOpen));
  return ports.filter((_, index) => open[index]);
}

async function within<T>(promise: Promise<T>, ms: number, what: string): Promise<T> {
  const timer = new AbortController();
  const late = delay(ms, undefined, { signal: timer.signal }).then(() => {
    throw new Error(`${what} took more than ${ms} ms:\n${started.map((up) => up.output()).join('\n')}`);
  });
  try {
    return await Promise.race([promise, late]);
  } finally {
    timer.abort();
    late.catch(() => undefined);
  }
}

async function untilSaid(up: Up, words: string): Promise<void> {
  const ended = up.ended.then((code) => {
    throw new Error(`it ended with ${code} before it said "${words}":\n${up.output()}`);
  });
  const said = (async () => {
    while (!up.output().includes(words)) await delay(50);
  })();
  await within(Promise.race([said, ended]), START_MS, `"${words}"`);
}

async function expectGreenTour(up: Up): Promise<void> {
  const code = await within(up.ended, TOUR_MS, 'the tour');
  if (code !== 0) console.log(up.output());
  const lines = up.output().split('\n');
  expect(lines.filter((line) => line.startsWith('✗') || line.startsWith('!'))).toEqual([]);
  // One line each, one for all receipts, and one for the history of them all.
  expect(lines.filter((line) => line.startsWith('✓'))).toHaveLength(SCENARIOS + 2);
  expect(lines.some((line) => line.includes('no violation of H1 to H12'))).toBe(true);
  expect(code).toBe(0);
}

describe('counterstamp up', () => {
  test('from nothing, with the embedded Postgres: every scenario of the tour is as expected, and nothing is left', async () => {
    const up = startUp(['--tour-only']);
    await expectGreenTour(up);
    expect(up.children.size).toBeGreaterThanOrEqual(7);
    expect(await living(up.children)).toEqual([]);
    expect(await readdir(path.join(folder, 'state'))).not.toContain('fleet.json');
  }, 150_000);

  test('with REDIS_URL and DATABASE_URL: the same tour twice on the same data, with the demo keys of the first time', async () => {
    const database = await testDatabase({ version: 18, name: 'empty', prepare: () => Promise.resolve() });
    try {
      const env = {
        DATABASE_URL: database.url,
        REDIS_URL: await redisUrl(),
        COUNTERSTAMP_ROLE_PREFIX: 'cs_up_',
      };
      for (const keys of ['10 demo keys made', 'the demo keys of last time']) {
        const up = startUp(['--tour-only', '--executors', '2', '--verifiers', '2'], env);
        await expectGreenTour(up);
        expect(up.output()).toContain(keys);
        expect(up.output()).toMatch(/hints over (Redis|Valkey)/);
        expect(await living(up.children)).toEqual([]);
      }
    } finally {
      await database.drop();
    }
  }, 300_000);

  test('Ctrl-C ends a fleet in order: exit 0, no process and no port is left; meanwhile a second one is refused by pid', async () => {
    const up = startUp(['--no-tour']);
    await untilSaid(up, 'Ctrl-C ends everything');
    const ports = await portsOf();
    expect(ports.length).toBeGreaterThanOrEqual(7);
    expect(await openOf(ports)).toEqual(ports);

    const second = startUp(['--no-tour']);
    expect(await within(second.ended, START_MS, 'the refusal')).toBe(1);
    expect(second.output()).toContain(`in use by the process with pid ${up.child.pid}`);

    up.child.kill('SIGINT');
    expect(await within(up.ended, END_MS, 'the end of the fleet')).toBe(0);
    expect(await living(up.children)).toEqual([]);
    expect(await openOf(ports)).toEqual([]);
  }, 150_000);

  test('killed outright, its services end by themselves, and the next start takes the data over', async () => {
    const up = startUp(['--no-tour']);
    await untilSaid(up, 'Ctrl-C ends everything');
    const services = (await living(up.children)).filter((one) => one.includes('counterstamp service'));
    expect(services).toHaveLength(6);
    up.child.kill('SIGKILL');
    await up.ended;

    const next = startUp(['--no-tour']);
    await untilSaid(next, 'the demo keys of last time');
    await untilSaid(next, 'Ctrl-C ends everything');
    const pids = services.map((one) => Number(one.split(' ')[0]));
    const gone = (async () => {
      while ((await living(pids)).length > 0) await delay(50);
    })();
    await within(gone, END_MS, 'the end of the orphans');
    next.child.kill('SIGTERM');
    expect(await within(next.ended, END_MS, 'the end of the fleet')).toBe(0);
    expect(await living([...up.children, ...next.children])).toEqual([]);
  }, 150_000);

  test('a service that is killed is reported and started again; one that is configured wrongly is not', async () => {
    const up = startUp(['--no-tour']);
    await untilSaid(up, 'Ctrl-C ends everything');
    const verifier = (await living(up.children)).find((one) => one.includes('service verifier'));
    process.kill(Number(verifier?.split(' ')[0]), 'SIGKILL');
    await untilSaid(up, 'verifier ended unexpectedly with SIGKILL');
    const again = (async () => {
      while ((await living(up.children)).filter((one) => one.includes('service verifier')).length === 0)
        await delay(50);
    })();
    await within(again, START_MS, 'the second verifier');
    up.child.kill('SIGINT');
    expect(await within(up.ended, END_MS, 'the end of the fleet')).toBe(0);
    expect(await living(up.children)).toEqual([]);

    const wrong = startUp(['--no-tour'], { COUNTERSTAMP_LOOK_MIN_MS: 'soon', COUNTERSTAMP_DEV: 'yes' });
    expect(await within(wrong.ended, START_MS, 'the refusal')).toBe(78);
    expect(wrong.output()).toContain('COUNTERSTAMP_LOOK_MIN_MS: must be a whole number of milliseconds');
    expect(wrong.output()).toContain('COUNTERSTAMP_DEV');
    expect(await living(wrong.children)).toEqual([]);
  }, 150_000);
});
