import { existsSync, readFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';

interface Row {
  rule: number;
  carried: Reference[];
  tests: Reference[];
}
/** `file` › text that stands in it. */
interface Reference {
  file: string;
  text: string;
}

const ROWS = readFileSync('docs/protocol.md', 'utf8')
  .split('\n')
  .filter((line) => /^\| \d+ \|/.test(line))
  .map((line): Row => {
    const [rule = '', , carried = '', tests = ''] = line.split('|').slice(1, -1);
    return { rule: Number(rule), carried: referencesIn(carried), tests: referencesIn(tests) };
  });

function referencesIn(cell: string): Reference[] {
  return cell.split('; `').map((part) => {
    const found = /^\s*`?([^`]+)` › (.+?)\s*$/.exec(part);
    if (found === null) throw new Error(`not a reference: ${part}`);
    return { file: found[1] ?? '', text: found[2] ?? '' };
  });
}

test('docs/protocol.md has one row for each of the 26 rules', () => {
  expect(ROWS.map((row) => row.rule)).toEqual(Array.from({ length: 26 }, (_, index) => index + 1));
});

describe.each(ROWS)('rule $rule', ({ carried, tests }) => {
  test.each([...carried, ...tests])('names what exists: $file › $text', ({ file, text }) => {
    expect(existsSync(file), file).toBe(true);
    expect(readFileSync(file, 'utf8')).toContain(text);
  });

  test('is carried by code, and falls with a test', () => {
    expect(carried.every(({ file }) => !file.endsWith('.test.ts'))).toBe(true);
    expect(tests.every(({ file }) => file.endsWith('.test.ts'))).toBe(true);
  });
});
