import { randomUUID } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { chmod, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import type { RunId, Service } from '@counterstamp/manifest-core';
import { connect, type Sql, serviceUrl } from '@counterstamp/manifest-store';
import { Redis } from 'ioredis';
import connectTo from 'postgres';
import { type OwnRedis, startOwnRedis } from '../packages/stage-queue/testing/own-redis.ts';
import { type Fleet, poll, prepareFleetDatabase, type ServiceProcess, startFleet } from '../testing/fleet.ts';
import { startOrphanGuard } from '../testing/orphan-guard.ts';
import { startTcpProxy, type TcpProxy } from '../testing/tcp-proxy.ts';
import type { Backend } from './backends.ts';
import { type FailpointFolder, openFailpointFolder } from './failpoint-folder.ts';
import { type OwnPostgres, startOwnPostgres } from './own-postgres.ts';

/** Services of which chaos runs two processes each, so that one can take over from the other. The first api is the driver's own. */
const SERVICES = ['api', 'preflight', 'executor', 'verifier', 'reconciler'] as const;
const ACCESS = { rolePrefix: 'cs_chaos_', secret: 'chaos-secret-of-this-run-only' };

/** A line of a process's log. */
export interface LogLine {
  message?: string;
  run_id?: string;
  instance_id?: string;
  [member: string]: unknown;
}

/** A whole fleet that may be hurt: its own Postgres and Redis, two processes of each service, and a proxy on each way that is cut. */
export interface ChaosFleet {
  readonly backend: Backend;
  readonly fleet: Fleet;
  readonly postgres: OwnPostgres;
  readonly points: FailpointFolder;
  /** Between all services and the providers. */
  readonly provider: TcpProxy;
  /** Between the executors and their database. */
  readonly executorDb: TcpProxy;
  /** Kills so far, by signal or failpoint. */
  readonly kills: { count: number };
  /** Living processes of a service, oldest first. */
  living(service: Service): ServiceProcess[];
  byPid(pid: number): ServiceProcess;
  /** The api that cells may hurt; the driver asks through the other one. */
  victimApi(): ServiceProcess;
  kill(process: ServiceProcess): Promise<void>;
  /** Starts processes until every service has its two again. */
  refill(): Promise<void>;
  /** Processes that ended by a bug of their own (exit 70) since it was last asked, as sentences. */
  crashes(): string[];
  /** See `OwnPostgres.restart`. */
  restartPostgres: OwnPostgres['restart'];
  /** The owner's connections; others after each restart, since a query on one that died may never be answered. */
  sql(): Sql;
  /** Every hint that waits is gone: FLUSHALL and a Redis started anew, or BullMQ's tables in Postgres emptied. */
  wipeQueue(restart?: boolean): Promise<void>;
  /** Redis away until the returned function is called. */
  redisAway(): Promise<() => Promise<void>>;
  /** A file: while it is there, nobody knows the provider's name. Only with `names`. */
  readonly dnsOutage: string | undefined;
  /** The process's log so far, without lines that are no JSON. */
  log(process: ServiceProcess): LogLine[];
  stop(): Promise<void>;
}

export interface ChaosFleetOptions {
  backend: Backend;
  /** Added to every process. */
  env?: Record<string, string>;
  /** The provider is asked for by a name, which may become unknown. */
  names?: boolean;
}

export async function startChaosFleet({ backend, env = {}, names = false }: ChaosFleetOptions): Promise<ChaosFleet> {
  const folder = await mkdtemp(path.join(tmpdir(), 'cs-chaos-'));
  await chmod(folder, 0o711); // Postgres runs as another user when we are root, and must pass through.
  const guard = startOrphanGuard(folder);
  const closers: (() => Promise<unknown>)[] = [];
  const stop = async (): Promise<void> => {
    for (const close of closers.reverse()) await close().catch(() => undefined);
    await rm(folder, { recursive: true, force: true });
    guard.dismiss();
  };
  try {
    const postgres = await startOwnPostgres(folder);
    closers.push(() => postgres.stop());
    const watch = () => writeFile(path.join(folder, `postgres${guard.pidFileEnding}`), String(postgres.pid()));
    await watch();
    const redis: OwnRedis | undefined = backend === 'redis' ? await startOwnRedis() : undefined;
    if (redis !== undefined) closers.push(() => redis.dispose());

    const ownerUrl = await makeDatabase(postgres.url);
    await prepareFleetDatabase(ownerUrl, ACCESS);
    await makeClockHoldable(ownerUrl);

    const points = await openFailpointFolder(path.join(folder, 'failpoints'));
    const executorDb = await startTcpProxy({ host: '127.0.0.1', port: postgres.port });
    closers.push(() => executorDb.close());
    // The sandbox starts with the fleet; nobody asks it before there is a run.
    const sandboxAt = { host: '127.0.0.1', port: 0 };
    const provider = await startTcpProxy(sandboxAt);
    closers.push(() => provider.close());
    const executorUrl = new URL(serviceUrl(ownerUrl, 'executor', ACCESS.secret, ACCESS.rolePrefix));
    executorUrl.port = String(executorDb.port);

    const dnsOutage = names ? path.join(folder, 'dns-outage') : undefined;
    const providerUrl = `http://${names ? PROVIDER_NAME : '127.0.0.1'}:${provider.port}`;
    const fleet = await startFleet({
      ownerUrl,
      ...ACCESS,
      ...(redis === undefined ? {} : { redisUrl: redis.url }),
      env: {
        COUNTERSTAMP_FAILPOINTS: points.setting,
        COUNTERSTAMP_EXECUTOR_DATABASE_URL: executorUrl.href,
        COUNTERSTAMP_PAYMENTS_URL: providerUrl,
        COUNTERSTAMP_CREDITS_URL: providerUrl,
        // The sandbox shares the driver's thread and this machine: a read that is only slow must not end runs.
        COUNTERSTAMP_READ_TIMEOUT_MS: '2500',
        LOG_LEVEL: 'debug',
        ...(dnsOutage === undefined ? {} : asksNames(dnsOutage)),
        ...env,
      },
    });
    closers.push(() => fleet.stop());
    sandboxAt.port = fleet.sandbox.port;

    let owner = connect(ownerUrl, { max: 3, applicationName: 'chaos-owner' });
    const drop = () => owner.end({ timeout: 0 }).catch(() => undefined);
    closers.push(drop);
    const kills = { count: 0 };
    const reported = new Set<ServiceProcess>();
    const isLiving = ({ child }: ServiceProcess) => child.exitCode === null && child.signalCode === null;
    const living = (service: Service) =>
      fleet.processes.filter((started) => started.service === service && isLiving(started));
    const fill = async () => {
      for (const service of SERVICES) {
        const missing = 2 - living(service).length;
        await Promise.all(Array.from({ length: Math.max(0, missing) }, () => fleet.start(service)));
      }
    };
    // A process that meets a database that is just away ends, as it should; its supervisor tries again.
    const refill = () => fill().catch(fill).catch(fill);
    await refill();
    closers.push(async () => {
      // A stopped process does not hear SIGTERM.
      for (const { child } of fleet.processes) child.kill('SIGCONT');
    });

    return {
      backend,
      fleet,
      postgres,
      points,
      provider,
      executorDb,
      kills,
      living,
      byPid(pid) {
        const found = fleet.processes.find(({ child }) => child.pid === pid);
        if (found === undefined) throw new Error(`${pid} is no process of this fleet`);
        return found;
      },
      victimApi() {
        const [, victim] = living('api');
        if (victim === undefined) throw new Error('there is no second api');
        return victim;
      },
      async kill(victim) {
        kills.count += 1;
        await fleet.end(victim, 'SIGKILL');
      },
      refill,
      sql: () => owner,
      crashes() {
        const crashed = fleet.processes.filter((each) => each.child.exitCode === EXIT_BUG && !reported.has(each));
        for (const each of crashed) reported.add(each);
        return crashed.map((each) => `${each.service} ${each.child.pid} ended with ${EXIT_BUG}: ${lastWords(each)}`);
      },
      dnsOutage,
      async restartPostgres(options) {
        const away = await postgres.restart(options);
        await drop();
        owner = connect(ownerUrl, { max: 3, applicationName: 'chaos-owner' });
        await watch();
        return away;
      },
      async wipeQueue(restart = true) {
        if (redis === undefined) {
          await owner`delete from bullmq.job`;
          return;
        }
        const client = new Redis(redis.url, { maxRetriesPerRequest: 1 });
        client.on('error', () => undefined);
        try {
          await client.flushall();
        } finally {
          client.disconnect();
        }
        if (!restart) return;
        await redis.kill();
        await redis.start();
      },
      async redisAway() {
        if (redis === undefined) throw new Error('this fleet has no Redis');
        await redis.kill();
        return () => redis.start();
      },
      log: (started) => readFileSync(started.log, 'utf8').split('\n').flatMap(parseLine),
      stop,
    };
  } catch (error) {
    await stop();
    throw error;
  }
}

const PROVIDER_NAME = 'provider.chaos.test';

function asksNames(outage: string): Record<string, string> {
  const preload = fileURLToPath(new URL('preload/dns-outage.mjs', import.meta.url));
  return { NODE_OPTIONS: `--import=${preload}`, CHAOS_DNS_NAME: PROVIDER_NAME, CHAOS_DNS_OUTAGE: outage };
}

/** sysexits.h EX_SOFTWARE: an unhandled rejection or exception. */
const EXIT_BUG = 70;

function lastWords(started: ServiceProcess): string {
  return readFileSync(started.log, 'utf8').trim().split('\n').at(-1)?.slice(0, 600) ?? '';
}

function parseLine(line: string): LogLine[] {
  try {
    return [JSON.parse(line) as LogLine];
  } catch {
    return [];
  }
}

async function makeDatabase(serverUrl: string): Promise<string> {
  const sql = connectTo(serverUrl, { max: 1, onnotice: () => undefined });
  const name = `chaos_${randomUUID().slice(0, 8)}`;
  await sql`create database ${sql(name)}`;
  await sql.end();
  const url = new URL(serverUrl);
  url.pathname = `/${name}`;
  return url.href;
}

/** Any number that nothing else locks. */
const CLOCK_LOCK = 7_311_964;

/** The database's clock, as tests may replace it: while a hold is set, `commit_dispatch` waits in it, its row lock taken. */
async function makeClockHoldable(ownerUrl: string): Promise<void> {
  const sql = connectTo(ownerUrl, { max: 1, onnotice: () => undefined });
  await sql.unsafe(`
    create schema chaos;
    create table chaos.clock_hold (held boolean primary key);
    create or replace function cs.clock() returns timestamptz language plpgsql volatile as $$
    begin
      if current_query() like '%cs.commit_dispatch(%' then
        if exists (select from chaos.clock_hold) then perform pg_advisory_xact_lock_shared(${CLOCK_LOCK}); end if;
      end if;
      return clock_timestamp();
    end $$;`);
  await sql.end();
}

/** A dispatch that stands between its row lock and its clock. */
export interface HeldDispatch {
  /** Waits until a backend stands there. */
  reached(boundMs?: number): Promise<void>;
  release(): Promise<void>;
}

/** From now on the next dispatch waits inside the function, after its row lock, until it is released: at most 5 s, the login's lock timeout. */
export async function holdDispatchClock({ sql, postgres, points }: ChaosFleet): Promise<HeldDispatch> {
  const [row] = await sql()<{ name: string }[]>`select current_database() as name`;
  const url = new URL(postgres.url);
  url.pathname = `/${row?.name}`;
  const holder = connectTo(url.href, { max: 1, idle_timeout: 0, onnotice: () => undefined });
  await holder`select pg_advisory_lock(${CLOCK_LOCK})`;
  await sql()`insert into chaos.clock_hold values (true)`;
  const waiting = async () => {
    const [found] = await sql()<{ n: number }[]>`
      select count(*)::int as n from pg_locks where locktype = 'advisory' and not granted and objid = ${CLOCK_LOCK}
         and database = (select oid from pg_database where datname = current_database())`;
    return (found?.n ?? 0) > 0;
  };
  return {
    async reached(boundMs = 20_000) {
      await poll(waiting, boundMs, 'no dispatch stands between its lock and its clock');
      points.count('dispatch.row-locked');
    },
    async release() {
      await holder.end({ timeout: 1 });
      // After a restart of Postgres the first statement may still meet the old connection.
      await poll(
        async () => {
          await sql()`delete from chaos.clock_hold`;
          return true;
        },
        10_000,
        'the clock is still held',
      );
    },
  };
}

/** Asks the sandbox's admin side. */
export async function admin<T>(fleet: Fleet, method: string, at: string, body?: unknown): Promise<T> {
  const response = await fetch(`${fleet.sandbox.url}${at}`, {
    method,
    ...(body === undefined ? {} : { headers: { 'content-type': 'application/json' }, body: JSON.stringify(body) }),
  });
  if (!response.ok) throw new Error(`${method} ${at}: ${response.status} ${await response.text()}`);
  return (await response.json()) as T;
}

/** Whether a process is stopped by a signal. Linux only. */
export function isStopped(pid: number): boolean {
  return readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1]?.startsWith('T') === true;
}

/** What a process logged about a run. */
export function linesOf(chaos: ChaosFleet, process: ServiceProcess, run_id: RunId): LogLine[] {
  return chaos.log(process).filter((line) => line.run_id === run_id);
}
