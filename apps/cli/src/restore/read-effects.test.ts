import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { readEffects } from './read-effects.ts';

let folder: string;
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'cs-effects-'));
});
afterAll(() => rmSync(folder, { recursive: true }));

function listed(text: string): Promise<unknown> {
  const file = join(folder, 'effects.json');
  writeFileSync(file, text);
  return readEffects(file);
}

const ENTRY = '"provider": "sandbox-payments", "ref": "re_1", "run_id": null';

test('an effect of an export keeps what it was booked with, and needs no more than its name', async () => {
  expect(await listed(`[{${ENTRY}, "fields": {"amount_minor": 4200}}, {${ENTRY}}]`)).toEqual([
    { provider: 'sandbox-payments', ref: 're_1', run_id: null, fields: { amount_minor: 4200 } },
    { provider: 'sandbox-payments', ref: 're_1', run_id: null, fields: {} },
  ]);
});

// Read as the api reads a body: an amount that was rounded or a member that hid another would compare as something else.
test.each([
  [
    'an amount that no number holds exactly',
    `[{${ENTRY}, "fields": {"amount_minor": 9007199254740993}}]`,
    'amount_minor',
  ],
  ['a member twice', `[{${ENTRY}, "ref": "re_2"}]`, '/0/ref'],
  ['an unknown member', `[{${ENTRY}, "amount": 1}]`, '/0/amount'],
  ['no list', `{${ENTRY}}`, 'holds no list of effects'],
  ['no JSON', 'ref,run_id', 'holds no list of effects'],
])('%s is refused by its place', async (_, text, place) => {
  await expect(listed(text)).rejects.toMatchObject({ name: 'CliFailure', message: expect.stringContaining(place) });
});
