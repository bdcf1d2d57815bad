import { StoreUnavailable } from '../store-unavailable.ts';

/**
 * Waits for `work`, but no longer than `ms`: a server that went silent without closing the connection must not hold its caller.
 * @throws {StoreUnavailable} after `ms`; whether the statement took effect is then unknown.
 */
export async function withDeadline<T>(work: PromiseLike<T>, ms: number): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const silence = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new StoreUnavailable(`the database did not answer within ${ms} ms`)), ms);
  });
  try {
    return await Promise.race([work, silence]);
  } finally {
    clearTimeout(timer);
  }
}

/** Resolves after `ms`, by the machine's clock: what is waited for happens outside of every test's time. */
export function elapsed(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}
