import { readFileSync } from 'node:fs';
import { parseTrustedKeys } from '@counterstamp/signatures';
import { describe, expect, test } from 'vitest';
import { z } from 'zod';
import { ORIGIN, TRUSTED } from '../testing/receipt-story.ts';
import { makeVectors } from '../testing/receipt-vectors.ts';
import { RECEIPT_CHECKS, type ReceiptVerification, verifyReceipt } from './receipt.ts';

const read = (file: string) =>
  readFileSync(new URL(`../../../docs/reference/receipt-vectors/${file}`, import.meta.url), 'utf8');
const checks = z.array(z.enum(RECEIPT_CHECKS));
const index = z
  .strictObject({
    origin: z.string(),
    keys: z.string(),
    vectors: z.array(z.strictObject({ file: z.string(), about: z.string(), fails: checks, absent: checks })),
  })
  .parse(JSON.parse(read('index.json')));
const made = await makeVectors();

function those({ checks: made }: ReceiptVerification, ok: false | 'absent'): string[] {
  return made.filter((one) => one.ok === ok).map(({ check }) => check);
}

describe('a published receipt', () => {
  const keys = parseTrustedKeys(read(index.keys));
  test.each(index.vectors)('$file fails exactly $fails', async ({ file, fails, absent }) => {
    const verified = await verifyReceipt(JSON.parse(read(file)), keys, { origin: index.origin });
    expect(those(verified, false), JSON.stringify(verified.checks, null, 2)).toEqual(fails);
    expect(those(verified, 'absent')).toEqual(absent);
    expect(verified.ok).toBe(fails.length === 0);
  });
  test('stands in the index as the script that makes them says', () => {
    expect(index.vectors).toEqual(
      made.map(({ name, about, fails, absent }) => ({ file: `${name}.json`, about, fails, absent })),
    );
  });
});

describe('a receipt made now', () => {
  test.each(made)('$name fails exactly $fails', async ({ envelope, fails, absent }) => {
    const verified = await verifyReceipt(envelope, TRUSTED, { origin: ORIGIN });
    expect(those(verified, false), JSON.stringify(verified.checks, null, 2)).toEqual(fails);
    expect(those(verified, 'absent')).toEqual(absent);
  });
});

test('every check is shown to fail by a vector', () => {
  expect(new Set(made.flatMap(({ fails }) => fails))).toEqual(new Set(RECEIPT_CHECKS));
});
