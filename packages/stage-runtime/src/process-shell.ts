import { hostname } from 'node:os';
import type { Clock, Failpoint, Ids, Queue } from '@counterstamp/manifest-core';
import {
  connect,
  type InstanceProcess,
  loginFault,
  observeStatements,
  openStatements,
  type Sql,
  sealingFault,
} from '@counterstamp/manifest-store';
import { checkRedis, type HintQueue, openHintQueue } from '@counterstamp/stage-queue';
import {
  createLogger,
  createMetrics,
  endTracing,
  inSpan,
  type Logger,
  type Metrics,
  startTracing,
} from '@counterstamp/telemetry';
import type { ConfigResult, Environment, ServiceConfig } from './config.ts';
import type { Readiness } from './health-server.ts';
import { systemClock } from './ports/clock.ts';
import { armedFailpoints, noFailpoints } from './ports/failpoint.ts';
import { randomIds } from './ports/ids.ts';
import { VERSION } from './version.ts';

/** sysexits.h EX_CONFIG: a supervisor must not restart what only a person can correct. */
export const EXIT_CONFIG = 78;

/** The last spans may take this long to be delivered, in milliseconds: a collector that hangs must not hold up a deployment. */
const SPANS_FLUSH_MS = 1_500;

/** sysexits.h EX_TEMPFAIL: the process cannot go on, and a new one may; a supervisor should start it. */
const EXIT_STUCK = 75;

/** What the shell hands to a service. */
export interface Shell<C> {
  config: C;
  instance_id: string;
  /** Where this process life runs, as its supervisor knows it. */
  process: InstanceProcess;
  log: Logger;
  metrics: Metrics;
  clock: Clock;
  ids: Ids;
  failpoint: Failpoint;
  sql: Sql;
  queue: HintQueue;
  /** The queue as the port that commits hint through. */
  hints: Queue;
}

/** A service that runs. */
export interface Running {
  /** Where its HTTP side listens. */
  port: number;
  /** Resolves with why when the process cannot do its work any more and a new one may. */
  stuck?: Promise<string>;
  /** Takes no new work and lets current work end, for at most `graceMs`. */
  drain(graceMs: number): Promise<void>;
}

/**
 * Runs one service as a process: configuration, log, signals, drain. SIGTERM and SIGINT: no new work, current work ends within the grace,
 * exit 0; a second signal ends at once. Wrong configuration: every problem on stderr, exit 78. Work that is stuck: the same drain, exit 75.
 */
export async function runService<C extends ServiceConfig>(
  parse: (env: Environment) => ConfigResult<C>,
  start: (shell: Shell<C>) => Promise<Running>,
  env: Environment,
): Promise<void> {
  // Listened for from the start: as PID 1 a process without a handler ignores its own SIGTERM.
  const signalled = firstSignal();
  const parsed = parse(env);
  if (!parsed.ok) {
    process.stderr.write(`configuration:\n${parsed.faults.map((fault) => `  - ${fault}`).join('\n')}\n`);
    process.exit(EXIT_CONFIG);
  }
  const { config } = parsed;
  const instance_id = randomIds.id('instance');
  const log = createLogger({ service: config.service, instance_id, level: config.log_level });
  const metrics = createMetrics(config.service, systemClock, { version: VERSION, backend: config.queue.backend }, log);
  observeStatements((ms, answered) => metrics.statement(ms, answered));
  metrics.onPool(() => ({ limit: config.database_connections, ...openStatements() }));
  if (config.tracing !== undefined)
    await startTracing(
      config.tracing,
      { service: config.service, instance_id },
      { log, monotonicMs: () => systemClock.monotonicMs() },
    );
  const sql = connect(config.database_url, {
    max: config.database_connections,
    applicationName: `counterstamp-${config.service}`,
  });
  const queue = openHintQueue(config.queue, {
    onError: (error, where) =>
      log.warn({ where, reason: error instanceof Error ? error.message : String(error) }, 'the queue reports an error'),
  });
  const shell: Shell<C> = {
    config,
    instance_id,
    process: { host: hostname(), pid: process.pid },
    log,
    metrics,
    clock: systemClock,
    ids: randomIds,
    failpoint: config.failpoints.size > 0 ? armedFailpoints(config.failpoints) : noFailpoints,
    sql,
    queue,
    hints: hintPort(queue, metrics, log),
  };

  process.on('unhandledRejection', (reason) => {
    log.fatal({ err: reason }, 'unhandled rejection: a bug; the process ends and the sweeper brings its runs back');
    process.exit(70);
  });
  process.on('uncaughtException', (error) => {
    log.fatal({ err: error }, 'uncaught exception: a bug; the process ends and the sweeper brings its runs back');
    process.exit(70);
  });

  const fault =
    (await queueFault(config)) ?? (await loginFault(sql, config.service)) ?? (await sealingFault(sql, config.sealing));
  if (fault !== undefined) {
    process.stderr.write(`configuration:\n  - ${fault}\n`);
    process.exit(EXIT_CONFIG);
  }

  let running: Running;
  try {
    running = await start(shell);
  } catch (error) {
    log.fatal({ err: error }, 'could not start');
    process.exit(1);
  }
  log.info(
    { port: running.port, backend: config.queue.backend, profile: config.profile, pid: process.pid },
    'ready for work',
  );

  const stuck = running.stuck?.then((why) => ({ why }));
  const end = await (stuck === undefined ? signalled : Promise.race([signalled, stuck]));
  process.once('SIGTERM', () => process.exit(130));
  process.once('SIGINT', () => process.exit(130));
  if (typeof end === 'string')
    log.info({ signal: end, grace_ms: config.durations.drain_grace_ms }, 'draining: no new work');
  else
    log.fatal(
      { reason: end.why, stuck_ms: config.durations.stuck_ms },
      'stuck: the queue answers and no hints are taken; the process ends, for a new one to be started',
    );
  await running.drain(config.durations.drain_grace_ms);
  await queue.close();
  await sql.end({ timeout: 2 });
  await Promise.race([endTracing(), systemClock.sleep(SPANS_FLUSH_MS)]);
  log.info('drained');
  process.exit(typeof end === 'string' ? 0 : EXIT_STUCK);
}

function firstSignal(): Promise<NodeJS.Signals> {
  return new Promise((resolve) => {
    process.once('SIGTERM', resolve);
    process.once('SIGINT', resolve);
  });
}

/** A Redis that may forget hints silently is refused; one that is away is waited for, since hints may be lost anyway. */
async function queueFault({ queue }: ServiceConfig): Promise<string | undefined> {
  if (queue.backend !== 'redis') return undefined;
  const check = await checkRedis(queue.url);
  return check.kind === 'refused' && check.code !== 'queue.redis_unreachable' ? check.message : undefined;
}

/** A hint that does not leave is normal: the run's `wake_at` brings the fleet back. */
function hintPort(queue: HintQueue, metrics: Metrics, log: Logger): Queue {
  return {
    async hint(stage, hint, lane) {
      const result = await inSpan('hint', { stage }, async (span) => {
        const sent = await queue.hint(stage, hint, lane);
        span.set({ result: sent === 'queued' ? 'queued' : 'unavailable' });
        return sent;
      });
      if (result === 'queued') {
        metrics.hint(stage, 'queued');
        return;
      }
      metrics.hint(stage, 'unavailable');
      log.warn(
        { run_id: hint.run_id, revision: hint.revision, stage, reason: result.reason },
        'hint not sent; the sweeper brings the run back',
      );
    },
  };
}

/** Whether the database answers within a second. */
export async function databaseReadiness(sql: Sql, clock: Clock): Promise<Readiness> {
  const query = sql`select 1`.then(
    () => undefined,
    (error: unknown) => (error instanceof Error ? error.message : String(error)),
  );
  const answer = await Promise.race([query, clock.sleep(1_000).then(() => 'no answer within 1 s')]);
  return answer === undefined ? { ready: true, why: [] } : { ready: false, why: [`database: ${answer}`] };
}
