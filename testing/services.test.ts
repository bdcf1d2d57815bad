import { spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdtemp, writeFile } from 'node:fs/promises';
import net from 'node:net';
import os from 'node:os';
import path from 'node:path';
import postgres from 'postgres';
import { expect, test, vi } from 'vitest';
import { startOrphanGuard } from './orphan-guard.ts';
import { startServiceBroker } from './service-broker.ts';
import { type PostgresVersion, postgresUrl, redisUrl, testDatabase } from './services.ts';

async function query(url: string, statement: string): Promise<Record<string, unknown>[]> {
  const sql = postgres(url, { max: 1, onnotice: () => {} });
  try {
    return [...(await sql.unsafe(statement))];
  } finally {
    await sql.end({ timeout: 5 });
  }
}

test.each<PostgresVersion>([18, 15])('PostgreSQL %i: clones of one template do not see each other', async (version) => {
  const prepare = vi.fn((url: string) => query(url, 'create table seen as select 1 as n').then(() => {}));
  const [a, b] = await Promise.all([
    testDatabase({ version, name: 'testing/services', prepare }),
    testDatabase({ version, name: 'testing/services', prepare }),
  ]);
  expect(prepare).toHaveBeenCalledTimes(1);
  await query(a.url, 'insert into seen values (2)');
  expect(await query(a.url, 'select count(*)::int as n from seen')).toEqual([{ n: 2 }]);
  expect(await query(b.url, 'select count(*)::int as n from seen')).toEqual([{ n: 1 }]);

  const left = postgres(a.url, { max: 1, onnotice: () => {} });
  await left`select 1`;
  await a.drop();
  await left.end({ timeout: 1 });
  await b.drop();
  expect(
    await query(
      await postgresUrl(version),
      `select datname from pg_database where datname in ('${a.name}', '${b.name}')`,
    ),
  ).toEqual([]);
});

test('a template whose prepare throws is not kept', async () => {
  const failing = { version: 18, name: 'testing/failing' } as const;
  await expect(
    testDatabase({
      ...failing,
      prepare: async (url) => {
        await query(url, 'create table half (n int)');
        throw new Error('planted');
      },
    }),
  ).rejects.toThrow('planted');
  const clone = await testDatabase({
    ...failing,
    prepare: (url) => query(url, 'create table whole (n int)').then(() => {}),
  });
  expect(await query(clone.url, `select to_regclass('half') as half, to_regclass('whole')::text as whole`)).toEqual([
    { half: null, whole: 'whole' },
  ]);
  await clone.drop();
});

test('Redis keeps everything in memory and evicts nothing', async () => {
  const { hostname, port } = new URL(await redisUrl());
  const reply = await new Promise<string>((resolve, reject) => {
    const socket = net.connect(Number(port), hostname, () => socket.write('CONFIG GET maxmemory-policy\r\n'));
    socket.once('error', reject);
    socket.once('data', (chunk) => {
      socket.destroy();
      resolve(String(chunk));
    });
  });
  expect(reply).toContain('noeviction');
});

test('a missing service is an error with the line that installs it, never a skip', async () => {
  vi.stubEnv('PATH', '/nowhere');
  vi.stubEnv('REDIS_URL', '');
  const broker = await startServiceBroker();
  try {
    const response = await fetch(`${broker.url}/redis`);
    expect(await response.json()).toEqual({ error: expect.stringContaining('apt-get install') });
    expect((await fetch(`${new URL(broker.url).origin}/redis`)).status).toBe(404);
  } finally {
    await broker.stop();
    vi.unstubAllEnvs();
  }
});

test('what a killed run leaves is ended and its folder removed', async () => {
  const folder = await mkdtemp(path.join(os.tmpdir(), 'cs-guarded-'));
  const child = spawn('sleep', ['60'], { stdio: 'ignore' });
  const ended = new Promise<NodeJS.Signals | null>((resolve) => child.once('exit', (_code, signal) => resolve(signal)));
  const guard = startOrphanGuard(folder);
  await writeFile(path.join(folder, `one${guard.pidFileEnding}`), String(child.pid));
  guard.dismiss(); // The guard sees the same when this process is killed: its stdin ends.
  expect(await ended).toBe('SIGINT');
  await expect.poll(() => existsSync(folder), { timeout: 20_000, interval: 100 }).toBe(false);
});
