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

test('“it did not land” is refused until the look was late enough and the executor is gone, then closes the run; nothing was sent again', async () => {
  const { run, customer_id } = await parkedAfter('cut_before_accept');
  const { run_id, revision } = run;
  const list = await command(['reconcile']);
  expect(list.code, list.err).toBe(0);
  expect(list.out).toContain(`${run_id}\n`);
  expect(list.out).toContain('parked: effect_not_found');
  const page = (await command(['reconcile', run_id])).out;
  expect(page).toMatch(/✓ pass {2}settled/);
  expect(page).toMatch(/✗ fail {2}fenced +still to be fenced: ins_/);

  const absent = ['verdict', run_id, '--did-not-land', '--revision', `${revision}`, '--evidence', 'nothing booked'];
  const early = await command([...absent, '--observed-at', run.attempts[0]?.call_deadline ?? '']);
  expect(early.code).toBe(1);
  expect(early.err).toContain(`(409 not_settled at /observed_at): the run settles at ${run.settles_at}:`);
  const unfenced = await command(copied(page, '--did-not-land'));
  expect(unfenced.code).toBe(1);
  expect(unfenced.err).toContain('(409 instance_not_fenced): not fenced: ins_');
  const [instance] = (await shown(run_id)).instances;
  const fence = ['instance', 'fence', instance?.instance_id ?? '', '--evidence', 'I believe so'];
  expect((await command(fence)).err).toContain('its session lease is held');

  await endExecutors();
  expect((await command(['instance', 'list'])).out).toMatch(/ins_\S+ .* free +0 +20\S+Z by self +20\S+Z$/m);
  const ended = await shown(run_id);
  const endedAt = ended.instances[0]?.ended_at ?? '';
  await poll(
    async () => {
      const { out } = await command(['reconcile', run_id]);
      return out.includes('✓ pass  settled') && out.includes('✓ pass  fenced');
    },
    10_000,
    'it never counted as fenced, with a look that covers the end',
  );
  const beforeItsEnd = await command([...absent, '--observed-at', endedAt]);
  expect(beforeItsEnd.code).toBe(1);
  expect(beforeItsEnd.err).toContain(`(409 not_settled at /observed_at): the run settles at ${ended.run.settles_at}:`);
  expect((await command(fence)).out).toContain('was recorded before; nothing changed');
  const closed = await command(copied((await command(['reconcile', run_id])).out, '--did-not-land'));
  expect(closed.code, closed.err).toBe(0);
  expect(closed.out).toContain(`Recorded. ${run_id} is failed, revision ${revision + 1}.`);
  const again = await command([...absent, '--observed-at', run.as_of]);
  expect([again.code, again.err]).toEqual([1, expect.stringContaining('(409 not_in_doubt): the run is failed')]);

  const told = await command(['run', 'show', run_id]);
  expect(told.out).toContain('Why: person_absent: ');
  expect(told.out).toMatch(/ person +did not land: what you saw, and where \(looked at 20/);
  expect((await command(['run', 'events', run_id])).out).toMatch(
    / person_absent +principal\/prn_\S+ +a person saw that nothing happened: what you saw, and where$/m,
  );
  expect([await countOf('ledger', customer_id), await countOf('effects', customer_id)]).toEqual([1, 0]);
  await fleet.start('executor');
}, 120_000);

test('“it landed” goes to the verifier, which completes the run once it sees the effect for itself', async () => {
  await lag(LAG_MS);
  const { run, customer_id } = await parkedAfter('cut_after_accept');
  const landed = await command(copied((await command(['reconcile', run.run_id])).out, '--landed '));
  expect(landed.code, landed.err).toBe(0);
  expect(landed.out).toContain(`${run.run_id} is verifying, revision ${run.revision + 1}.`);
  await fleet.until(run.run_id, (seen) => seen.counters.verification_waits > 0);
  await lag(0);
  const done = await fleet.until(run.run_id, ['completed']);
  expect(done.outcome).toMatchObject({ kind: 'matched' });
  expect([await countOf('ledger', customer_id), await countOf('effects', customer_id)]).toEqual([1, 1]);
}, 120_000);

test('“I cannot tell” leaves it parked; another look by the fleet finds what has become visible', async () => {
  await lag(LAG_MS);
  const { run } = await parkedAfter('cut_after_accept');
  const unsure = await command(copied((await command(['reconcile', run.run_id])).out, '--still-unknown'));
  expect(unsure.out, unsure.err).toContain(`is needs_reconciliation, revision ${run.revision + 1}. It stays parked.`);
  await lag(0);
  const looked = await command(['reconcile', run.run_id, '--look-again']);
  expect(looked.out, looked.err).toContain(`The fleet looks again; the run is needs_reconciliation`);
  await fleet.until(run.run_id, ['completed']);
  expect((await command(['run', 'events', run.run_id])).out).toMatch(/a person asked for another look/);
}, 120_000);

test('“it landed differently” closes the run with the effect that a file describes', async () => {
  await lag(LAG_MS);
  const { run } = await parkedAfter('cut_after_accept');
  const given = copied((await command(['reconcile', run.run_id])).out, '--landed-differently');
  const file = path.join(folder, 'effect.json');
  await writeFile(
    file,
    '{"provider_ref":"g_1","status":"granted","amount_minor":4100,"amount_minor":4200,"currency":"USD"}',
  );
  const twice = await command(given);
  expect([twice.code, twice.err]).toEqual([2, expect.stringContaining('duplicate_member at /amount_minor')]);
  await writeFile(file, '{"provider_ref":"g_1","status":"granted","amount_minor":4100,"currency":"USD"}');
  const closed = await command(given);
  expect(closed.out, closed.err).toContain('is failed,');
  expect(await fleet.requester.getRun(run.run_id)).toMatchObject({
    stop_reason: { code: 'settled_with_difference', message: expect.stringContaining('Observed: g_1, USD 41.00') },
    outcome: { kind: 'person', provider_ref: 'g_1', body: { effect: { amount_minor: 4100 } } },
  });
}, 120_000);

test('a second person stands in for a fence that nobody can have; their word alone moves nothing', async () => {
  const { run } = await parkedAfter('cut_before_accept');
  const support = [
    'verdict',
    'support',
    run.run_id,
    '--waive-fencing',
    '--revision',
    `${run.revision}`,
    '--reason',
    'scrapped',
  ];
  expect((await command(support, 'second')).out).toContain('The first person now gives their verdict again');
  expect(await fleet.requester.getRun(run.run_id)).toMatchObject({ revision: run.revision });
  const closed = await command(copied((await command(['reconcile', run.run_id])).out, '--did-not-land'));
  expect(closed.out, closed.err).toContain('is failed,');
}, 120_000);
