/** What one check found: it holds, it does not, or what it would look at is not there. */
export interface Finding {
  ok: boolean | 'absent';
  /** One sentence, or one per fault, in English. */
  sentence: string;
}

/** @param holds the sentence when there is no fault. Each fault is a sentence of its own. */
export function judge(faults: readonly string[], holds: string): Finding {
  return faults.length === 0 ? { ok: true, sentence: holds } : failed(...faults);
}

export function failed(...faults: readonly string[]): Finding {
  return { ok: false, sentence: faults.join(' ') };
}

export function absent(sentence: string): Finding {
  return { ok: 'absent', sentence };
}

/** `1 attempt`, `2 attempts`. */
export function counted(count: number, noun: string): string {
  return `${count} ${noun}${count === 1 ? '' : 's'}`;
}
