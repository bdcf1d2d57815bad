/** Why work ends early: a person or a supervisor asked for it. */
export class Interrupted extends Error {
  override readonly name = 'Interrupted';
}

/** The request to end, from Ctrl-C, SIGTERM or a closed terminal. */
export interface Interrupt {
  signal: AbortSignal;
  /** Calls back at the second request, from someone who does not want to wait. */
  onImpatience(hurry: () => void): void;
  /** Gives the signals back. */
  dispose(): void;
}

/** Milliseconds within which the same request may reach us twice: from the terminal, and from whoever started us. */
const SAME_MS = 500;

export function listenForInterrupt(): Interrupt {
  const controller = new AbortController();
  const signals = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const;
  let firstAtMs = 0;
  let hurry: (() => void) | undefined;
  const onSignal = (signal: NodeJS.Signals) => {
    if (!controller.signal.aborted) {
      firstAtMs = performance.now();
      controller.abort(new Interrupted(signal));
    } else if (performance.now() - firstAtMs > SAME_MS) {
      hurry?.();
    }
  };
  for (const signal of signals) process.on(signal, onSignal);
  return {
    signal: controller.signal,
    onImpatience: (callback) => {
      hurry = callback;
    },
    dispose: () => {
      for (const signal of signals) process.off(signal, onSignal);
    },
  };
}
