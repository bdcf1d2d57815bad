import { existsSync, readFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';

const PAGE = readFileSync('THREATS.md', 'utf8');

/** A row of a table of THREATS.md. */
interface Row {
  attack: string;
  stops: string;
  shown: string;
  remains: string;
}

/** `file` › name of a test in it, up to the next one or the end of the cell or sentence. */
const SHOWN_BY = /`(?<file>[^`]+\.test\.ts)` › (?<name>.+?)(?=; `|\s*\||\. These stay|$)/gms;

/** What stands in backquotes and is a path of the repository. */
const PATH = /`((?:[\w.-]+\/)+[\w.-]+|[\w-]+\.(?:md|json)|Dockerfile)`/g;

const ROWS = PAGE.split('\n')
  .filter((line) => line.startsWith('| ') && !line.startsWith('| attack |'))
  .map((line): Row => {
    const cells = line.split('|').map((cell) => cell.trim());
    if (cells.length !== 6) throw new Error(`not a row of four cells: ${line}`);
    const [, attack = '', stops = '', shown = '', remains = ''] = cells;
    return { attack, stops, shown, remains };
  });

const TESTS = [...PAGE.matchAll(SHOWN_BY)].map(({ groups }) => ({
  file: groups?.file ?? '',
  name: groups?.name ?? '',
}));

describe('THREATS.md', () => {
  test.each([...new Set([...PAGE.matchAll(PATH)].map(([, path = '']) => path))])('names what exists: %s', (path) => {
    expect(existsSync(path)).toBe(true);
  });

  test.each(TESTS)('names a test that exists: $file › $name', ({ file, name }) => {
    expect(readFileSync(file, 'utf8')).toContain(name);
  });

  test('has for each attack what stops it, what shows that and what remains, in whole cells', () => {
    expect(ROWS.length).toBeGreaterThan(0);
    for (const { attack, stops, shown, remains } of ROWS) {
      expect([attack, stops, shown, remains]).not.toContain('');
      // Whatever is said to stop an attack, a test shows; and where nothing does, no test is called upon.
      expect(shown === 'none', attack).toBe(stops === 'nothing');
      if (shown !== 'none') expect(`${shown} |`.match(SHOWN_BY), attack).toHaveLength(shown.split(' › ').length - 1);
    }
  });

  test('promises no more than holds', () => {
    expect(PAGE).not.toMatch(/tamper-?proof|unbreakable|impossible/i);
  });
});
