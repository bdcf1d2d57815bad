import { printable } from '../output/table.ts';

/** One check, as a verifier reports it. */
export interface Check {
  check: string;
  ok: boolean | 'absent';
  sentence: string;
}

const MARKS = { true: '✓', false: '✗', absent: '–' } as const;

/** One line per check: ✓ it holds, ✗ it does not, – what it would look at is not there. */
export function checkPage(checks: readonly Check[]): string {
  const width = Math.max(0, ...checks.map(({ check }) => check.length));
  return checks
    .map(({ check, ok, sentence }) => `${MARKS[`${ok}`]} ${check.padEnd(width)}  ${printable(sentence)}`)
    .join('\n');
}
