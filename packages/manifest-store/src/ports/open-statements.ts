import { AsyncLocalStorage } from 'node:async_hooks';

/** Told of every statement of this process when it ends: how long its caller waited, and whether the database answered. */
export type StatementObserver = (ms: number, answered: boolean) => void;

const open = new Map<number, number>();
/** What is asked inside a transaction has its connection already. */
const inTransaction = new AsyncLocalStorage<true>();
let last = 0;
let observer: StatementObserver | undefined;

/** Sets who is told; one per process, as its metrics are. */
export function observeStatements(told: StatementObserver): void {
  observer = told;
}

/** Statements and transactions that this process waits for, and the age of the oldest in milliseconds. More than the pool has connections: the others queue. */
export function openStatements(): { open: number; oldest_ms: number } {
  const [oldest] = open.values();
  return { open: open.size, oldest_ms: oldest === undefined ? 0 : performance.now() - oldest };
}

/** Counts `work` as one that takes a connection of the pool while it lasts. `failed`: whether an error means that nobody answered. */
export async function counted<T>(work: () => Promise<T>, failed: (error: unknown) => boolean): Promise<T> {
  if (inTransaction.getStore() === true) return await work();
  last += 1;
  const id = last;
  const began = performance.now();
  open.set(id, began);
  let answered = true;
  try {
    return await work();
  } catch (error) {
    answered = !failed(error);
    throw error;
  } finally {
    open.delete(id);
    observer?.(performance.now() - began, answered);
  }
}

/** Runs what belongs to one transaction. */
export function asTransaction<T>(work: () => Promise<T>): Promise<T> {
  return inTransaction.run(true, work);
}
