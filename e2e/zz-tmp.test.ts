import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import type { Instance, RunView } from '@counterstamp/api-contract';
import type { RunId } from '@counterstamp/manifest-core';
import { createApiKey } from '@counterstamp/manifest-store';
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import { type Fleet, poll } from '../testing/fleet.ts';
import { testFleet } from '../testing/test-fleet.ts';
import { testIds } from '../testing/test-ids.ts';

/** The built command, as a user runs it: `tsc -b` comes first. */
const MAIN = fileURLToPath(new URL('../apps/cli/dist/main.js', import.meta.url));
/** Milliseconds by which the look-up lags while a run is to be parked: far slower than the target declares. */
const LAG_MS = 600_000;

let fleet: Fleet;
let folder: string;
const keys: Record<string, string> = {};

// A verdict knows no queue: one backend is enough.
beforeAll(async () => {
  folder = await mkdtemp(path.join(os.tmpdir(), 'cs-testing-verdict-'));
  fleet = await testFleet('postgres');
  for (const name of ['operator', 'second'])
    keys[name] = (await createApiKey(fleet.owner, testIds, { tenant_id: 'shop_north', name, role: 'operator' })).key;
}, 90_000);
afterAll(async () => {
  await fleet?.stop();
  await rm(folder, { recursive: true, force: true });
}, 30_000);
beforeEach(() => lag(0));

async function admin(method: string, address: string, body: unknown): Promise<void> {
  const response = await fetch(`${fleet.sandbox.url}${address}`, {
    method,
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(body),
  });
  if (!response.ok) throw new Error(`${method} ${address}: ${response.status} ${await response.text()}`);
}
const lag = (credits_lag_ms: number) => admin('PUT', '/admin/settings', { credits_lag_ms });

async function countOf(what: 'ledger' | 'effects', customer_id: string): Promise<number> {
  const response = await fetch(`${fleet.sandbox.url}/admin/credits/${what}?customer_id=${customer_id}`);
  const { entries, effects } = (await response.json()) as { entries?: unknown[]; effects?: unknown[] };
  return (entries ?? effects ?? []).length;
}

/** A credit (no idempotency key at its target) whose answer is lost, parked once its absence has settled. */
async function parkedAfter(
  fault: 'cut_before_accept' | 'cut_after_accept',
): Promise<{ run: RunView; customer_id: string }> {
  const seeded = await fleet.seed();
  const customer_id = `cus_${seeded.order_id}`;
  await admin('PUT', `/admin/credits/faults/${customer_id}`, { kind: fault });
  const run_id = await fleet.request(seeded, {
    workflow: 'credit',
    input: { order_id: seeded.order_id, requested_amount_minor: 4200, currency: 'USD', reason: 'late', memo: 'Sorry' },
  });
  await fleet.approve(run_id);
  const run = await fleet.until(run_id, (seen) => seen.parked_reason !== null);
  expect(run).toMatchObject({ state: 'needs_reconciliation', parked_reason: 'effect_not_found' });
  return { run, customer_id };
}

/** One command as a person types it. */
async function command(args: readonly string[], who = 'operator'): Promise<{ code: number; out: string; err: string }> {
  const child = spawn(process.execPath, [MAIN, ...args], {
    cwd: folder,
    env: { PATH: process.env.PATH ?? '', COUNTERSTAMP_URL: fleet.apiUrl, COUNTERSTAMP_KEY: keys[who] ?? '' },
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

const shown = async (run_id: RunId) => {
  const { out } = await command(['reconcile', run_id, '--json']);
  return JSON.parse(out) as { run: RunView; instances: Instance[] };
};

/** The words of the one command of the page that holds this option, as a shell would split them. */
function copied(page: string, option: string): string[] {
  const line = page.split('\n').find((one) => one.includes(option) && one.includes('counterstamp verdict run_'));
  if (line === undefined) throw new Error(`no command with ${option} on\n${page}`);
  const words = line.trim().match(/"[^"]*"|\S+/g) ?? [];
  return words.slice(1).map((word) => word.replaceAll('"', ''));
}

async function endExecutors(): Promise<void> {
  for (const one of fleet.processes)
    if (one.service === 'executor' && one.child.exitCode === null && one.child.signalCode === null)
      expect(await fleet.end(one, 'SIGTERM')).toBe(0);
}


test('look', async () => {
  const victim = await fleet.start('executor', { COUNTERSTAMP_FAILPOINTS: 'dispatch.acked.before-check=kill' });
  for (const one of fleet.processes) if (one.service === 'executor' && one !== victim) await fleet.end(one, 'SIGTERM');
  const seeded = await fleet.seed();
  const run_id = await fleet.request(seeded);
  await fleet.approve(run_id);
  await victim.ended;
  await fleet.start('executor');
  await fleet.until(run_id, ['completed']);
  console.log((await command(['run', 'show', run_id])).out);
  console.log((await command(['run', 'events', run_id])).out);
  const { run } = await parkedAfter('cut_before_accept');
  console.log((await command(['reconcile'])).out);
  console.log((await command(['reconcile', run.run_id])).out);
  console.log((await command(['instance', 'list'])).out);
  console.log((await command(['run', 'show', run.run_id])).out);
}, 120_000);
