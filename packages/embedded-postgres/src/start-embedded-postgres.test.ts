import { type ChildProcess, spawn } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { chmod, mkdir, mkdtemp, readFile, rm, stat } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import postgres from 'postgres';
import { build } from 'vite';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { type EmbeddedPostgres, type EmbeddedPostgresOptions, freePort, startEmbeddedPostgres } from './index.ts';

let base: string;
const running: EmbeddedPostgres[] = [];

beforeAll(async () => {
  base = await mkdtemp(path.join(os.tmpdir(), 'cs-embedded-'));
  await chmod(base, 0o711); // mkdtemp closes it; one test below closes its own parent on purpose.
});

afterAll(async () => {
  await Promise.all(running.map((cluster) => cluster.stop()));
  await rm(base, { recursive: true, force: true });
});

async function start(options: EmbeddedPostgresOptions): Promise<EmbeddedPostgres> {
  const cluster = await startEmbeddedPostgres({ durable: false, ...options });
  running.push(cluster);
  return cluster;
}

/** Runs one statement on its own connection. */
async function query(url: string, statement: string): Promise<Record<string, unknown>[]> {
  const sql = postgres(url, { max: 1, onnotice: () => {}, connect_timeout: 10 });
  try {
    return [...(await sql.unsafe(statement))];
  } finally {
    await sql.end({ timeout: 5 });
  }
}

/** False for a zombie too: an orphan stays one where process 1 does not collect it, as in many containers. */
function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
  } catch {
    return false;
  }
  const status = existsSync(`/proc/${pid}/stat`) ? readFileSync(`/proc/${pid}/stat`, 'utf8') : '';
  return !/\) Z /.test(status);
}

test('keeps its rows over a restart, and stop leaves no process', async () => {
  const dir = path.join(base, 'restart');
  const first = await start({ dir });
  expect(first.timings.initdbMs).toBeGreaterThan(0);
  await query(first.url, 'create table kept as select 41 + 1 as answer');
  await first.stop();
  await first.exited;
  expect(isAlive(first.pid)).toBe(false);
  expect(existsSync(path.join(dir, 'supervisor.json'))).toBe(false);

  const second = await start({ dir });
  expect(second.timings.initdbMs).toBeUndefined();
  expect(await query(second.url, 'select answer from kept')).toEqual([{ answer: 42 }]);
  await expect(startEmbeddedPostgres({ dir })).rejects.toThrow(`in use by process ${process.pid}`);
  await second.stop();
  await second.stop();
  expect(isAlive(second.pid)).toBe(false);
}, 120_000);

test('listens on loopback only, with a password that only the owner of its file reads', async () => {
  const dir = path.join(base, 'password');
  const cluster = await start({ dir, conf: { max_connections: 50 } });
  const url = new URL(cluster.url);
  expect((await stat(path.join(dir, 'owner-password'))).mode & 0o777).toBe(0o600);
  expect((await readFile(path.join(dir, 'owner-password'), 'utf8')).trim()).toBe(url.password);
  url.password = 'wrong';
  await expect(query(url.href, 'select 1')).rejects.toThrow(/password authentication failed/);
  expect(
    await query(
      cluster.url,
      `select current_setting('listen_addresses') as listen, current_setting('unix_socket_directories') as sockets,
              current_setting('max_connections') as connections, current_setting('synchronous_commit') as commit`,
    ),
  ).toEqual([{ listen: '127.0.0.1', sockets: '', connections: '50', commit: 'on' }]);
  await cluster.stop();
}, 120_000);

test('starts two clusters at once, each on its own port', async () => {
  const [a, b] = await Promise.all([start({ dir: path.join(base, 'a') }), start({ dir: path.join(base, 'b') })]);
  expect(a.port).not.toBe(b.port);
  expect(await query(a.url, 'select 1 as one')).toEqual(await query(b.url, 'select 1 as one'));
  await Promise.all([a.stop(), b.stop()]);
}, 120_000);

test('starts below a folder that only its owner may enter', async () => {
  const closed = path.join(base, 'closed');
  await mkdir(closed, { mode: 0o700 });
  const cluster = await start({ dir: path.join(closed, 'db') });
  await query(cluster.url, 'create table here (id int); checkpoint');
  await cluster.stop();
}, 120_000);

test('names the reason when it cannot start, and leaves nothing behind', async () => {
  const taken = await start({ dir: path.join(base, 'taken') });
  const dir = path.join(base, 'refused');
  await expect(startEmbeddedPostgres({ dir, port: taken.port })).rejects.toThrow(/could not bind/);
  await expect(startEmbeddedPostgres({ dir, conf: { no_such_setting: 1 } })).rejects.toThrow(/no_such_setting/);
  await expect(startEmbeddedPostgres({ dir, binDir: '/nowhere' })).rejects.toThrow('/nowhere/postgres did not run');
  await expect(startEmbeddedPostgres({ dir, signal: AbortSignal.abort() })).rejects.toThrow(/abort/i);
  const cluster = await start({ dir });
  await Promise.all([taken.stop(), cluster.stop()]);
}, 120_000);

test('takes over from a supervisor that was killed, with every acknowledged row', async () => {
  const dir = path.join(base, 'orphan');
  const port = await freePort();
  const supervisor = await spawnSupervisor(dir, port);
  let orphan: number | undefined;
  try {
    const { url, pid } = await firstLine(supervisor.child);
    orphan = pid;
    await query(url, 'create table acknowledged as select 7 as n');
    await expect(startEmbeddedPostgres({ dir })).rejects.toThrow(`in use by process ${supervisor.child.pid}`);
    supervisor.child.kill('SIGKILL');
    await supervisor.ended;
    expect(isAlive(pid)).toBe(true);

    const cluster = await start({ dir, port });
    expect(isAlive(pid)).toBe(false);
    expect(await query(cluster.url, 'select n from acknowledged')).toEqual([{ n: 7 }]);
    await cluster.stop();
  } finally {
    supervisor.child.kill('SIGKILL');
    if (orphan !== undefined && isAlive(orphan)) process.kill(orphan, 'SIGQUIT');
    await rm(supervisor.program, { recursive: true, force: true });
  }
}, 120_000);

/** A separate process that holds a cluster. Node 20 does not run TypeScript, so it is bundled first, where it can resolve the package. */
async function spawnSupervisor(
  dir: string,
  port: number,
): Promise<{ child: ChildProcess; ended: Promise<void>; program: string }> {
  const cache = fileURLToPath(new URL('../../../.cache/', import.meta.url));
  await mkdir(cache, { recursive: true });
  const program = await mkdtemp(path.join(cache, 'supervisor-'));
  await build({
    configFile: false,
    logLevel: 'silent',
    build: {
      ssr: fileURLToPath(new URL('./index.ts', import.meta.url)),
      outDir: program,
      emptyOutDir: false,
      rolldownOptions: { output: { entryFileNames: 'embedded.mjs' } },
    },
  });
  const script = `
    const { startEmbeddedPostgres } = await import(process.argv[1]);
    const { url, pid } = await startEmbeddedPostgres({ dir: process.argv[2], port: Number(process.argv[3]), durable: false });
    console.log(JSON.stringify({ url, pid }));`;
  const child = spawn(
    process.execPath,
    ['--input-type=module', '-e', script, path.join(program, 'embedded.mjs'), dir, String(port)],
    { stdio: ['ignore', 'pipe', 'inherit'] },
  );
  const ended = new Promise<void>((resolve) => child.once('exit', () => resolve()));
  return { child, ended, program };
}

function firstLine(child: ChildProcess): Promise<{ url: string; pid: number }> {
  return new Promise((resolve, reject) => {
    child.stdout?.once('data', (chunk: Buffer) => resolve(JSON.parse(String(chunk)) as { url: string; pid: number }));
    child.once('exit', (code, signal) => reject(new Error(`supervisor ended: ${signal ?? code}`)));
  });
}
