import type { Service } from '@counterstamp/manifest-core';
import type { Task } from './scheduler.ts';

export type WorkerService = Exclude<Service, 'api'>;

/** One life of a worker process: killed, it never comes back; another life takes its place. */
export class ProcessLife {
  readonly name: string;
  readonly service: WorkerService;
  readonly instance_id: string;
  alive = true;
  /** Stopped (SIGSTOP): nothing of it happens, its timers go on. */
  paused = false;
  /** The one thing that it does next, with nothing in between: the write after the deadline check. */
  blockedBy: Task | null = null;
  /** Hints that it works on. */
  jobs = 0;
  sweeping = false;
  lastSweepMs = Number.NEGATIVE_INFINITY;
  lastBeatMs = Number.NEGATIVE_INFINITY;
  /** How far its wall clock is off, and how long its monotonic clock stood still. */
  wallSkewMs = 0;
  monotonicLostMs = 0;
  /** While it sleeps with its virtual machine, its monotonic clock stands still. */
  asleepSinceMs: number | null = null;

  constructor(service: WorkerService, n: number) {
    this.service = service;
    this.name = `${service}-${n}`;
    this.instance_id = `ins_${service}_${n}`;
  }

  get runs(): boolean {
    return this.alive && !this.paused;
  }
}

/** What a killed process throws into its own synchronous code; every port of it answers nothing any more. */
export class Killed extends Error {
  override readonly name = 'Killed';
}
