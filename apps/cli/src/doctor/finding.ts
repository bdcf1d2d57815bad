/** What one check came to. `warning`: the product works and keeps its guarantees, yet somebody should know. */
export interface Finding {
  check: string;
  status: 'ok' | 'warning' | 'failed';
  /** One sentence: what was found. */
  sentence: string;
  /** What to do about it, as a sentence; null when there is nothing to do. */
  next: string | null;
}

export function ok(check: string, sentence: string): Finding {
  return { check, status: 'ok', sentence, next: null };
}

export function warning(check: string, sentence: string, next: string): Finding {
  return { check, status: 'warning', sentence, next };
}

export function failed(check: string, sentence: string, next: string): Finding {
  return { check, status: 'failed', sentence, next };
}

/** The findings as a person reads them: one line each, what to do below it, and a last line that sums up. Pure. */
export function findingsPage(findings: readonly Finding[]): string {
  const width = Math.max(...findings.map((one) => one.check.length));
  const marks = { ok: '✓ ok     ', warning: '! warning', failed: '✗ failed ' } as const;
  const lines = findings.flatMap(({ check, status, sentence, next }) => {
    const head = `${marks[status]}  ${check.padEnd(width)}  `;
    return next === null ? [head + sentence] : [head + sentence, `${' '.repeat(head.length)}${next}`];
  });
  const count = (status: Finding['status']) => findings.filter((one) => one.status === status).length;
  const warnings = count('warning');
  return [
    ...lines,
    '',
    `${count('ok')} ok, ${warnings} warning${warnings === 1 ? '' : 's'}, ${count('failed')} failed`,
  ].join('\n');
}
