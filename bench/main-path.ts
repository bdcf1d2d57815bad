import { spawn } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { cpus, release, tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { freePort, startEmbeddedPostgres } from '@counterstamp/embedded-postgres';
import { Queue, Worker } from 'bullmq';
import { type Fleet, poll, prepareFleetDatabase, startFleet } from '../testing/fleet.ts';
import { cpuMs, quantile, rssMb, treeCpuMs } from './measure.ts';

const { values } = parseArgs({
  options: {
    runs: { type: 'string', default: '500' },
    idle: { type: 'string', default: '10' },
    systems: { type: 'string', default: 'redis,postgres,bare' },
    help: { type: 'boolean', default: false },
  },
});
if (values.help) {
  console.log(
    'npm run bench -- [--runs 500] [--idle SECONDS]\nThe main path on both queue backends, beside a bare BullMQ chain, in one run. Sends only to this machine.',
  );
  process.exit(0);
}
const RUNS = Number(values.runs);
const IDLE_S = Number(values.idle);
/** Requests under way at a time from the driver. */
const DRIVERS = 16;
const ACCESS = { rolePrefix: 'cs_bench_', secret: 'bench-secret-of-this-run-only' };

interface Result {
  system: string;
  runs_s: number;
  p50_ms: number;
  p99_ms: number;
  cpu_ms_per_run: number;
  cpu_by: Record<string, number>;
  commits_per_run: number | null;
  wal_kb_per_run: number | null;
  idle: string;
}

const folder = await mkdtemp(join(tmpdir(), 'counterstamp-bench-'));
const postgres = await startEmbeddedPostgres({ dir: join(folder, 'postgres'), durable: true });
const redisPort = await freePort();
const redis = spawn(
  'redis-server',
  ['--port', String(redisPort), '--bind', '127.0.0.1', '--save', '', '--appendonly', 'no', '--dir', folder],
  { stdio: 'ignore' },
);
const redisUrl = `redis://127.0.0.1:${redisPort}`;
const results: Result[] = [];
try {
  const systems = new Set(values.systems.split(','));
  if (systems.has('redis')) results.push(await benchFleet('Counterstamp on Redis', redisUrl));
  if (systems.has('postgres')) results.push(await benchFleet('Counterstamp on Postgres alone', undefined));
  if (systems.has('bare')) results.push(await benchBareChain());
} finally {
  redis.kill('SIGTERM');
  await Promise.all([once(redis, 'exit'), postgres.stop()]);
  await rm(folder, { recursive: true, force: true });
}

console.log(
  `\n${RUNS} runs at once, ${cpus().length} cores, Linux ${release()}, Node ${process.versions.node}, PostgreSQL 18 (fsync on), ${new Date().toISOString().slice(0, 10)}\n`,
);
console.log(
  '| system | runs/s | p50 / p99 ms | CPU ms per run | of it | commits per run | WAL KB per run | idle |\n|---|---|---|---|---|---|---|---|',
);
for (const r of results) {
  const by = Object.entries(r.cpu_by)
    .map(([name, ms]) => `${name} ${ms.toFixed(1)}`)
    .join(', ');
  console.log(
    `| ${r.system} | ${r.runs_s.toFixed(0)} | ${r.p50_ms.toFixed(0)} / ${r.p99_ms.toFixed(0)} | ${r.cpu_ms_per_run.toFixed(1)} | ${by} | ${r.commits_per_run?.toFixed(1) ?? '–'} | ${r.wal_kb_per_run?.toFixed(1) ?? '–'} | ${r.idle} |`,
  );
}

async function benchFleet(system: string, redis_url: string | undefined): Promise<Result> {
  const ownerUrl = await emptyDatabase();
  await prepareFleetDatabase(ownerUrl, ACCESS);
  const fleet = await startFleet({
    ownerUrl,
    ...ACCESS,
    ...(redis_url === undefined ? {} : { redisUrl: redis_url }),
    env: { COUNTERSTAMP_PROFILE: 'production', COUNTERSTAMP_CONCURRENCY: '16' },
  });
  try {
    await drive(fleet, 50); // Warm: prepared statements, JIT.
    const idle = await idleFigures(fleet);
    const before = await counters(fleet);
    const startedAt = performance.now();
    const latencies = await drive(fleet, RUNS);
    const seconds = (performance.now() - startedAt) / 1_000;
    const after = await counters(fleet);
    const cpu_by = Object.fromEntries(
      Object.entries(after.cpu).map(([name, ms]) => [name, (ms - (before.cpu[name] ?? 0)) / RUNS]),
    );
    const events = await fleet.owner<{ n: number }[]>`select count(*)::int as n from cs.run_event`;
    return {
      system,
      runs_s: RUNS / seconds,
      p50_ms: quantile(latencies, 0.5),
      p99_ms: quantile(latencies, 0.99),
      cpu_ms_per_run: Object.values(cpu_by).reduce((sum, ms) => sum + ms, 0),
      cpu_by,
      commits_per_run: (events[0]?.n ?? 0) / (RUNS + 50),
      wal_kb_per_run: (after.wal - before.wal) / 1_024 / RUNS,
      idle,
    };
  } finally {
    await fleet.stop();
  }
}

/** Creates, approves as soon as each waits, and waits for completion. @returns milliseconds from create to completed, per run. */
async function drive(fleet: Fleet, runs: number): Promise<number[]> {
  const cases = await Promise.all(Array.from({ length: runs }, () => fleet.seed()));
  const latencies: number[] = [];
  const started = new Map<string, number>();
  const work = [...cases];
  const creating = Array.from({ length: DRIVERS }, async () => {
    for (let seeded = work.pop(); seeded !== undefined; seeded = work.pop()) {
      const at = performance.now();
      started.set(await fleet.request(seeded), at);
    }
  });
  const approved = new Set<string>();
  const approving = (async () => {
    while (approved.size < runs) {
      const page = await fleet.approver.listRuns({ state: 'awaiting_approval', limit: 200 });
      const waiting = page.runs.filter((run) => !approved.has(run.run_id));
      if (waiting.length === 0) await new Promise((resolve) => setTimeout(resolve, 20));
      for (let i = 0; i < waiting.length; i += DRIVERS) {
        await Promise.all(
          waiting.slice(i, i + DRIVERS).map(async (run) => {
            approved.add(run.run_id);
            await fleet.approve(run.run_id);
          }),
        );
      }
    }
  })();
  await Promise.all([...creating, approving]);
  const ids = JSON.stringify([...started.keys()]);
  // The database says when each run completed: asking the api for every run would be measured with it.
  await poll(
    async () => {
      const [row] = await fleet.owner<
        { n: number }[]
      >`select count(*)::int as n from cs.run where state = 'completed' and 'run_' || run_id in (select jsonb_array_elements_text(${ids}::text::jsonb))`;
      return row?.n === runs;
    },
    120_000,
    'not every run completed',
  );
  const rows = await fleet.owner<
    { ms: number }[]
  >`select extract(epoch from state_since - created_at)::float8 * 1000 as ms from cs.run where 'run_' || run_id in (select jsonb_array_elements_text(${ids}::text::jsonb))`;
  for (const row of rows) latencies.push(row.ms);
  return latencies;
}

async function counters(fleet: Fleet): Promise<{ cpu: Record<string, number>; wal: number }> {
  const [wal] = await fleet.owner<
    { bytes: number }[]
  >`select pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::float8 as bytes`;
  const cpu: Record<string, number> = {};
  for (const { service, child } of fleet.processes) cpu[service] = (cpu[service] ?? 0) + cpuMs(child.pid ?? 0);
  cpu.postgres = treeCpuMs(postgres.pid);
  cpu.redis = cpuMs(redis.pid ?? 0);
  return { cpu, wal: wal?.bytes ?? 0 };
}

/** Memory, CPU and statements of a fleet that has nothing to do. */
async function idleFigures(fleet: Fleet): Promise<string> {
  const statements = async () =>
    Number(
      (await fleet.owner`select xact_commit from pg_stat_database where datname = current_database()`)[0]
        ?.xact_commit ?? 0,
    );
  // Idle backends hand in their statistics within ten seconds: what the warm-up did must be counted before.
  await new Promise((resolve) => setTimeout(resolve, 12_000));
  const before = { at: performance.now(), xacts: await statements(), ...(await counters(fleet)) };
  await new Promise((resolve) => setTimeout(resolve, IDLE_S * 1_000));
  const after = { at: performance.now(), xacts: await statements(), ...(await counters(fleet)) };
  const seconds = (after.at - before.at) / 1_000;
  const cpu = Object.entries(after.cpu).reduce((sum, [name, ms]) => sum + ms - (before.cpu[name] ?? 0), 0);
  const rss = fleet.processes.map(({ service, child }) => `${service} ${rssMb(child.pid ?? 0)}`).join(', ');
  return `RSS MB: ${rss}; ${((after.xacts - before.xacts) / seconds).toFixed(1)} transactions/s; ${(cpu / seconds / 10).toFixed(1)} % of a core`;
}

/** Five no-op jobs in a row per run on the same Redis: what a queue alone costs, with no manifest, no approval and nothing durable. */
async function benchBareChain(): Promise<Result> {
  const STAGES = 5;
  const connection = { url: redisUrl, maxRetriesPerRequest: null };
  const queues = Array.from({ length: STAGES }, (_, i) => new Queue(`bare-${i}`, { connection }));
  const latencies: number[] = [];
  let done: () => void = () => undefined;
  const finished = new Promise<void>((resolve) => {
    done = resolve;
  });
  const workers = queues.map(
    (_, i) =>
      new Worker<{ at: number }>(
        `bare-${i}`,
        async (job) => {
          const next = queues[i + 1];
          if (next !== undefined) await next.add('hop', job.data, { removeOnComplete: true });
          else latencies.push(performance.now() - job.data.at);
          if (latencies.length === RUNS) done();
        },
        { connection, concurrency: 16 },
      ),
  );
  const before = { own: process.cpuUsage(), redis: cpuMs(redis.pid ?? 0) };
  const startedAt = performance.now();
  await Promise.all(
    Array.from({ length: RUNS }, () =>
      queues[0]?.add('hop', { at: performance.now(), id: randomUUID() }, { removeOnComplete: true }),
    ),
  );
  await finished;
  const seconds = (performance.now() - startedAt) / 1_000;
  const own = process.cpuUsage(before.own);
  const cpu_by = {
    process: (own.user + own.system) / 1_000 / RUNS,
    redis: (cpuMs(redis.pid ?? 0) - before.redis) / RUNS,
  };
  await Promise.all([...workers, ...queues].map((part) => part.close()));
  return {
    system: 'bare BullMQ chain of 5 (no manifest, not durable)',
    runs_s: RUNS / seconds,
    p50_ms: quantile(latencies, 0.5),
    p99_ms: quantile(latencies, 0.99),
    cpu_ms_per_run: cpu_by.process + cpu_by.redis,
    cpu_by,
    commits_per_run: null,
    wal_kb_per_run: null,
    idle: '–',
  };
}

async function emptyDatabase(): Promise<string> {
  const { default: connectTo } = await import('postgres');
  const sql = connectTo(postgres.url, { max: 1 });
  const name = `bench_${randomUUID().slice(0, 8)}`;
  await sql`create database ${sql(name)}`;
  await sql.end();
  const url = new URL(postgres.url);
  url.pathname = `/${name}`;
  return url.href;
}
