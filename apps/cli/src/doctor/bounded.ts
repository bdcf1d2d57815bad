import { explain } from '../failure.ts';

/** Milliseconds that one check may take: above the 5 s after which a connection attempt gives up by itself. */
const CHECK_MAX_MS = 7_000;

export type Bounded<T> = { kind: 'done'; value: T } | { kind: 'failed'; sentence: string; next: string | undefined };

/** What `work` comes to, or why it came to nothing, within the time of one check. Never rejects, never shows a password or a stack. */
export async function bounded<T>(work: Promise<T>, maxMs: number = CHECK_MAX_MS): Promise<Bounded<T>> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<Bounded<T>>((resolve) => {
    timer = setTimeout(
      () =>
        resolve({
          kind: 'failed',
          sentence: `There was no answer within ${maxMs / 1_000} s.`,
          next: 'Check that the server runs and that no firewall drops the connection, then look again.',
        }),
      maxMs,
    );
  });
  const done = work.then(
    (value): Bounded<T> => ({ kind: 'done', value }),
    (error: unknown): Bounded<T> => {
      const { sentence, next } = explain(error);
      return { kind: 'failed', sentence, next };
    },
  );
  try {
    return await Promise.race([done, late]);
  } finally {
    clearTimeout(timer);
  }
}
