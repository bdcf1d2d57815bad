import type { ProcessLife } from './process-life.ts';

/** No instant at all: a task that may wait for ever, or never comes by itself. */
export const NEVER = Number.POSITIVE_INFINITY;

/**
 * Something that has been asked for and has not happened yet: an answer on its way, a timer, a request on the network. `owner`: whose process
 * must run for it to happen; null: the world's (the database, the network, the provider).
 */
export interface Task {
  readonly id: number;
  readonly name: string;
  readonly owner: ProcessLife | null;
  /** Whose call it is, where the world does the work: what a killed process may leave behind. */
  readonly client: ProcessLife | null;
  /** Happens at this virtual time or later. */
  readonly earliestMs: number;
  /** An assumption about the world (A1, A2, A3): time does not pass this instant without it. */
  readonly latestMs: number;
  /** What may go wrong with it, by name; `go` is always possible. */
  readonly faults: readonly string[];
  /** How much more often than other things it goes wrong. */
  readonly risk: number;
  /** How long it takes, in milliseconds: the database never does two things at one instant. */
  readonly tookMs: number;
  readonly run: (mode: string) => void;
}

export interface TaskDraft {
  name: string;
  owner?: ProcessLife | null;
  client?: ProcessLife | null;
  earliestMs?: number;
  latestMs?: number;
  faults?: readonly string[];
  risk?: number;
  tookMs?: number;
  run: (mode: string) => void;
}

/**
 * Virtual time and everything that is under way. Whoever awaits a port has a task here; nothing else ever waits, so after one task ran and the
 * microtasks are drained, the world stands still again until the next choice.
 */
export class Scheduler {
  nowMs: number;
  readonly tasks: Task[] = [];
  #nextId = 1;

  constructor(startMs: number) {
    this.nowMs = startMs;
  }

  add(draft: TaskDraft): Task {
    const task: Task = {
      id: this.#nextId++,
      name: draft.name,
      owner: draft.owner ?? null,
      client: draft.client ?? null,
      earliestMs: draft.earliestMs ?? this.nowMs,
      latestMs: draft.latestMs ?? NEVER,
      faults: draft.faults ?? [],
      risk: draft.risk ?? 1,
      tookMs: draft.tookMs ?? 0,
      run: draft.run,
    };
    this.tasks.push(task);
    return task;
  }

  remove(task: Task): void {
    const index = this.tasks.indexOf(task);
    if (index >= 0) this.tasks.splice(index, 1);
  }

  /** Whether it could happen now. */
  isReady(task: Task): boolean {
    if (task.earliestMs > this.nowMs) return false;
    const { owner } = task;
    return owner === null || (owner.runs && (owner.blockedBy === null || owner.blockedBy === task));
  }

  /** The task that an assumption about the world forces first when time goes on to `untilMs`. */
  forcedBefore(untilMs: number): Task | undefined {
    let first: Task | undefined;
    for (const task of this.tasks)
      if (task.latestMs <= untilMs && (first === undefined || task.latestMs < first.latestMs)) first = task;
    return first;
  }

  /** When the next task comes due by itself; `NEVER` when none does. */
  nextDueMs(): number {
    let next = NEVER;
    for (const task of this.tasks)
      if (task.earliestMs > this.nowMs && task.earliestMs < next && (task.owner === null || task.owner.runs))
        next = task.earliestMs;
    return next;
  }
}
