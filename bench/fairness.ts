import { randomUUID } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { cpus, release, tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { startEmbeddedPostgres } from '@counterstamp/embedded-postgres';
import { type OwnRedis, startOwnRedis } from '../packages/stage-queue/testing/own-redis.ts';
import { type Fleet, prepareFleetDatabase, startFleet } from '../testing/fleet.ts';
import {
  approveAll,
  ask,
  noisyAndQuiet,
  QUIET_RUNS,
  statesOf,
  type Tenant,
  UNLIMITED,
  untilSoMany,
  waitingForApproval,
  withoutAny,
} from '../testing/noisy-neighbour.ts';
import { quantile } from './measure.ts';

/** What docs/operations/growing.md promises: beside a noisy tenant, at most this many times as long as alone, and so much more. */
const FACTOR = 3;
const AND_MS = 2_000;

const { values } = parseArgs({
  options: {
    noisy: { type: 'string', default: '10000' },
    backends: { type: 'string', default: 'redis,postgres' },
    help: { type: 'boolean', default: false },
  },
});
if (values.help) {
  console.log(`npm run fairness -- [--noisy 10000] [--backends redis,postgres]

How long ten runs of a quiet tenant take beside a tenant with so many runs, against the same ten alone. Ends with 1 when it is more than
${FACTOR} times as long plus ${AND_MS / 1_000} s. Real processes, Postgres and Redis of its own; sends only to this machine.`);
  process.exit(0);
}
const NOISY = Number(values.noisy);
if (!Number.isSafeInteger(NOISY) || NOISY < 1 || NOISY > 10_000) {
  console.error('--noisy takes a number from 1 to 10000: a tenant may have no more open runs');
  process.exit(2);
}
const ACCESS = { rolePrefix: 'cs_fair_', secret: 'fairness-secret-of-this-run-only' };
/** Times that the quiet tenant is measured alone; the middle one counts. */
const ALONE_TIMES = 5;
/** Runs of the noisy tenant that are approved at most, while the others are still on their way: an approval is two requests to the api. */
const APPROVED_MAX = 2_000;
/** Runs that make the fleet warm: prepared statements, compiled code. */
const WARM_RUNS = 50;

/** Milliseconds of the quiet tenant's ten, from the first request and from the first approval. */
interface Figures {
  awaiting_ms: number;
  completed_ms: number;
}

const folder = await mkdtemp(join(tmpdir(), 'counterstamp-fairness-'));
const postgres = await startEmbeddedPostgres({ dir: join(folder, 'postgres'), durable: true });
const redis: OwnRedis = await startOwnRedis();
let unfair = false;
try {
  console.log(
    `${QUIET_RUNS} runs of a quiet tenant beside ${NOISY} of a noisy one; ${cpus().length} cores, Linux ${release()}, Node ${process.versions.node}, PostgreSQL 18 (fsync on), ${new Date().toISOString().slice(0, 10)}\n`,
  );
  console.log(
    '| queue | the quiet tenant’s ten | alone s | beside s | times | of the noisy tenant’s work, still waiting then |\n|---|---|---|---|---|---|',
  );
  for (const backend of values.backends.split(',')) await measure(backend, backend === 'redis' ? redis.url : undefined);
} finally {
  await redis.dispose();
  await postgres.stop();
  await rm(folder, { recursive: true, force: true });
}
console.log(`\n${unfair ? 'UNFAIR' : 'fair'}: the bound is ${FACTOR} times alone plus ${AND_MS / 1_000} s`);
process.exit(unfair ? 1 : 0);

async function measure(backend: string, redisUrl: string | undefined): Promise<void> {
  const ownerUrl = await emptyDatabase();
  await prepareFleetDatabase(ownerUrl, ACCESS);
  const fleet = await startFleet({
    ownerUrl,
    ...ACCESS,
    ...(redisUrl === undefined ? {} : { redisUrl }),
    env: { COUNTERSTAMP_PROFILE: 'production', ...UNLIMITED },
  });
  try {
    const { noisy, quiet } = await noisyAndQuiet(fleet);
    await untilCompleted(fleet, noisy, WARM_RUNS);
    const times: Figures[] = [];
    for (let i = 0; i < ALONE_TIMES; i++) times.push(await tenOf(fleet, quiet));
    const alone: Figures = {
      awaiting_ms: quantile(
        times.map((one) => one.awaiting_ms),
        0.5,
      ),
      completed_ms: quantile(
        times.map((one) => one.completed_ms),
        0.5,
      ),
    };

    // The noisy tenant's runs wait for preflight when the quiet one comes.
    await withoutAny(fleet, 'preflight', async () => {
      await ask(fleet, noisy, NOISY);
    });
    const beside = await tenOf(fleet, quiet);
    const queued = (await statesOf(fleet, noisy)).queued ?? 0;
    report(
      backend,
      'asked for → awaiting approval',
      alone.awaiting_ms,
      beside.awaiting_ms,
      `${queued} of ${NOISY} queued`,
    );
    report(backend, 'approved → completed', alone.completed_ms, beside.completed_ms, `${queued} of ${NOISY} queued`);

    // The noisy tenant's runs are approved and wait for the executor when the quiet one's are approved.
    await untilSoMany(fleet, noisy, 'awaiting_approval', Math.min(NOISY, APPROVED_MAX));
    const runs = await ask(fleet, quiet, QUIET_RUNS);
    await untilSoMany(fleet, quiet, 'awaiting_approval', QUIET_RUNS);
    const approved = await waitingForApproval(fleet, noisy, APPROVED_MAX);
    await withoutAny(fleet, 'executor', () => approveAll(noisy, approved));
    const completed_ms = await completed(fleet, quiet, runs);
    const undone = approved.length + WARM_RUNS - ((await statesOf(fleet, noisy)).completed ?? 0);
    report(
      backend,
      'approved → completed',
      alone.completed_ms,
      completed_ms,
      `${undone} of ${approved.length} approved`,
    );
  } finally {
    await fleet.stop();
  }
}

/** Ten runs of a tenant, from the request to the end. */
async function tenOf(fleet: Fleet, tenant: Tenant): Promise<Figures> {
  const startedAt = performance.now();
  const runs = await ask(fleet, tenant, QUIET_RUNS);
  await untilSoMany(fleet, tenant, 'awaiting_approval', QUIET_RUNS);
  const awaiting_ms = performance.now() - startedAt;
  return { awaiting_ms, completed_ms: await completed(fleet, tenant, runs) };
}

/** Approves runs and waits for their completion. @returns milliseconds. */
async function completed(fleet: Fleet, tenant: Tenant, runs: Awaited<ReturnType<typeof ask>>): Promise<number> {
  const before = (await statesOf(fleet, tenant)).completed ?? 0;
  const startedAt = performance.now();
  await approveAll(tenant, runs);
  await untilSoMany(fleet, tenant, 'completed', before + runs.length);
  return performance.now() - startedAt;
}

async function untilCompleted(fleet: Fleet, tenant: Tenant, runs: number): Promise<void> {
  const asked = await ask(fleet, tenant, runs);
  await untilSoMany(fleet, tenant, 'awaiting_approval', runs);
  await completed(fleet, tenant, asked);
}

function report(backend: string, what: string, aloneMs: number, besideMs: number, waiting: string): void {
  if (besideMs > FACTOR * aloneMs + AND_MS) unfair = true;
  const seconds = (ms: number) => (ms / 1_000).toFixed(2);
  console.log(
    `| ${backend} | ${what} | ${seconds(aloneMs)} | ${seconds(besideMs)} | ${(besideMs / aloneMs).toFixed(1)} | ${waiting} |`,
  );
}

async function emptyDatabase(): Promise<string> {
  const { default: connectTo } = await import('postgres');
  const sql = connectTo(postgres.url, { max: 1 });
  const name = `fair_${randomUUID().slice(0, 8)}`;
  await sql`create database ${sql(name)}`;
  await sql.end();
  const url = new URL(postgres.url);
  url.pathname = `/${name}`;
  return url.href;
}
