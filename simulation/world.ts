import {
  type Durations,
  type FailpointName,
  ID_PREFIXES,
  type Ids,
  LIMITS,
  type Limits,
  PROFILES,
  type RunId,
  retryReserveMs,
  type Stage,
} from '@counterstamp/manifest-core';
import { Dice } from './dice.ts';
import { type CommitListener, MemoryStore, type StoreRule } from './memory-store.ts';
import type { ProcessLife } from './process-life.ts';
import { Provider, type ProviderKind } from './provider.ts';
import type { PortRule } from './rules.ts';
import { Scheduler, type Task } from './scheduler.ts';

/** Where virtual time begins. */
export const START_MS = Date.parse('2026-09-30T14:00:00.000Z');

/**
 * Durations that worlds have. `quick` is the fast profile. At a `tardy` target a request may still be under way when others begin to look, so
 * that what the protocol says about waiting matters more often.
 */
export const PACES = {
  quick: PROFILES.fast,
  tardy: { ...PROFILES.fast, pause_ms: 1_500, provider_ms: 6_000 },
} as const satisfies Record<string, Durations>;
export type Pace = keyof typeof PACES;
export const SIMULATION_LIMITS: Limits = LIMITS;
/** How long the provider `pending` may undo a settled effect: no double of the audit interval, so that only the last look sees the end of it. */
export const REVERSAL_HORIZON_MS = 60_000;
/** Longest visibility lag of the eventual look-up (its contract's V), in milliseconds. */
export const VISIBILITY_MS = 1_000;

export interface Message {
  id: number;
  stage: Stage;
  hint: { run_id: RunId; revision: number };
}

export const COUNTED = [
  'kills',
  'pauses',
  'sleeps',
  'hints_dropped',
  'hints_doubled',
  'queue_wipes',
  'outages',
  'ambiguous_commits',
  'calls_lost',
  'answers_lost',
  'requests_doubled',
  'leases_lost',
  'clock_jumps',
  'sends',
  'effects',
  'commits',
  'stale_swaps',
  'steps',
] as const;
export type Counts = Record<(typeof COUNTED)[number], number>;

/** Assumptions of protocol.md section 1 that hold in this world unless a test takes one away. */
export interface Assumptions {
  /** A1: the pause between deadline check and write is at most Z. */
  a1: boolean;
}

/** Everything that is not a worker: time, database, network, provider, queue; and what is counted and written down about it. */
export class World {
  readonly scheduler: Scheduler;
  readonly store: MemoryStore;
  readonly provider: Provider;
  readonly queue: Message[] = [];
  readonly lives: ProcessLife[] = [];
  readonly ids: Ids;
  readonly portRules: ReadonlySet<PortRule>;
  readonly assumptions: Assumptions;
  readonly durations: Durations;
  /** Declared retention of the providers that forget keys: room for a retry once absence is settled, and not for much more. */
  readonly retentionMs: number;
  /** How late the slow provider applies a request: beyond P, and within what the retention margin still covers (D + Z + 2P). */
  readonly slowMs: number;
  readonly counts: Counts = Object.fromEntries(COUNTED.map((name) => [name, 0])) as Counts;
  readonly failpoints = new Map<FailpointName, number>();
  readonly trace: string[] = [];
  /** Something that no worker may ever do: an exception that the database answers only to a bug. */
  readonly faults: string[] = [];
  /** The dice of the present step. */
  dice: Dice = new Dice(0, 0);
  /** While the database answers nobody: each call is lost, on its way there or on its way back. */
  databaseAway = false;
  /** While the queue takes no hint. */
  queueAway = false;
  /** Whether anything may go wrong at present. */
  wild = false;
  #messages = 0;
  #drawn = 0;

  constructor(options: {
    seed: number;
    kind: ProviderKind;
    portRules: ReadonlySet<PortRule>;
    storeRules: readonly StoreRule[];
    assumptions: Assumptions;
    durations: Durations;
    onCommit: CommitListener;
  }) {
    this.scheduler = new Scheduler(START_MS);
    this.portRules = options.portRules;
    this.assumptions = options.assumptions;
    this.durations = options.durations;
    const { call_deadline_ms, pause_ms, provider_ms } = options.durations;
    this.retentionMs = 3 * retryReserveMs(options.durations) + 900;
    this.slowMs = call_deadline_ms + pause_ms + 2 * provider_ms;
    const nowMs = () => this.scheduler.nowMs;
    this.store = new MemoryStore({ nowMs, without: options.storeRules, onCommit: options.onCommit });
    this.provider = new Provider(options.kind, nowMs, this.retentionMs);
    const tag = (options.seed >>> 0).toString(16).padStart(8, '0');
    const draw = () => (++this.#drawn).toString(16).padStart(12, '0');
    this.ids = {
      uuid: () => `${tag}-0000-7000-8000-${draw()}`,
      id: (kind) => `${ID_PREFIXES[kind]}_${tag}-0000-7000-8000-${draw()}`,
      salt: () => `${tag}${tag}0000${draw()}`,
    };
  }

  /** An instant up to `withinMs` from now, where things are slow; most of them are not. */
  sometimesLater(probability: number, withinMs: number): number {
    const { nowMs } = this.scheduler;
    return this.wild && this.dice.chance(probability) ? nowMs + this.dice.int(withinMs) : nowMs;
  }

  lacks(rule: PortRule): boolean {
    return this.portRules.has(rule);
  }

  note(line: string): void {
    this.trace.push(`${String(this.scheduler.nowMs - START_MS).padStart(7)}  ${line}`);
  }

  send(stage: Stage, hint: Message['hint']): void {
    this.queue.push({ id: ++this.#messages, stage, hint });
  }

  /** Waits for its turn; never ends for a process that has been killed. */
  step(life: ProcessLife, name: string): Promise<void> {
    return new Promise((resolve) => {
      if (life.alive) this.scheduler.add({ name: `${life.name} ${name}`, owner: life, run: () => resolve() });
    });
  }

  /**
   * SIGKILL. What it had under way with the database or on the network goes on without it, or does not: `orphans` says which calls are left.
   */
  kill(life: ProcessLife, orphans: (task: Task) => boolean): void {
    life.alive = false;
    life.blockedBy = null;
    this.counts.kills += 1;
    for (const task of [...this.scheduler.tasks])
      if (task.owner === life || (task.client === life && !orphans(task))) this.scheduler.remove(task);
  }

  /** "run" for the trace: in the order of creation. */
  nameOf(run_id: RunId): string {
    let n = 1;
    for (const known of this.store.runs.keys()) {
      if (known === run_id) return `r${n}`;
      n += 1;
    }
    return 'r?';
  }
}
