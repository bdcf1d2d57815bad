import type { Clock, Queue, RunId, Service, Stage, Store } from '@counterstamp/manifest-core';
import { systemClock } from '@counterstamp/stage-runtime';
import { createLogger, createMetrics, type Logger, type Metrics } from '@counterstamp/telemetry';

/** A clock that stands still until the test or a sleep moves it. */
export interface HandClock extends Clock {
  advance(ms: number): void;
  /** Only the wall clock: what a suspended virtual machine does to the two. */
  advanceWall(ms: number): void;
  /** Every sleep that was asked for, in milliseconds. */
  readonly sleeps: number[];
}

export function handClock(startMs = Date.parse('2026-09-30T14:00:00.000Z')): HandClock {
  let monotonic = 0;
  let wall = startMs;
  const sleeps: number[] = [];
  return {
    monotonicMs: () => monotonic,
    wallMs: () => wall,
    sleep: (ms) => {
      sleeps.push(ms);
      monotonic += ms;
      wall += ms;
      return Promise.resolve();
    },
    after: () => {
      throw new Error('no timer is expected here');
    },
    advance: (ms) => {
      monotonic += ms;
      wall += ms;
    },
    advanceWall: (ms) => {
      wall += ms;
    },
    sleeps,
  };
}

/** A store of which a test scripts what it needs; every other call fails the test. */
export function scriptedStore(script: Partial<Store>): Store {
  const unexpected = (name: string) => () => Promise.reject(new Error(`unexpected call of ${name}`));
  return {
    load: unexpected('load'),
    commitStage: unexpected('commitStage'),
    commitDispatch: unexpected('commitDispatch'),
    appendEvidence: unexpected('appendEvidence'),
    defer: unexpected('defer'),
    claimDue: unexpected('claimDue'),
    audit: unexpected('audit'),
    beat: unexpected('beat'),
    endInstance: unexpected('endInstance'),
    ...script,
  };
}

/** A queue that writes down the hints it is given. */
export function recordingQueue(): Queue & { hints: { stage: Stage; run_id: RunId; revision: number }[] } {
  const hints: { stage: Stage; run_id: RunId; revision: number }[] = [];
  return {
    hints,
    hint: (stage, hint) => {
      hints.push({ stage, ...hint });
      return Promise.resolve();
    },
  };
}

/** A log whose lines a test can read. */
export function recordedLog(): { log: Logger; lines: Record<string, unknown>[] } {
  const lines: Record<string, unknown>[] = [];
  const log = createLogger(
    { service: 'test', instance_id: 'ins_1', level: 'debug' },
    { write: (line: string) => void lines.push(JSON.parse(line) as Record<string, unknown>) },
  );
  return { log, lines };
}

export function metricsOf(service: Service): Metrics {
  return createMetrics(service, systemClock, { version: 'test', backend: 'postgres' }, { warn: () => undefined });
}
