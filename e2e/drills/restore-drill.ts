import { execFile } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { chmod, mkdtemp, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { type EmbeddedPostgres, startEmbeddedPostgres } from '@counterstamp/embedded-postgres';
import type { RunId } from '@counterstamp/manifest-core';
import { createApiKey } from '@counterstamp/manifest-store';
import type { RestoreReport } from '@counterstamp/reconciler';
import connectTo from 'postgres';
import { type Fleet, type FleetOptions, prepareFleetDatabase, startFleet } from '../../testing/fleet.ts';
import { startOrphanGuard } from '../../testing/orphan-guard.ts';
import { testIds } from '../../testing/test-ids.ts';

/** The built command, as an operator types it: `tsc -b` comes first. */
const MAIN = fileURLToPath(new URL('../../apps/cli/dist/main.js', import.meta.url));
/** Debian's PostgreSQL 15: the embedded one comes without `pg_dump`. */
const BIN = '/usr/lib/postgresql/15/bin';
const ACCESS = { rolePrefix: 'cs_drill_', secret: 'restore-drill-secret-of-this-run-only' };
const OWNER = 'drill_owner';
const DATABASE = 'counterstamp';

/** Milliseconds for one command of the drill, and for a run to go on. */
const COMMAND_MS = 120_000;
const RUN_MS = 40_000;

/** The approvals must outlive the drill on a slow machine, as those of a real installation may outlive a restore. */
const DURATIONS = { COUNTERSTAMP_APPROVAL_LIFE_MS: '1800000', COUNTERSTAMP_RUN_LIFE_MS: '3600000' };

export interface DrillOptions {
  /** Runs that are finished before the backup. */
  finished: number;
  /** Told each step as a sentence. */
  say(sentence: string): void;
}

/** Something was not as the guide says. */
class DrillFailure extends Error {
  override readonly name = 'DrillFailure';
}

/**
 * The restore of docs/operations/backup-and-restore.md, done: a fleet on a real Postgres, a backup, work that happens after it, the loss of the database, a new
 * server, and every step until it is safe to send again. Ends what it starts.
 * @throws {DrillFailure} at the first step that is not as the guide says.
 */
export async function restoreDrill({ finished, say }: DrillOptions): Promise<void> {
  const folder = await mkdtemp(path.join(tmpdir(), 'cs-drill-'));
  await chmod(folder, 0o711); // Postgres runs as another user when we are root, and must pass through.
  const guard = startOrphanGuard(folder);
  const closers: (() => Promise<unknown>)[] = [];
  const server = async (name: string): Promise<EmbeddedPostgres> => {
    const started = await startEmbeddedPostgres({ dir: path.join(folder, name), binDir: BIN, durable: false });
    closers.push(() => started.stop());
    await writeFile(path.join(folder, `${name}${guard.pidFileEnding}`), String(started.pid));
    return started;
  };
  try {
    const before = await server('first');
    say(`A first server runs (PostgreSQL 15), and a fleet on it.`);
    const ownerUrl = await makeDatabase(before, 'made by migrate');
    await prepareFleetDatabase(ownerUrl, ACCESS);
    const first = await startFleet({ ownerUrl, ...ACCESS, env: DURATIONS });
    closers.push(() => first.stop());
    const operator = (
      await createApiKey(first.owner, testIds, { tenant_id: 'shop_north', name: 'omar', role: 'operator' })
    ).key;

    const made = await workBefore(first, operator, finished, say);
    const [clock] = await first.owner<{ now: string }[]>`select cs.iso(cs.clock()) as now`;
    const since = clock?.now ?? '';
    const dump = path.join(folder, 'backup.dump');
    await program(`${BIN}/pg_dump`, ['-Fc', '--file', dump, ownerUrl]);
    say(`Backed up with pg_dump -Fc at ${since}: ${(await stat(dump)).size} bytes.`);
    const lost = await workAfter(first, operator, made, say);

    for (const { child } of first.processes) child.kill('SIGKILL');
    await Promise.all(first.processes.map(({ ended }) => ended));
    await before.stop();
    await rm(path.join(folder, 'first'), { recursive: true, force: true });
    say(
      'The machine is lost: every process killed, the server and its data gone. Only the backup, the keys and the providers remain.',
    );

    const restoredUrl = await restore(await server('second'), dump, say);
    await recover({ first, restoredUrl, operator, since, made, lost, say, closers });
  } finally {
    for (const close of closers.reverse()) await close().catch(() => undefined);
    await rm(folder, { recursive: true, force: true });
    guard.dismiss();
  }
}

/** A case at the sandbox with the run that asks for it. */
interface Asked {
  seeded: Awaited<ReturnType<Fleet['seed']>>;
  run_id: RunId;
}

interface Made {
  finished: Asked[];
  /** Refund and credit that are approved and wait for the release of a hold. */
  refund: Asked;
  credit: Asked;
  /** A credit that nobody has decided on. */
  undecided: Asked;
  /** A refund whose answer was lost: uncertain, and the effect is there. */
  doubtful: Asked;
  /** A credit that never reached its provider: parked for a person. */
  parked: Asked;
}

async function workBefore(fleet: Fleet, operator: string, finished: number, say: DrillOptions['say']): Promise<Made> {
  const finish = async () => {
    const one = await ask(fleet, 'refund');
    await fleet.approve(one.run_id);
    await fleet.until(one.run_id, ['completed'], RUN_MS);
    return one;
  };
  const park = async () => {
    const one = await ask(fleet, 'credit');
    await admin(fleet, 'PUT', `/admin/credits/faults/cus_${one.seeded.order_id}`, { kind: 'cut_before_accept' });
    await fleet.approve(one.run_id);
    await fleet.until(one.run_id, (run) => run.parked_reason !== null, RUN_MS);
    return one;
  };
  const [parked, ...done] = await Promise.all([park(), ...Array.from({ length: finished }, finish)]);

  // Without a reconciler nobody looks: the run stays uncertain while the backup is taken.
  for (const one of fleet.processes) if (one.service === 'reconciler') await fleet.end(one, 'SIGTERM');
  const doubtful = await ask(fleet, 'refund');
  await fleet.fault(doubtful.seeded.payment_id, { kind: 'cut_after_accept' });
  await fleet.approve(doubtful.run_id);
  await fleet.until(doubtful.run_id, ['needs_reconciliation'], RUN_MS);

  await command(fleet, operator, ['hold', 'set', '--reason', 'the drill wants approved runs that wait']);
  const [refund, credit, undecided] = await Promise.all([
    ask(fleet, 'refund', 1_500),
    ask(fleet, 'credit'),
    ask(fleet, 'credit'),
  ]);
  for (const one of [refund, credit]) await fleet.approve(one.run_id);
  for (const one of [refund, credit])
    await fleet.until(one.run_id, (run) => run.state === 'awaiting_approval' && run.decisions_sufficient, RUN_MS);
  await fleet.until(undecided.run_id, ['awaiting_approval'], RUN_MS);
  say(
    `Made: ${finished} runs completed, 1 uncertain with its effect at the provider, 1 parked without one, 2 approved and on hold, 1 undecided.`,
  );
  return { finished: done, refund, credit, undecided, doubtful, parked };
}

/** What happens after the backup and is known to the providers alone: everything that waited, and a run that the backup never saw. */
async function workAfter(fleet: Fleet, operator: string, made: Made, say: DrillOptions['say']): Promise<Asked> {
  await fleet.start('reconciler');
  await command(fleet, operator, ['hold', 'release']);
  await fleet.approve(made.undecided.run_id);
  const lost = await ask(fleet, 'credit');
  await fleet.approve(lost.run_id);
  for (const { run_id } of [made.doubtful, made.refund, made.credit, made.undecided, lost])
    await fleet.until(run_id, ['completed'], RUN_MS);
  say(
    'After the backup: the uncertain run, the 3 that waited and 1 new one were completed. The backup knows nothing of it.',
  );
  return lost;
}

/** A new server with the roles, the data and the grants. @returns the owner's URL. */
async function restore(server: EmbeddedPostgres, dump: string, say: DrillOptions['say']): Promise<string> {
  const ownerUrl = await makeDatabase(server, 'restored');
  const access = {
    DATABASE_URL: ownerUrl,
    COUNTERSTAMP_SECRET: ACCESS.secret,
    COUNTERSTAMP_ROLE_PREFIX: ACCESS.rolePrefix,
  };
  // Roles belong to the server and are in no dump of a database.
  const roles = await cli(access, ['migrate', '--print-roles']);
  expectThat(roles.code === 0, `migrate --print-roles ended with ${roles.code}: ${roles.text}`);
  const url = new URL(server.url);
  url.pathname = `/${DATABASE}`;
  const admin = connectTo(url.href, { max: 1, onnotice: () => undefined });
  await admin.unsafe(roles.text);
  await admin.end({ timeout: 2 });
  say(
    'A second server: the owner, an empty database, and the service roles by what `counterstamp migrate --print-roles` printed.',
  );
  await program(`${BIN}/pg_restore`, ['--exit-on-error', '--no-owner', '--dbname', ownerUrl, dump]);
  say('Restored with pg_restore --no-owner, as the owner; no error.');
  const migrated = await cli(access, ['migrate']);
  expectThat(
    migrated.code === 0 && migrated.text.includes('The schema was up to date.'),
    `migrate after the restore ended with ${migrated.code}: ${migrated.text}`,
  );
  say('`counterstamp migrate` found the schema up to date and granted again.');
  return ownerUrl;
}

interface Recovery {
  first: Fleet;
  restoredUrl: string;
  operator: string;
  since: string;
  made: Made;
  lost: Asked;
  say: DrillOptions['say'];
  closers: (() => Promise<unknown>)[];
}

async function recover({ first, restoredUrl, operator, since, made, lost, say, closers }: Recovery): Promise<void> {
  const env = { ...first.environment, DATABASE_URL: restoredUrl };
  const ledger = ['--since', since, '--ledger', first.sandbox.url];
  const sent = await requestsSent(first);

  const held = await cli(env, ['hold', 'set', '--owner', '--reason', 'restored; the ledger is being compared']);
  expectThat(held.code === 0, `hold set --owner ended with ${held.code}: ${held.text}`);
  say('Everything is on hold, set by the owner before the first process of the fleet.');
  const verified = await cli(env, ['verify-history']);
  expectThat(verified.code === 0, `verify-history ended with ${verified.code}: ${verified.text}`);
  say(`verify-history: ${verified.text.trim()}`);

  const { report, code } = await check(env, ledger);
  const acted = [made.refund, made.credit, made.undecided];
  expectThat(code === 1 && !report.safe, `restore check found the restored database safe: ${JSON.stringify(report)}`);
  expectSame(
    report.findings.map((one) => `${one.kind} ${'run' in one ? one.run.run_id : one.run_id}`),
    [...acted.map(({ run_id }) => `acted_already ${run_id}`), `run_lost ${lost.run_id}`],
    'what restore check names',
  );
  expectThat(report.recovering === 2, `restore check counts ${report.recovering} runs with a send on record, not 2`);
  say(
    `restore check names what the backup does not know: ${acted.length} runs that wait here and have their effect already, 1 effect of a run that is lost; 2 with a send on record are the fleet's to look up.`,
  );

  const options: FleetOptions = { ownerUrl: restoredUrl, ...ACCESS, env: DURATIONS, before: first };
  const fleet = await startFleet({ ...options, services: ['api'] });
  closers.push(() => fleet.stop());
  for (const finding of report.findings)
    if (finding.kind === 'acted_already')
      await command(fleet, operator, [
        'run',
        'cancel',
        finding.run.run_id,
        '--reason',
        `performed before the restore: ${finding.refs.join(', ')}`,
      ]);
  say('The api alone was started, and these 3 runs were cancelled, each with the reference of its effect.');
  const again = await askAgain(fleet, lost);
  expectThat(again !== lost.run_id, 'the request of the lost run was answered with the lost run');
  for (const service of ['preflight', 'executor', 'verifier', 'reconciler'] as const) await fleet.start(service);
  say('The workers were started under the hold, and the request of the lost run was made again.');

  await fleet.until(made.doubtful.run_id, ['completed'], RUN_MS);
  say('The uncertain run found its effect by itself and completed; looks need no release.');
  await fleet.until(again, ['awaiting_approval'], RUN_MS);
  const second = await check(env, ledger);
  expectThat(
    second.code === 1 && second.report.findings.some((one) => one.kind === 'same_as_lost' && one.run.run_id === again),
    `restore check does not name the repeated request: ${JSON.stringify(second.report)}`,
  );
  await command(fleet, operator, [
    'run',
    'cancel',
    again,
    '--reason',
    `performed by ${lost.run_id} before the restore`,
  ]);
  expectThat((await askAgain(fleet, lost)) === again, 'the same request made a third run');
  say(
    'restore check named the repeated request as what the lost run had done; it was cancelled, and the same request now leads to it.',
  );

  await judgeParked(fleet, operator, made.parked.run_id);
  say('The parked run was judged by a person: its executor fenced, the absence recorded.');

  const third = await check(env, ledger);
  expectThat(third.code === 0 && third.report.safe, `restore check is not satisfied: ${JSON.stringify(third.report)}`);
  expectSame(await requestsSent(first), sent, 'what was sent while everything was on hold');
  say('restore check finds no open run that would act again, and nothing was sent meanwhile.');

  await command(fleet, operator, ['hold', 'release']);
  const fresh = [await ask(fleet, 'refund'), await ask(fleet, 'credit')];
  for (const { run_id } of fresh) await fleet.approve(run_id);
  for (const { run_id } of fresh) await fleet.until(run_id, ['completed'], RUN_MS);
  say('The hold was released; a new refund and a new credit went through.');

  await prove(fleet, env, [...acted, lost], made.finished.length + acted.length + 1 + 1 + fresh.length);
  say(
    'Proved: every history verifies, no effect is there twice, and check-history names the runs that the backup had lost and nothing else.',
  );
}

/** Step by step as docs/operations/parked-run.md says. */
async function judgeParked(fleet: Fleet, operator: string, run_id: RunId): Promise<void> {
  const { attempts, parked_reason } = await fleet.requester.getRun(run_id);
  expectThat(parked_reason !== null, `${run_id} is no longer parked`);
  for (const { instance_id } of attempts)
    await command(fleet, operator, ['instance', 'fence', instance_id, '--evidence', 'its machine is lost']);
  // An absence counts from the time before the look, which must come after the recorded end + settle.
  await fleet.until(run_id, (run) => run.settles_at !== null && run.as_of > run.settles_at, RUN_MS);
  const { run } = JSON.parse(await command(fleet, operator, ['reconcile', run_id, '--json'])) as {
    run: { revision: number; as_of: string };
  };
  await command(fleet, operator, [
    ...['verdict', run_id, '--did-not-land', '--revision', String(run.revision)],
    ...['--observed-at', run.as_of, '--evidence', 'no such credit in the system'],
  ]);
}

/** Nothing twice, histories whole, and only the named runs differ from the ledger. */
async function prove(fleet: Fleet, env: Environment, forgotten: readonly Asked[], effects: number): Promise<void> {
  const verified = await cli(env, ['verify-history']);
  expectThat(verified.code === 0, `verify-history ended with ${verified.code}: ${verified.text}`);
  const books = await admin<{ effects: { run_id: string | null }[] }>(fleet, 'GET', '/admin/history');
  const tags = books.effects.map(({ run_id }) => run_id);
  expectThat(new Set(tags).size === tags.length, `an effect is there twice: ${tags.join(', ')}`);
  expectThat(tags.length === effects, `there are ${tags.length} effects, and ${effects} were asked for`);
  const judged = await cli(env, ['check-history', '--ledger', fleet.sandbox.url, '--json']);
  const { violations } = JSON.parse(judged.text) as {
    violations: { code: string; run_id: string | null; message: string }[];
  };
  const others = violations.filter(
    ({ run_id, message }) => !forgotten.some((one) => one.run_id === run_id || message.includes(one.run_id)),
  );
  expectSame(
    others.map(({ code, message }) => `${code}: ${message}`),
    [],
    'what check-history has against other runs',
  );
  expectThat(
    forgotten.every((one) =>
      violations.some(({ run_id, message }) => run_id === one.run_id || message.includes(one.run_id)),
    ),
    'check-history is silent about a run whose effect its record does not hold',
  );
}

async function check(env: Environment, args: readonly string[]): Promise<{ code: number; report: RestoreReport }> {
  const { code, text } = await cli(env, ['restore', 'check', ...args, '--json']);
  expectThat(code === 0 || code === 1, `restore check ended with ${code}: ${text}`);
  return { code, report: JSON.parse(text) as RestoreReport };
}

async function ask(fleet: Fleet, workflow: 'refund' | 'credit', amount = 4_200): Promise<Asked> {
  const seeded = await fleet.seed();
  return {
    seeded,
    run_id: await fleet.request(seeded, workflow === 'refund' ? refundOf(seeded, amount) : creditOf(seeded)),
  };
}

/** The very same request, as a client that had no answer repeats it. */
function askAgain(fleet: Fleet, { seeded }: Asked): Promise<RunId> {
  return fleet.request(seeded, creditOf(seeded));
}

function refundOf({ order_id }: Asked['seeded'], requested_amount_minor: number) {
  return { input: { order_id, requested_amount_minor, currency: 'USD', reason: 'item arrived damaged' } };
}

function creditOf({ order_id }: Asked['seeded']) {
  const reason = 'the parcel was late';
  return {
    workflow: 'credit',
    input: { order_id, requested_amount_minor: 4_200, currency: 'USD', reason, memo: 'Sorry for the delay' },
  };
}

/** Requests at the providers so far, each by its number. */
async function requestsSent(fleet: Fleet): Promise<string[]> {
  const { requests } = await admin<{ requests: { provider: string; seq: number }[] }>(fleet, 'GET', '/admin/history');
  return requests.map(({ provider, seq }) => `${provider} ${seq}`);
}

async function admin<T>(fleet: Fleet, method: string, at: string, body?: unknown): Promise<T> {
  const response = await fetch(`${fleet.sandbox.url}${at}`, {
    method,
    ...(body === undefined ? {} : { headers: { 'content-type': 'application/json' }, body: JSON.stringify(body) }),
  });
  if (!response.ok) throw new Error(`${method} ${at}: ${response.status} ${await response.text()}`);
  return (await response.json()) as T;
}

/** An owner who may make roles and is no superuser, and its database. */
async function makeDatabase(server: EmbeddedPostgres, what: string): Promise<string> {
  const password = randomBytes(16).toString('hex');
  const sql = connectTo(server.url, { max: 1, onnotice: () => undefined });
  await sql.unsafe(`create role ${OWNER} login createrole password '${password}'`);
  await sql.unsafe(`create database ${DATABASE} owner ${OWNER}`);
  await sql.unsafe(`comment on database ${DATABASE} is '${what}'`);
  await sql.end({ timeout: 2 });
  const url = new URL(server.url);
  url.username = OWNER;
  url.password = password;
  url.pathname = `/${DATABASE}`;
  return url.href;
}

type Environment = Readonly<Record<string, string>>;

function accessOf(fleet: Fleet, key: string): Environment {
  return { PATH: process.env.PATH ?? '', COUNTERSTAMP_URL: fleet.apiUrl, COUNTERSTAMP_KEY: key };
}

/** A command of an operator, which must succeed. @returns what it printed. */
async function command(fleet: Fleet, key: string, args: readonly string[]): Promise<string> {
  const { code, text } = await cli(accessOf(fleet, key), args);
  expectThat(code === 0, `counterstamp ${args.join(' ')} ended with ${code}: ${text}`);
  return text;
}

async function cli(env: Environment, args: readonly string[]): Promise<{ code: number; text: string }> {
  return await run(process.execPath, [MAIN, ...args], { PATH: process.env.PATH ?? '', ...env });
}

async function program(file: string, args: readonly string[]): Promise<void> {
  const { code, text } = await run(file, args, { PATH: process.env.PATH ?? '', LC_ALL: 'C.UTF-8' });
  expectThat(code === 0, `${path.basename(file)} ended with ${code}: ${text}`);
}

/** @returns standard output, and standard error after it when it failed. */
function run(file: string, args: readonly string[], env: Environment): Promise<{ code: number; text: string }> {
  return new Promise((resolve) => {
    execFile(file, [...args], { env, timeout: COMMAND_MS, maxBuffer: 64 * 1_024 * 1_024 }, (error, stdout, stderr) => {
      const code = error === null ? 0 : typeof error.code === 'number' ? error.code : -1;
      resolve({ code, text: stdout === '' ? stderr : stdout });
    });
  });
}

function expectThat(holds: boolean, otherwise: string): void {
  if (!holds) throw new DrillFailure(otherwise);
}

/** In any order. */
function expectSame(found: readonly string[], expected: readonly string[], what: string): void {
  const [a, b] = [found, expected].map((list) => JSON.stringify([...list].sort((x, y) => x.localeCompare(y))));
  expectThat(a === b, `${what}: expected ${b}, found ${a}`);
}
