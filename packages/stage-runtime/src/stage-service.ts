import { RunId, type Stage, type Store } from '@counterstamp/manifest-core';
import { createWorkerStore, StoreUnavailable } from '@counterstamp/manifest-store';
import type { Consumer } from '@counterstamp/stage-queue';
import { CONCURRENCY_DEFAULT, type ServiceConfig } from './config.ts';
import { untilStuck } from './consumer-watch.ts';
import { type Readiness, startHealthServer } from './health-server.ts';
import { startBeating } from './heartbeat.ts';
import { meteredStore } from './metered-store.ts';
import { databaseReadiness, type Running, type Shell } from './process-shell.ts';
import type { SessionLease } from './session-lease.ts';
import { createStageLoop, type Judge } from './stage-loop.ts';

/**
 * A killed worker's job swallows new hints of the same run until its lock runs out; within the stage lease, so that the sweeper's first
 * hint after it is taken. No longer than this, in milliseconds, and never below a second of event-loop pause.
 */
const LOCK_MAX_MS = 10_000;

/** A worker process: its stages' judges around the one loop, its consumers, its health. */
export interface StageService {
  store: Store;
  judges: Partial<Record<Stage, Judge>>;
  /** Held until the last work has ended. */
  lease?: SessionLease;
  /** Work beside the hints (the sweeper); ends when the signal aborts. */
  background?: (signal: AbortSignal) => Promise<void>;
}

/** The store under this instance's name; what it commits is counted. */
export function workerStore(shell: Shell<ServiceConfig>): Store {
  const { instance_id, ids, process, config } = shell;
  return meteredStore(
    createWorkerStore(shell.sql, { instance_id, ids, process, sealing: config.sealing }),
    shell.metrics,
  );
}

/** Starts consuming the service's stages and serving its health. */
export async function startStageService(shell: Shell<ServiceConfig>, service: StageService): Promise<Running> {
  const { config, log, metrics, clock, queue } = shell;
  const work = createStageLoop({
    store: service.store,
    queue: shell.hints,
    clock,
    failpoint: shell.failpoint,
    log,
    metrics,
    judges: service.judges,
  });
  const stages = Object.keys(service.judges) as Stage[];
  const consumers: Consumer[] = stages.map((stage) =>
    queue.consume(
      stage,
      async (hint, { waited_ms }) => {
        metrics.queueWait(stage, waited_ms);
        try {
          await work(stage, { run_id: RunId.parse(hint.run_id), revision: hint.revision });
        } catch (error) {
          // The run is untouched or its commit's outcome unknown; either way its wake_at brings it back.
          const message =
            error instanceof StoreUnavailable
              ? 'the database does not answer; the sweeper brings the run back'
              : 'the stage failed; the sweeper brings the run back';
          log.error({ err: error, run_id: hint.run_id, revision: hint.revision, stage }, message);
        }
      },
      {
        concurrency: config.concurrency[stage] ?? CONCURRENCY_DEFAULT,
        lockMs: Math.min(LOCK_MAX_MS, config.durations.stage_lease_ms - 1_000),
        onStalled: () => metrics.queueStalled(stage),
      },
    ),
  );

  const readiness = async (): Promise<Readiness> => {
    const [database, ...health] = await Promise.all([
      databaseReadiness(shell.sql, clock),
      ...consumers.map((consumer) => consumer.health()),
    ]);
    const why = [...database.why];
    for (const [index, consumer] of health.entries()) {
      if (!consumer.consuming) why.push(`${stages[index]}: ${consumer.why ?? 'not consuming'}`);
    }
    if (service.lease?.held === false) why.push('the session lease is not held');
    return { ready: why.length === 0, why };
  };
  metrics.onConsuming(() =>
    Promise.all(
      consumers.map(async (consumer) => ({ stage: consumer.stage, consuming: (await consumer.health()).consuming })),
    ),
  );
  if (service.lease !== undefined) {
    const { lease } = service;
    metrics.onSessionLease(() => lease.held);
  }
  const server = await startHealthServer({ readiness, metrics }, { host: config.http_host, port: config.http_port });

  const stop = new AbortController();
  const beats = startBeating(shell, () => service.store.beat());
  const background = service.background?.(stop.signal) ?? Promise.resolve();
  const watching = untilStuck({ consumers, queue, clock, stuckMs: config.durations.stuck_ms }, stop.signal);

  const told = () =>
    service.store.endInstance().catch((error: unknown) => {
      log.warn(
        { reason: error instanceof Error ? error.message : String(error) },
        'the end of this instance is not recorded',
      );
    });

  return {
    port: server.port,
    stuck: watching.then((why) => why ?? new Promise<never>(() => undefined)),
    async drain(graceMs) {
      stop.abort();
      const aside = Promise.race([Promise.all([background, beats.stop()]), clock.sleep(graceMs)]);
      const drained = await Promise.all(consumers.map((consumer) => consumer.drain(graceMs)));
      await aside;
      for (const [index, stage] of stages.entries()) {
        if (drained[index]?.drained === false)
          log.warn(
            { stage, grace_ms: graceMs },
            'current work did not end within the grace; the sweeper brings it back',
          );
      }
      // Only what has nothing under way any more may say so: a person's verdict can rest on it (protocol rule 20).
      if (drained.every((consumer) => consumer.drained)) await Promise.race([told(), clock.sleep(1_000)]);
      await service.lease?.release();
      await Promise.race([server.close(), clock.sleep(1_000)]);
    },
  };
}
