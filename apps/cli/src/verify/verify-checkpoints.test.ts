import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { makeCheckpoint } from '@counterstamp/receipts';
import { Envelope, generateSigningKey, parseSigningKey, publicJwk, trustedKeysText } from '@counterstamp/signatures';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { runCommand } from '../../testing/run-command.ts';
import { EXIT } from '../failure.ts';

const vectors = fileURLToPath(new URL('../../../../docs/reference/receipt-vectors/', import.meta.url));
const key = parseSigningKey(generateSigningKey());
const rotated = parseSigningKey(generateSigningKey());
const at = (n: number) => `2026-09-30T14:00:${String(n).padStart(2, '0')}.000000Z`;

/** A chain of so many checkpoints; `branch` tells one history from another. */
function chainOf(count: number, branch = 0): Envelope[] {
  const chain: Envelope[] = [];
  for (let n = 1; n <= count; n++)
    chain.push(makeCheckpoint(chain.at(-1) ?? null, [], at(n + branch), n > 3 ? rotated : key));
  return chain;
}

let folder: string;
beforeEach(async () => {
  folder = await mkdtemp(path.join(tmpdir(), 'cs-verify-'));
  const set = trustedKeysText([publicJwk(key, ['checkpoint']), publicJwk(rotated, ['checkpoint'])]);
  await writeFile(path.join(folder, 'keys.json'), set);
});
afterEach(() => rm(folder, { recursive: true }));

async function exported(name: string, lines: readonly unknown[]): Promise<string> {
  const file = path.join(folder, name);
  await writeFile(file, lines.map((line) => `${typeof line === 'string' ? line : JSON.stringify(line)}\n`).join(''));
  return file;
}
const verify = (...args: string[]) =>
  runCommand('verify-checkpoints', ...args, '--keys', path.join(folder, 'keys.json'));

test('a whole chain holds over a rotation of keys, however many files it is spread over', async () => {
  const [one, two, three, four, five] = chainOf(5);
  const odd = await exported('odd.jsonl', [five, one, three]);
  const even = await exported('even.jsonl', [two, four, three]);
  const { printed, exit } = await verify(odd, even);
  expect(exit).toBe(EXIT.ok);
  expect(printed).toBe(
    `✓ chain      5 checkpoints, 1 to 5, of ${at(1)} to ${at(5)}: each follows the one before it.\n` +
      '✓ beginning  The copies begin with the installation’s first checkpoint.\n',
  );
});

test('copies that begin later say so, and hold', async () => {
  const { printed, exit } = await verify(await exported('a.jsonl', chainOf(4).slice(2)));
  expect(exit).toBe(EXIT.ok);
  expect(printed).toContain('– beginning  The copies begin with checkpoint 3:');
});

test.each<[string, (chain: Envelope[]) => unknown[], string]>([
  ['a gap', ([one, two, , , five]) => [one, two, five], 'Checkpoint 5 (FILE:3) follows 2: 2 between them are missing'],
  [
    'two histories',
    (chain) => [...chain, chainOf(4, 1)[3]],
    'has the number of another one: two histories were signed',
  ],
  ['another history’s end', ([one, two]) => [one, two, chainOf(3, 1)[2]], 'follows another checkpoint 2 than the one'],
  [
    'a line that was cut',
    ([one]) => [one, '{"payloadType":'],
    'FILE:2 holds no checkpoint by a trusted key: it is no JSON.',
  ],
  [
    'another’s signature',
    ([one]) => [one, makeCheckpoint(null, [], at(1), parseSigningKey(generateSigningKey()))],
    'FILE:2 holds no checkpoint by a trusted key: key_unknown.',
  ],
  ['nothing', () => [], 'There is no checkpoint to look at.'],
])('%s is named', async (_, change, sentence) => {
  const file = await exported('a.jsonl', change(chainOf(5)));
  const { printed, exit } = await verify(file);
  expect(exit).toBe(EXIT.refused);
  expect(printed.replaceAll(file, 'FILE')).toContain(sentence);
});

test('a receipt’s checkpoint is found among the copies, or missed there', async () => {
  const receipt = path.join(vectors, 'completed.json');
  const trust = ['--keys', path.join(vectors, 'keys.json'), '--against'];
  const { payload } = Envelope.parse(JSON.parse(await readFile(receipt, 'utf8')));
  const statement = JSON.parse(Buffer.from(payload, 'base64').toString()) as {
    predicate: { checkpoint: { envelope: Envelope } };
  };
  const copies = await exported('a.jsonl', [statement.predicate.checkpoint.envelope]);
  const found = await runCommand('verify-checkpoints', copies, ...trust, receipt);
  expect(found).toMatchObject({
    exit: EXIT.ok,
    printed: expect.stringMatching(/✓ receipt {4}.* is one of the copies\.\n$/),
  });
  const early = await runCommand('verify-checkpoints', copies, ...trust, path.join(vectors, 'stopped-early.json'));
  expect(early).toMatchObject({
    exit: EXIT.refused,
    printed: expect.stringContaining('The receipt shows no checkpoint'),
  });
  const forged = await runCommand(
    'verify-checkpoints',
    copies,
    ...trust,
    path.join(vectors, 'signed-by-stranger.json'),
  );
  expect(forged).toMatchObject({ exit: EXIT.refused, printed: expect.stringContaining('not signed by a trusted key') });
});
