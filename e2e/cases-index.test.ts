import { readdirSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { describe, expect, test } from 'vitest';

const ROOT = fileURLToPath(new URL('../', import.meta.url));
const FOLDERS = ['packages', 'services', 'apps', 'testing', 'e2e'];

/** Cases that have to be tests by their number. */
const CASES = 'O01 O02 O03 O04 O05 O06 O07 O08 O09 O10 O11 O12 O13 O14 O15 O16 O17 O18 O20 O22 O23'.split(' ');

/** What every test file says, but this one. */
const texts = FOLDERS.flatMap((folder) =>
  readdirSync(`${ROOT}${folder}`, { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith('.test.ts') && !/node_modules|dist\/|cases-index/.test(name))
    .map((name) => readFileSync(`${ROOT}${folder}/${name}`, 'utf8')),
);

describe('the cases from the field', () => {
  // A name starts with the number, as the title of a test or as the first column of its table.
  test.each(CASES)('%s is a test by its number', (number) => {
    expect(texts.some((text) => new RegExp(`[\\['"\`(](${number}|(O\\d\\d )+${number})\\b`).test(text))).toBe(true);
  });
});
