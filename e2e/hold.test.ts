import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import type { RunView } from '@counterstamp/api-contract';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { poll } from '../testing/fleet.ts';

/** The built command, as a user runs it: `tsc -b` comes first. */
const MAIN = fileURLToPath(new URL('../apps/cli/dist/main.js', import.meta.url));

/** Milliseconds for a fleet to start, and for a run to go on. */
const START_MS = 60_000;
const RUN_MS = 20_000;

let folder: string;
let fleet: { child: ChildProcess; text: string } | undefined;

beforeAll(async () => {
  folder = await mkdtemp(path.join(os.tmpdir(), 'cs-testing-hold-'));
});
afterAll(async () => {
  await end();
  await rm(folder, { recursive: true, force: true });
});

async function up(...args: string[]): Promise<{ text: string }> {
  const child = spawn(process.execPath, [MAIN, 'up', '--port', '0', ...args], {
    cwd: folder,
    env: { PATH: process.env.PATH ?? '' },
    stdio: ['ignore', 'pipe', 'pipe', 'ipc'],
  });
  const started = { child, text: '' };
  fleet = started;
  for (const stream of [child.stdout, child.stderr]) {
    stream?.on('data', (data: Buffer) => {
      started.text += data.toString();
    });
  }
  await poll(() => Promise.resolve(started.text.includes('Ctrl-C ends everything')), START_MS, 'the fleet was not up');
  return started;
}

async function end(): Promise<void> {
  const child = fleet?.child;
  fleet = undefined;
  if (child === undefined || child.exitCode !== null) return;
  const ended = once(child, 'exit');
  child.kill('SIGTERM');
  await ended;
}

/** One command as a person types it. */
async function command(...args: string[]): Promise<{ code: number; out: string; err: string }> {
  const child = spawn(process.execPath, [MAIN, ...args], {
    cwd: folder,
    env: { PATH: process.env.PATH ?? '' },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let out = '';
  let err = '';
  child.stdout.on('data', (data: Buffer) => {
    out += data.toString();
  });
  child.stderr.on('data', (data: Buffer) => {
    err += data.toString();
  });
  const [code] = (await once(child, 'close')) as [number];
  return { code, out, err };
}

async function shown(run_id: string): Promise<RunView> {
  return JSON.parse((await command('run', 'show', run_id, '--json')).out) as RunView;
}

test('up --hold: a run goes as far as its approval and waits, an operator releases it, and it completes; a hold outlives its fleet', async () => {
  const started = await up('--hold');
  expect(started.text).toContain('! On hold: everything (started with --hold).');
  expect(started.text).toContain('The tour is left out');

  const doctor = await command('doctor', '--json');
  expect(doctor.code, doctor.out).toBe(0);
  const { ok, findings } = JSON.parse(doctor.out) as { ok: boolean; findings: { check: string; status: string }[] };
  expect(ok).toBe(true);
  expect(findings.filter((one) => one.status !== 'ok').map((one) => one.check)).toEqual(['hold']);
  expect(findings.map((one) => one.check)).toContain('api');

  const created = await command('run', 'create', '--file', '.counterstamp/refund.json', '--json');
  const { run_id } = JSON.parse(created.out) as { run_id: string };
  await poll(async () => (await shown(run_id)).state === 'awaiting_approval', RUN_MS, 'nothing to approve');
  expect((await command('approve', run_id, '--yes')).code).toBe(0);
  // The executor has looked at it, and found the hold, once its wait was moved on an unchanged revision.
  const approved = await shown(run_id);
  await poll(async () => (await shown(run_id)).wake_at !== approved.wake_at, RUN_MS, 'the executor never looked');
  const waiting = await shown(run_id);
  expect(waiting).toMatchObject({ state: 'awaiting_approval', revision: approved.revision, attempts: [] });
  expect(waiting.guards.filter((guard) => !guard.pass).map((guard) => guard.guard)).toEqual(['no_hold']);
  expect((await command('run', 'show', run_id)).out).toMatch(
    /✗ fail {2}no_hold +everything is on hold since .*: started with --hold/,
  );
  expect((await command('hold', 'list')).out).toMatch(/^SCOPE .*\nall .* started with --hold$/m);

  expect((await command('hold', 'release', '--as', 'requester')).err).toContain('role_missing');
  expect((await command('hold', 'release')).out).toBe('The hold on everything is released; nothing is on hold.\n');
  await poll(async () => (await shown(run_id)).state === 'completed', RUN_MS, 'it did not go on');
  expect((await command('hold', 'release')).code).toBe(1);

  expect((await command('hold', 'set', '--connector', 'sandbox-payments', '--reason', 'ledger compared')).code).toBe(0);
  await end();
  const again = await up();
  expect(again.text).toContain('! On hold: sandbox-payments (ledger compared).');
  expect(again.text).toContain('The tour is left out');
}, 180_000);
