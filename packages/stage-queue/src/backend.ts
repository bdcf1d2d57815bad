import type { Hint } from './hint.ts';
import type { ProcessJob, WorkerHandle } from './stage-worker.ts';
import type { Lane, Stage } from './stages.ts';

/** What a worker tells its consumer. */
export interface WorkerEvents {
  process: ProcessJob;
  /** A job was taken; `process` follows with the same object. */
  onTaken: (job: object) => void;
  /** A job's worker fell silent, and this one noticed. */
  onStalled: () => void;
  onError: (error: unknown) => void;
}

/** Hints of one stage, for whoever watches. */
export interface StageBacklog {
  waiting: number;
  active: number;
  /** Milliseconds that the oldest waiting hint has been there, by this process's clock; 0: none waits. */
  oldest_age_ms: number;
}

export interface WorkerSettings {
  concurrency: number;
  /** Milliseconds after which a job whose worker is silent counts as stalled. */
  lockMs: number;
  /** How often a stalled job is run again: 0 or 1. */
  stalledMax: number;
}

/** The connections of one consumer. `why` says which one is down. */
export type Connected = { up: true } | { up: false; why: string };

export interface StageConsumption {
  worker: WorkerHandle;
  connected(): Connected;
}

/** One backend of BullMQ behind what this package needs of it. No method but `add`, `waiting` and `ping` may take long. */
export interface QueueBackend {
  /** Resolves when the first attempt to connect has ended, well or not; it never rejects. */
  readonly opened: Promise<void>;
  /** Whether a hint sent now has a connection to leave on. */
  ready(): boolean;
  /** Drops a connection for hints that does not answer, so that what waits on it fails now instead of later. */
  renew(): void;
  /** Adds a hint under `jobId`; does nothing while a job of that id waits or runs. Rejects when the backend does. */
  add(stage: Stage, jobId: string, hint: Hint, lane: Lane): Promise<unknown>;
  /** Hints of a stage that nobody has taken yet, whatever their lane. */
  waiting(stage: Stage): Promise<number>;
  /** What waits and what is worked on. */
  backlog(stage: Stage): Promise<StageBacklog>;
  /** One round trip on the connection for hints. */
  ping(): Promise<unknown>;
  work(stage: Stage, settings: WorkerSettings, events: WorkerEvents): StageConsumption;
  /** Drops every connection. Consumers have been drained or abandoned before. */
  close(): Promise<void>;
}

/**
 * One attempt, and nothing kept: a finished or failed job that stays would swallow a later hint of the same id without
 * any error.
 */
export const JOB_OPTIONS = { attempts: 1, removeOnComplete: true, removeOnFail: true } as const;

/**
 * A lane is BullMQ's priority: 0 is a plain list, every other comes after it in order. BullMQ counts the two apart, so all that waits is both.
 */
export const WAITING = ['waiting', 'prioritized'] as const;

/** Entries of BullMQ's own event stream per queue; nobody reads it. BullMQ's default is 10,000. */
export const EVENTS_KEPT_MAX = 100;

/** Milliseconds before BullMQ repeats a step that met a refused connection. Its default of 15 s idles a whole fleet. */
export const RUN_RETRY_MS = 1_000;
