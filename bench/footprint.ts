import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { cpus, release, tmpdir } from 'node:os';
import path from 'node:path';
import { parseArgs } from 'node:util';
import { freePort, startEmbeddedPostgres } from '@counterstamp/embedded-postgres';
import connectTo from 'postgres';
import { type Fleet, poll, prepareFleetDatabase, startFleet } from '../testing/fleet.ts';
import { rssMb } from './measure.ts';

const { values } = parseArgs({
  options: {
    runs: { type: 'string', default: '1000' },
    backend: { type: 'string', default: 'both' },
    help: { type: 'boolean', default: false },
  },
});
if (values.help) {
  console.log(
    'npm run bench:footprint -- [--runs 1000] [--backend redis|postgres|both]\nWhat a fleet takes: memory and database connections per process, idle and under load, and disk per 1,000 runs. Sends only to this machine.',
  );
  process.exit(0);
}
const RUNS = Number(values.runs);
/** Requests under way at a time from the driver. */
const DRIVERS = 8;
const ACCESS = { rolePrefix: 'cs_bench_', secret: 'bench-secret-of-this-run-only' };

const folder = await mkdtemp(path.join(tmpdir(), 'cs-footprint-'));
const postgres = await startEmbeddedPostgres({ dir: path.join(folder, 'postgres'), durable: true });
try {
  if (values.backend !== 'postgres') await measure('Redis');
  if (values.backend !== 'redis') await measure('Postgres alone');
} finally {
  await postgres.stop();
  await rm(folder, { recursive: true, force: true });
}

async function measure(name: 'Redis' | 'Postgres alone'): Promise<void> {
  const redis = name === 'Redis' ? await startRedis() : undefined;
  const ownerUrl = await emptyDatabase(name === 'Redis' ? 'on_redis' : 'on_postgres');
  await prepareFleetDatabase(ownerUrl, ACCESS);
  const fleet = await startFleet({
    ownerUrl,
    ...ACCESS,
    ...(redis === undefined ? {} : { redisUrl: redis.url }),
    env: { COUNTERSTAMP_PROFILE: 'production' },
  });
  try {
    const idle = figures(fleet);
    const before = await size(fleet);
    const peak = new Map<string, number>();
    const watch = setInterval(() => {
      for (const { service, mb } of figures(fleet)) peak.set(service, Math.max(peak.get(service) ?? 0, mb));
    }, 200);
    const connections = new Map<string, number>();
    const count = setInterval(() => {
      void connectionsOf(fleet).then((rows) => {
        for (const { name: who, n } of rows) connections.set(who, Math.max(connections.get(who) ?? 0, n));
      });
    }, 200);
    const startedAt = performance.now();
    await drive(fleet);
    const seconds = (performance.now() - startedAt) / 1_000;
    clearInterval(watch);
    clearInterval(count);
    const after = await size(fleet);
    console.log(
      `\n${name}: ${RUNS} runs in ${seconds.toFixed(0)} s, ${cpus().length} cores, Linux ${release()}, Node ${process.versions.node}, PostgreSQL 18, production profile, one process per service, ${new Date().toISOString().slice(0, 10)}\n`,
    );
    console.log('| process | RSS idle MB | RSS under load MB |\n|---|---|---|');
    for (const { service, mb } of idle) console.log(`| ${service} | ${mb} | ${peak.get(service)} |`);
    console.log('\n| connections to Postgres | at most |\n|---|---|');
    for (const [who, n] of [...connections].sort(([a], [b]) => a.localeCompare(b))) console.log(`| ${who} | ${n} |`);
    console.log(
      `\nDisk per 1,000 runs: ${mb(((after.bytes - before.bytes) * 1_000) / RUNS)} MB (database ${mb(before.bytes)} → ${mb(after.bytes)} MB); WAL ${mb(((after.wal - before.wal) * 1_000) / RUNS)} MB.`,
    );
    for (const { table, bytes } of await tables(fleet))
      console.log(`  ${table.padEnd(20)} ${((bytes * 1_000) / RUNS / 1_048_576).toFixed(2)} MB per 1,000 runs`);
    if (redis !== undefined) console.log(`Redis: ${rssMb(redis.pid)} MB resident.`);
  } finally {
    await fleet.stop();
    await redis?.stop();
  }
}

function mb(bytes: number): string {
  return (bytes / 1_048_576).toFixed(1);
}

function figures(fleet: Fleet): { service: string; mb: number }[] {
  return fleet.processes.map(({ service, child }) => ({ service, mb: rssMb(child.pid ?? 0) }));
}

async function connectionsOf(fleet: Fleet): Promise<{ name: string; n: number }[]> {
  return await fleet.owner<{ name: string; n: number }[]>`
    select usename || ' ' || application_name as name, count(*)::int as n from pg_stat_activity
     where datname = current_database() and usename like ${`${ACCESS.rolePrefix}%`} group by 1`;
}

async function size(fleet: Fleet): Promise<{ bytes: number; wal: number }> {
  // Space that an update left is used again: what counts is what stays after a vacuum.
  await fleet.owner.unsafe('vacuum analyze');
  const [row] = await fleet.owner<{ bytes: number; wal: number }[]>`
    select pg_database_size(current_database())::float8 as bytes, pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::float8 as wal`;
  return row ?? { bytes: 0, wal: 0 };
}

async function tables(fleet: Fleet): Promise<{ table: string; bytes: number }[]> {
  return await fleet.owner<{ table: string; bytes: number }[]>`
    select relname as table, pg_total_relation_size(c.oid)::float8 as bytes from pg_class c
     where relnamespace = 'cs'::regnamespace and relkind = 'r' order by 2 desc limit 8`;
}

async function drive(fleet: Fleet): Promise<void> {
  let left = RUNS;
  await Promise.all(
    Array.from({ length: DRIVERS }, async () => {
      while (left-- > 0) await fleet.approve(await fleet.request(await fleet.seed()));
    }),
  );
  await poll(
    async () => {
      const [row] = await fleet.owner<{ n: number }[]>`
        select count(*)::int as n from cs.run where state = 'completed'`;
      return row?.n === RUNS;
    },
    300_000,
    'not every run completed',
  );
}

async function startRedis(): Promise<{ url: string; pid: number; stop(): Promise<unknown> }> {
  const port = await freePort();
  const child = spawn(
    'redis-server',
    ['--port', String(port), '--bind', '127.0.0.1', '--save', '', '--appendonly', 'no', '--dir', folder],
    { stdio: 'ignore' },
  );
  return {
    url: `redis://127.0.0.1:${port}`,
    pid: child.pid ?? 0,
    stop: () => {
      const ended = once(child, 'exit');
      child.kill('SIGTERM');
      return ended;
    },
  };
}

async function emptyDatabase(name: string): Promise<string> {
  const sql = connectTo(postgres.url, { max: 1 });
  await sql`create database ${sql(name)}`;
  await sql.end();
  const url = new URL(postgres.url);
  url.pathname = `/${name}`;
  return url.href;
}
